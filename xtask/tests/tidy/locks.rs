//! Each lock file matches the manifests that it was made from, so `--locked` compiles what was committed.

use crate::project::{files, root};

#[expect(clippy::disallowed_methods, reason = "cargo alone reads its lock files, and nothing else is started here")]
#[test]
fn each_lock_file_matches_its_manifests() {
    let manifests: Vec<String> = files(&["lock"])
        .iter()
        .filter_map(|it| Some(format!("{}Cargo.toml", it.path.strip_suffix("Cargo.lock")?)))
        .collect();
    assert!(manifests.len() > 1, "only {manifests:?}");
    for manifest in manifests {
        let output = std::process::Command::new(env!("CARGO"))
            .args(["tree", "--locked", "--depth", "0", "--manifest-path", &manifest])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{manifest}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
