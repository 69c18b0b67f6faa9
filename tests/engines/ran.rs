//! Which scenarios of the specification ran, for `cargo xtask scenarios`.

use std::fs::{File, OpenOptions, create_dir_all};
use std::io::Write;

use coracle_runtime::EngineKind;

use super::person::{ROOTLESS, is_root};

/// Notes that the scenario passed on that engine: the last act of its test.
pub(crate) fn ran(scenario: &str, engine: EngineKind) {
    let engine = match engine {
        EngineKind::Podman if !is_root() => ROOTLESS,
        engine => engine.as_str(),
    };
    // One write for one line: other tests append to the same file.
    file("ran.txt").write_all(format!("{scenario} {engine} ok\n").as_bytes()).unwrap();
}

/// Notes that a test left an engine out, for `cargo xtask test`, which says how many did.
pub(super) fn skipped(engine: &str) {
    eprintln!("skipped on {engine}");
    file("skipped.txt").write_all(format!("{engine}\n").as_bytes()).unwrap();
}

/// A file for such notes, ready for another line.
pub(super) fn file(name: &str) -> File {
    // target/<profile>/deps/<this program>
    let program = std::env::current_exe().unwrap();
    let dir = program.ancestors().nth(3).unwrap().join("scenarios");
    create_dir_all(&dir).unwrap();
    OpenOptions::new().create(true).append(true).open(dir.join(name)).unwrap()
}
