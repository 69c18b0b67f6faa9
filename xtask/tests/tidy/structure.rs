//! The structure of the crates: cycles, sizes and words. The rules, and what each has to find, are in `xtask/src/structure/rules`.

use structure::load::workspace;
use structure::rules::{ALL, LISTS};

use super::project::root;

/// All rules in one test, which reads the crates once.
#[test]
fn the_crates_keep_their_structure() {
    let crates = workspace(root()).expect("the crates can be read");
    let mut faults = vec![];
    for rule in ALL {
        let path = format!("{LISTS}/{}", rule.list);
        let list = std::fs::read_to_string(root().join(&path)).expect("the list can be read");
        faults.extend((rule.check)(&crates, &list).faults.iter().map(|it| format!("{path}: {it}")));
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}
