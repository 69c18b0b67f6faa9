//! The project as these rules read it.

use std::path::Path;

use serde_json::Value;
pub(crate) use structure::sources::Source;
use structure::sources::sources;

pub(crate) fn source(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the project's root")
}

#[expect(clippy::disallowed_methods, reason = "cargo alone knows the packages, and nothing else is started here")]
/// Cargo's metadata of the workspace in a directory.
pub(crate) fn metadata(workspace: &str) -> Value {
    let words = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = std::process::Command::new(env!("CARGO"))
        .args(words)
        .current_dir(root().join(workspace))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo answers in JSON")
}

pub(crate) fn rust_files() -> Vec<Source> {
    let files = files(&["rs"]);
    assert!(files.iter().any(|it| it.path == "xtask/src/main.rs"), "the search finds this project");
    files
}

pub(crate) fn files(endings: &[&str]) -> Vec<Source> {
    sources(root(), endings).expect("the project can be read")
}
