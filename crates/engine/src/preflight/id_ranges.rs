//! Subordinate ids: the users of a container other than the user who runs Coracle.

use std::path::Path;

use coracle_host::find_program::find_program;
use rustix::process::Uid;

use super::read;
use crate::ids::{LEAST_SUBORDINATE, names_of, ranges};

/// Programs that map them, setuid root.
const HELPERS: [&str; 2] = ["newuidmap", "newgidmap"];

/// Who users inside a container can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdRanges {
    /// The engine runs as root and needs none.
    Root,
    /// Ids reserved for the user in one range: the fewer of users and groups.
    Subordinate(u32),
    /// No range has as many ids as images use: the user is the only one inside.
    TooFew(u32),
    /// The files name none for the user: the user is the only one inside.
    NoRange,
    /// Ranges are there, and the program that maps them is not.
    NoHelper(&'static str),
}

impl IdRanges {
    pub(super) fn inspect(machine: &Path, uid: Uid) -> Self {
        if uid.is_root() {
            return Self::Root;
        }
        let names = names_of(uid.as_raw(), &read(machine, "etc/passwd"));
        let ids = |file: &str| most_ids(&read(machine, file), &names);
        let ids = ids("etc/subuid").min(ids("etc/subgid"));
        let missing = HELPERS.into_iter().find(|it| find_program(it).is_err());
        match (ids, missing) {
            (0, _) => Self::NoRange,
            (..LEAST_SUBORDINATE, _) => Self::TooFew(ids),
            (_, Some(helper)) => Self::NoHelper(helper),
            (ids, None) => Self::Subordinate(ids),
        }
    }
}

/// The most ids of a line for the user with these names.
fn most_ids(text: &str, names: &[String]) -> u32 {
    ranges(text, names).map(|it| it.count).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_range_of_a_person_counts() {
        let (text, names) = ("ada:100000:65536\n1001:300000:10\nbob:1:x\nadah:5:5\n", ["ada".into(), "1001".into()]);
        assert_eq!(most_ids(text, &names), 65536);
        assert_eq!(most_ids(text, &names[1..]), 10);
        assert_eq!(most_ids(text, &["eve".into(), "7".into()]), 0);
    }
}
