//! Removes a measurement's leftovers, by the engine's own program.
#![expect(clippy::disallowed_methods, reason = "the engines' own programs remove what is theirs")]

use std::process::{Command, Stdio};

/// Removes containers and volumes that an engine still has with a label: `NAME` or `NAME=VALUE`.
pub(crate) fn remove_labelled(engine: &str, label: &str) {
    let filter = format!("--filter=label={label}");
    remove_listed(engine, &["ps", "--all", "--quiet", &filter], &["rm", "--force", "--volumes"]);
    remove_listed(engine, &["volume", "ls", "--quiet", &filter], &["volume", "rm"]);
}

/// Removes the networks of state directories, which stay for a next container: these directories have none.
pub(crate) fn remove_networks(engine: &str, namespace: &str) {
    let filter = format!("--filter=name=^{namespace}-lone-");
    remove_listed(engine, &["network", "ls", "--quiet", &filter], &["network", "rm"]);
}

fn remove_listed(engine: &str, list: &[&str], remove: &[&str]) {
    let output = Command::new(engine).args(list).stdin(Stdio::null()).output();
    let listed = String::from_utf8(output.map(|it| it.stdout).unwrap_or_default()).unwrap_or_default();
    for it in listed.split_whitespace() {
        let _ = Command::new(engine).args(remove).arg(it).stdin(Stdio::null()).output();
    }
}
