//! The structure of the crates, and the language of their texts: the rules, and what each has to find, are in `xtask/src/structure/rules`.

use structure::rules::{ALL, LISTS, Project};

use super::project::root;

/// All rules in one test, which reads the crates once.
#[test]
fn the_crates_keep_their_structure() {
    let project = Project::read(root()).expect("the project can be read");
    let mut faults = vec![];
    for rule in ALL {
        let path = format!("{LISTS}/{}", rule.list);
        let list = std::fs::read_to_string(root().join(&path)).expect("the list can be read");
        faults.extend((rule.check)(&project, &list).faults.iter().map(|it| format!("{path}: {it}")));
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}
