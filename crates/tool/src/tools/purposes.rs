//! Tests that the descriptions of `purpose` name the built-in purposes.

use std::collections::{BTreeMap, BTreeSet};

use coracle_images::profile::{Purpose, known};

use super::agent;
use crate::dispatch::OperationEntry;
use crate::operations;

/// Returns the description of an operation's field `purpose`.
fn description(entry: &OperationEntry) -> Option<String> {
    let schema = entry.arguments().properties.remove("purpose")?;
    schema["description"].as_str().map(str::to_owned)
}

/// Returns the names in backticks of the first sentence.
fn named(description: &str) -> BTreeSet<&str> {
    let (sentence, _) = description.split_once(". ").unwrap_or((description, ""));
    sentence.split('`').skip(1).step_by(2).collect()
}

#[test]
fn each_description_of_a_purpose_names_the_built_in_ones() {
    let built_in = known(&BTreeMap::new());
    let built_in: BTreeSet<&str> = built_in.iter().map(Purpose::as_str).collect();
    let mut operations = vec![];
    for entry in operations::ALL {
        let Some(description) = description(entry) else { continue };
        assert_eq!(named(&description), built_in, "{}: list them in the comment of `purpose`", entry.name);
        operations.push(entry.name);
    }
    assert_eq!(operations, ["create", "restore", "fork", "images", "cache_clear"]);
}

#[test]
fn the_tool_of_agents_leaves_out_only_purposes_that_few_agents_need() {
    let built_in = known(&BTreeMap::new());
    let description = agent::ALL.iter().find_map(description).expect("`create` has a purpose");
    let (named, left_out) = (named(&description), ["amplifier", "clean", "try-repo"]);
    let all = named.iter().copied().chain(left_out).collect::<BTreeSet<_>>();
    assert_eq!(all, built_in.iter().map(Purpose::as_str).collect(), "list it in the comment of `purpose`");
}
