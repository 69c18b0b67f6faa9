//! No private language: modules, types and functions are named by the words of the field.

use std::collections::BTreeMap;

use super::Outcome;
use super::counts::Offenders;
use crate::facts::Kind;
use crate::load::Crate;

/// Lines like `type Told = Response`: the banned name, and what to use instead.
const BANNED: &str = include_str!("banned_words.txt");

/// Types of one word in `-ed` or `-ing` that are nouns or terms of the field.
const NOUNS: &[&str] = &[
    "Accepted",
    "Admitted",
    "Binding",
    "Classified",
    "Deferred",
    "Embed",
    "Encoding",
    "Exited",
    "Feed",
    "Finding",
    "Heading",
    "Incoming",
    "Listing",
    "Mapping",
    "Outgoing",
    "Ping",
    "Placed",
    "Provisioning",
    "Requested",
    "Ring",
    "Seed",
    "Setting",
    "Skipped",
    "Started",
    "Warning",
];

/// Types that say nothing without their subject, where other crates see them.
const GENERIC: &[&str] = &["Entry", "Item", "Line", "Plan", "Source", "State"];

/// Ends and beginnings of types, and what to use instead.
const PARTS: &[(&str, &str)] = &[("Ask", "…Request or …Options"), ("Deed", "…Event"), ("Had", "…Response or …Record")];

pub(super) fn check(crates: &[Crate], list: &str) -> Outcome {
    let banned = Banned::read();
    let mut found = Offenders::default();
    for loaded in crates {
        for (at, module) in loaded.modules.iter().enumerate() {
            let place = |line: usize| format!("{}:{line}", loaded.file_of(at));
            if let Some(name) = module.path.last().filter(|it| banned.has("module", it)) {
                found.add(&format!("module {name}"), place(1));
            }
            for it in module.facts.definitions.iter().filter(|it| matches!(it.kind, Kind::Type | Kind::Trait)) {
                if banned.for_type(&it.name, it.is_public).is_some() {
                    found.add(&format!("type {}", it.name), place(it.line));
                }
            }
            for it in module.facts.functions.iter().filter(|it| banned.has("function", &it.name)) {
                found.add(&format!("function {}", it.name), place(it.line));
            }
        }
    }
    found.compare(list, |key| banned.advice(key))
}

struct Banned(BTreeMap<&'static str, &'static str>);

impl Banned {
    fn read() -> Self {
        let lines = super::entries(BANNED);
        Self(lines.map(|it| it.split_once(" = ").unwrap_or_else(|| panic!("`{it}` names no other word"))).collect())
    }

    fn has(&self, kind: &str, name: &str) -> bool {
        self.0.contains_key(format!("{kind} {name}").as_str())
    }

    /// Advice for a banned name.
    fn for_type(&self, name: &str, is_public: bool) -> Option<String> {
        let listed = self.0.get(format!("type {name}").as_str());
        if let Some(standard) = listed {
            return Some(format!("call it {standard}"));
        }
        if let Some((_, standard)) = PARTS.iter().find(|(end, _)| name.ends_with(end)) {
            return Some(format!("call it {standard}"));
        }
        if is_public && GENERIC.contains(&name) {
            return Some("put the subject before it".to_owned());
        }
        let is_one_word = name.chars().filter(|it| it.is_uppercase()).count() == 1;
        let is_participle = is_one_word && (name.ends_with("ed") || name.ends_with("ing")) && !NOUNS.contains(&name);
        is_participle.then(|| "call it by a noun of the field, not by a participle".to_owned())
    }

    fn advice(&self, key: &str) -> String {
        let (kind, name) = key.split_once(' ').unwrap_or_default();
        let of_type = || self.for_type(name, true).unwrap_or_default();
        if kind == "type" { of_type() } else { self.0.get(key).map_or_else(String::new, |it| format!("call it {it}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    #[test]
    fn a_word_of_no_field_is_found_with_the_standard_one() {
        let code =
            "mod mouth { pub(crate) struct Told; }\nstruct PushAsk;\nstruct Squashed;\npub struct Item;\nfn dress() {}";
        let faults = check(&[planted("one", &[("lib.rs", code)])], "").faults;
        assert_eq!(
            faults,
            [
                "function dress: 1, known 0; call it `apply_…` (src/lib.rs:5)",
                "module mouth: 1, known 0; call it `frontend` or `transport` (src/lib.rs:1)",
                "type Item: 1, known 0; put the subject before it (src/lib.rs:4)",
                "type PushAsk: 1, known 0; call it …Request or …Options (src/lib.rs:2)",
                "type Squashed: 1, known 0; call it by a noun of the field, not by a participle (src/lib.rs:3)",
                "type Told: 1, known 0; call it `…Response` (src/lib.rs:1)",
            ]
        );
    }

    #[test]
    fn words_of_the_field_are_fine() {
        let code = "mod frontend { struct Item; }\nstruct ToolResponse;\nstruct Warning;\npub struct MountSource;\n\
            fn inspect() {}\nimpl Trait for Warning { fn told() {} }\n#[cfg(test)]\nmod tests { struct Told; }";
        assert_eq!(check(&[planted("one", &[("lib.rs", code)])], "").faults, Vec::<String>::new());
    }
}
