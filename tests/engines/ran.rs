//! Which scenarios of the specification ran, for `cargo xtask scenarios`.

use std::fs::{OpenOptions, create_dir_all};
use std::io::Write;

use coracle_runtime::EngineKind;

/// Notes that the scenario passed on that engine: the last act of its test.
pub(crate) fn ran(scenario: &str, engine: EngineKind) {
    // target/<profile>/deps/<this program>
    let program = std::env::current_exe().unwrap();
    let dir = program.ancestors().nth(3).unwrap().join("scenarios");
    create_dir_all(&dir).unwrap();
    let mut file = OpenOptions::new().create(true).append(true).open(dir.join("ran.txt")).unwrap();
    // One write for one line: other tests append to the same file.
    file.write_all(format!("{scenario} {engine} ok\n").as_bytes()).unwrap();
}
