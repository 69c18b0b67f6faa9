//! No cycle between the top-level modules of a crate, and none between its files.
//!
//! A file uses another one when its code, outside of tests, names an item that is defined there; a name that is re-exported
//! on the way counts for the file that defines it. So a parent that declares and re-exports its children uses none of them,
//! and a child that imports a sibling through `super` does not use the parent. Parent and child are a cycle when the parent's
//! code names an item of the child, and the child one that the parent itself defines: such an item belongs in a file of its
//! own beside the child.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{Outcome, entries, head};
use crate::cycles::cycles;
use crate::dependencies::{Dependency, Graph, between_files, between_modules, dependencies, witness};
use crate::load::Crate;

/// The graph whose cycles are looked for.
type Between = fn(&Crate, &[Dependency]) -> Graph;

/// A crate, and the modules or files of one cycle.
type ListedCycle<'a> = (&'a str, BTreeSet<&'a str>);

pub(super) fn check_modules(crates: &[Crate], list: &str) -> Outcome {
    check(between_modules, crates, list)
}

pub(super) fn check_files(crates: &[Crate], list: &str) -> Outcome {
    check(between_files, crates, list)
}

fn check(between: Between, crates: &[Crate], list: &str) -> Outcome {
    let (mut outcome, listed) = (Outcome { faults: vec![], list: head(list) }, parse(list));
    for loaded in crates {
        let own: Vec<&BTreeSet<&str>> = listed.iter().filter(|it| it.0 == loaded.name).map(|it| &it.1).collect();
        check_crate(loaded, &between(loaded, &dependencies(loaded)), &own, &mut outcome);
    }
    for (name, modules) in listed.iter().filter(|it| !crates.iter().any(|loaded| loaded.name == it.0)) {
        outcome.faults.push(gone(name, modules));
    }
    outcome
}

fn check_crate(loaded: &Crate, graph: &Graph, listed: &[&BTreeSet<&str>], outcome: &mut Outcome) {
    let present: Vec<BTreeSet<&str>> = cycles(graph).into_iter().map(|it| it.into_iter().collect()).collect();
    let listed_for = |it: &BTreeSet<&str>| listed.iter().find(|listed| it.is_subset(listed));
    for modules in &present {
        match listed_for(modules) {
            None => outcome.faults.push(growth(loaded, graph, modules, listed)),
            Some(listed) => {
                outcome.faults.extend(shrinkage(&loaded.name, modules, listed));
                outcome.list += &block(&loaded.name, modules);
            }
        }
    }
    for modules in listed.iter().filter(|it| !present.iter().any(|present| present.is_subset(it))) {
        // A cycle that grew stays on the list as it was.
        match present.iter().any(|it| !it.is_disjoint(modules)) {
            true => outcome.list += &block(&loaded.name, modules),
            false => outcome.faults.push(gone(&loaded.name, modules)),
        }
    }
}

fn gone(name: &str, modules: &BTreeSet<&str>) -> String {
    format!("{name}: the cycle of {} is gone; `cargo xtask ratchet` notes that", joined(modules))
}

/// A cycle that no listed one contains, with a place for each edge that the list does not explain.
fn growth(loaded: &Crate, graph: &Graph, modules: &BTreeSet<&str>, listed: &[&BTreeSet<&str>]) -> String {
    let known: BTreeSet<&str> = listed.iter().flat_map(|it| it.iter().copied()).collect();
    let added: BTreeSet<&str> = modules.difference(&known).copied().collect();
    let mut fault = format!("{}: {} use each other in a cycle", loaded.name, joined(modules));
    if !added.is_empty() && added.len() < modules.len() {
        let _ = write!(fault, "; new in it: {}", joined(&added));
    }
    let is_known = |from: &str, to: &str| listed.iter().any(|it| it.contains(from) && it.contains(to));
    for (from, edges) in graph.iter().filter(|it| modules.contains(it.0.as_str())) {
        for (to, edge) in edges.iter().filter(|it| modules.contains(it.0.as_str()) && !is_known(from, it.0)) {
            let _ = write!(fault, "\n  {from} → {to}: {}", witness(loaded, edge));
        }
    }
    fault
}

fn shrinkage(name: &str, modules: &BTreeSet<&str>, listed: &BTreeSet<&str>) -> Option<String> {
    let gone: BTreeSet<&str> = listed.difference(modules).copied().collect();
    let them = || format!("{name}: {} left the cycle; `cargo xtask ratchet` notes that", joined(&gone));
    (!gone.is_empty()).then(them)
}

/// The name of a crate with a colon begins a cycle, and its modules stand below.
fn block(name: &str, modules: &BTreeSet<&str>) -> String {
    let modules: String = modules.iter().map(|it| format!("  {it}\n")).collect();
    format!("{name}:\n{modules}")
}

fn parse(list: &str) -> Vec<ListedCycle<'_>> {
    let mut known: Vec<ListedCycle<'_>> = vec![];
    for line in entries(list) {
        match (line.strip_suffix(':'), known.last_mut()) {
            (Some(name), _) => known.push((name, BTreeSet::new())),
            (None, Some((_, modules))) => drop(modules.insert(line.trim())),
            (None, None) => {}
        }
    }
    known
}

fn joined(modules: &BTreeSet<&str>) -> String {
    modules.iter().copied().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    /// `low` reaches `high` through the root's re-export, `high` reaches `low` by a path in a type.
    const HIDDEN: &[(&str, &str)] = &[
        ("lib.rs", "mod high;\nmod low;\nmod apart;\npub use high::inner::Thing;\n#[cfg(test)]\nmod tests;"),
        ("high.rs", "pub mod inner;\nfn it(_: crate::low::Value) {}"),
        ("high/inner.rs", "pub struct Thing;"),
        (
            "low/mod.rs",
            "use crate::{Thing as Other};\npub struct Value(Other);\n#[cfg(test)]\nmod tests { use crate::apart::it; }",
        ),
        ("apart.rs", "use super::low;\npub fn it(_: low::Value) {}"),
        ("tests.rs", "use crate::apart;"),
    ];

    fn faults(list: &str) -> Vec<String> {
        check_modules(&[planted("house", HIDDEN)], list).faults
    }

    #[test]
    fn a_cycle_that_a_reexport_hides_is_found_with_a_place_for_each_edge() {
        let expected = "house: high, low use each other in a cycle\n  \
            high → low: src/high.rs:2  crate::low::Value\n  \
            low → high: src/low/mod.rs:1  use crate::Thing as Other";
        assert_eq!(faults(""), [expected]);
    }

    /// `store/mod.rs` re-exports and calls `read`, which uses what it defines; `write` uses only a sibling, through `super`.
    const NESTED: &[(&str, &str)] = &[
        ("lib.rs", "pub mod store;"),
        (
            "store/mod.rs",
            "mod read;\nmod write;\npub use read::{Page, read};\npub use write::write;\npub struct Limit;\n\
                fn it() { read(); }",
        ),
        ("store/read.rs", "use super::Limit;\npub struct Page;\npub fn read() {}"),
        ("store/write.rs", "use super::Page;\npub fn write(_: Page) {}"),
    ];

    #[test]
    fn a_cycle_of_files_is_found() {
        let outcome = check_files(&[planted("house", NESTED)], "");
        let expected = "house: store/mod.rs, store/read.rs use each other in a cycle\n  \
            store/mod.rs → store/read.rs: src/store/mod.rs:6  read\n  \
            store/read.rs → store/mod.rs: src/store/read.rs:1  use super::Limit";
        assert_eq!(outcome.faults, [expected]);
        let listed = "house:\n  store/mod.rs\n  store/read.rs\n";
        assert_eq!(
            check_files(&[planted("house", NESTED)], listed),
            Outcome { faults: vec![], list: listed.to_owned() }
        );
    }

    #[test]
    fn a_parent_that_only_reexports_uses_no_child() {
        let mut files = NESTED.to_vec();
        files[1].1 = "mod read;\nmod write;\npub use read::{Page, read};\npub use write::write;\npub struct Limit;";
        assert_eq!(check_files(&[planted("house", &files)], "").faults, Vec::<String>::new());
    }

    #[test]
    fn a_known_cycle_may_not_grow() {
        assert_eq!(faults("house:\n  high\n  low\n"), Vec::<String>::new());
        let list = "house:\n  apart\n  high\n";
        let outcome = check_modules(&[planted("house", HIDDEN)], list);
        let [fault] = &outcome.faults[..] else { panic!("{outcome:?}") };
        assert!(fault.starts_with("house: high, low use each other in a cycle; new in it: low\n"), "{fault}");
        assert_eq!(outcome.list, list);
    }

    #[test]
    fn what_left_a_cycle_leaves_the_list() {
        let list = "# Head.\nhouse:\n  apart\n  high\n  low\nhouse:\n  a\n  b\n";
        let outcome = check_modules(&[planted("house", HIDDEN)], list);
        assert_eq!(
            outcome.faults,
            [
                "house: apart left the cycle; `cargo xtask ratchet` notes that",
                "house: the cycle of a, b is gone; `cargo xtask ratchet` notes that"
            ]
        );
        assert_eq!(outcome.list, "# Head.\nhouse:\n  high\n  low\n");
    }

    #[test]
    fn every_way_to_name_an_item_is_an_edge() {
        for user in [
            "use crate::low::Value;",
            "use super::low::{self, Value};",
            "use crate::low; fn it() { low::make(); }",
            "use crate::low::*; fn it(_: Value) {}",
            "fn it() { use crate::low as l; l::make(); }",
            "fn it() { assert!(crate::low::make()); }",
            "#[serde(with = \"crate::low\")] struct It;",
            "struct It<T: crate::low::Trait>(T);",
            "fn it(low: u8) { match low { crate::low::CONST => {} _ => {} } }",
            "mod inline { fn it() { super::super::low::make(); } }",
            "pub use crate::low::made_by_a_macro;",
            "fn it() { a_macro!(); }",
        ] {
            let low = "pub struct Value;\npub fn make() {}\npub trait Trait {}\npub const CONST: u8 = 1;\n\
                macro_rules! a_macro { () => {} }";
            let loaded = planted("house", &[("lib.rs", "mod low; mod user;"), ("low.rs", low), ("user.rs", user)]);
            let graph = between_modules(&loaded, &dependencies(&loaded));
            assert!(graph.get("user").is_some_and(|it| it.contains_key("low")), "{user}");
        }
    }

    #[test]
    fn what_looks_like_a_use_is_none() {
        for user in [
            "use std::low::Value;",
            "use ::low::Value;",
            "pub(in crate::low) fn it() {}",
            "/// [`crate::low::Value`]\nfn it() {}",
            "#[cfg(test)]\nuse crate::low::Value;",
            "struct It { #[cfg(test)] it: crate::low::Value }",
            "fn it() { struct Value; let _ = Value; }",
            "impl It { #[cfg(test)] fn it() { crate::low::make(); } }",
        ] {
            let loaded = planted(
                "house",
                &[("lib.rs", "mod low; mod user;"), ("low.rs", "pub struct Value;"), ("user.rs", user)],
            );
            let graph = between_modules(&loaded, &dependencies(&loaded));
            assert!(graph.get("user").is_none_or(std::collections::BTreeMap::is_empty), "{user}");
        }
    }
}
