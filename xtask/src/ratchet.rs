//! `cargo xtask ratchet`: takes from the lists of known faults what is gone. It adds nothing to a list that exists.

use std::fs;

use anyhow::{Result, ensure};
use structure::rules::{ALL, LISTS, Project};

use crate::sh::root;

pub(crate) fn run(words: &[String]) -> Result<()> {
    ensure!(words.is_empty(), "usage: cargo xtask ratchet");
    let project = Project::read(root())?;
    for rule in ALL {
        let path = root().join(LISTS).join(rule.list);
        let list = fs::read_to_string(&path)?;
        let outcome = (rule.check)(&project, &list);
        if outcome.list != list {
            fs::write(&path, &outcome.list)?;
            println!("{LISTS}/{} is shorter now", rule.list);
        }
        for fault in (rule.check)(&project, &outcome.list).faults {
            println!("{fault}");
        }
    }
    Ok(())
}
