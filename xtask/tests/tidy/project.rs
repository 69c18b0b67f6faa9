//! The project as these rules read it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A file of the project: its path from the root, and its text.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

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

/// The project's files with one of those endings; what is built or fetched is not the project's.
pub(crate) fn files(endings: &[&str]) -> Vec<Source> {
    let (mut found, mut folders) = (vec![], vec![root().to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder can be read").flatten().map(|it| it.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_symlink() || [".git", "target", "node_modules"].contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if endings.contains(&path.extension().unwrap_or_default().to_string_lossy().as_ref()) {
                found.extend(fs::read_to_string(&path).map(|text| Source { path: relative(&path), text }));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn relative(path: &Path) -> String {
    let path: PathBuf = path.strip_prefix(root()).expect("a file of the project").to_path_buf();
    path.to_string_lossy().into_owned()
}
