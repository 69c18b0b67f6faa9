//! Offenders by name, with a number that may only fall.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Outcome, entries, head};

/// Positions `file:line`, by key.
#[derive(Debug, Default)]
pub(super) struct Offenders(BTreeMap<String, Vec<String>>);

impl Offenders {
    pub(super) fn add(&mut self, key: &str, place: String) {
        self.0.entry(key.to_owned()).or_default().push(place);
    }

    /// Leaves out what stands fewer times.
    pub(super) fn at_least(mut self, times: usize) -> Self {
        self.0.retain(|_, places| places.len() >= times);
        self
    }

    /// Compares with the list, whose lines are a key and a number. `advice` is the hint for a new entry.
    pub(super) fn compare(&self, list: &str, advice: impl Fn(&str) -> String) -> Outcome {
        let known = parse(list);
        let (mut faults, mut remaining) = (vec![], head(list));
        for (key, places) in &self.0 {
            let (count, known) = (places.len(), known.get(key.as_str()).copied().unwrap_or(0));
            if count > known {
                faults.push(format!("{key}: {count}, known {known}; {} ({})", advice(key), places.join(", ")));
            }
            if known > 0 {
                let _ = writeln!(remaining, "{key} {}", count.min(known));
            }
        }
        for (key, known) in known {
            let count = self.0.get(key).map_or(0, Vec::len);
            if count < known {
                faults.push(format!("{key}: {count} are left of {known}; `cargo xtask ratchet` notes that"));
            }
        }
        Outcome { faults, list: remaining }
    }
}

fn parse(list: &str) -> BTreeMap<&str, usize> {
    entries(list)
        .filter_map(|it| it.rsplit_once(' '))
        .filter_map(|(key, count)| Some((key, count.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ones_and_gone_ones_are_faults_and_the_list_only_shrinks() {
        let mut found = Offenders::default();
        for (key, place) in [("a", "x:1"), ("b", "x:2"), ("b", "y:1"), ("c", "x:3")] {
            found.add(key, place.to_owned());
        }
        let outcome = found.compare("# Head.\n\na 1\nb 1\nc 2\nd 1\n", |_| "call it e".to_owned());
        assert_eq!(
            outcome.faults,
            [
                "b: 2, known 1; call it e (x:2, y:1)",
                "c: 1 are left of 2; `cargo xtask ratchet` notes that",
                "d: 0 are left of 1; `cargo xtask ratchet` notes that"
            ]
        );
        assert_eq!(outcome.list, "# Head.\n\na 1\nb 1\nc 1\n");
    }
}
