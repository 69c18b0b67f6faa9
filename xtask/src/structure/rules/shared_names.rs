//! No name for three types.

use super::Outcome;
use super::counts::Offenders;
use crate::facts::Kind;
use crate::load::Crate;

const MOST: usize = 2;

/// Every module may have these of its own, as the standard library does.
const COMMON: &[&str] = &["Error", "Result"];

pub(super) fn check(crates: &[Crate], list: &str) -> Outcome {
    let mut found = Offenders::default();
    for loaded in crates {
        for (at, module) in loaded.modules.iter().enumerate() {
            let types = module.facts.definitions.iter().filter(|it| matches!(it.kind, Kind::Type | Kind::Trait));
            for it in types.filter(|it| !COMMON.contains(&it.name.as_str())) {
                found.add(&it.name, format!("{}:{}", loaded.file_of(at), it.line));
            }
        }
    }
    found.at_least(MOST + 1).compare(list, |_| "put the subject before it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    #[test]
    fn the_third_type_of_a_name_is_found() {
        let one = planted(
            "one",
            &[("lib.rs", "mod a { struct Entry; enum Error {} }\nmod b { enum Error {} trait Plan {} }")],
        );
        let two =
            planted("two", &[("lib.rs", "type Entry = u8; enum Error {} struct Plan;\n#[cfg(test)] struct Plan;")]);
        let three = planted("three", &[("lib.rs", "fn it() {}\nunion Entry {}")]);
        let expected = "Entry: 3, known 0; put the subject before it (src/lib.rs:1, src/lib.rs:1, src/lib.rs:2)";
        assert_eq!(check(&[one, two, three], "").faults, [expected]);
    }
}
