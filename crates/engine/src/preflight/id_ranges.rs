//! Subordinate ids: the users of a container other than the user who runs Coracle.

use std::path::Path;

use coracle_host::find_program::find_program;
use rustix::process::Uid;

use super::read;
use crate::ids::{LEAST_SUBORDINATE, names_of, ranges};

/// Set-user-id programs that map subordinate ids.
const HELPERS: [&str; 2] = ["newuidmap", "newgidmap"];

/// Which users a container can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdRanges {
    /// The engine runs as root and needs none.
    Root,
    /// The number of subordinate ids in one range, the lower of users and groups.
    Subordinate(u32),
    /// No range is large enough for images: root inside is the only user. Has the size of the largest range.
    TooFew(u32),
    /// `/etc/subuid` or `/etc/subgid` has no range for the user: root inside is the only user.
    NoRange,
    /// Ranges exist, but this program, which maps them, is not installed.
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

/// The size of the largest range of the user with these names.
fn most_ids(text: &str, names: &[String]) -> u32 {
    ranges(text, names).map(|it| it.count).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_range_of_the_user_counts() {
        let (text, names) = ("ada:100000:65536\n1001:300000:10\nbob:1:x\nadah:5:5\n", ["ada".into(), "1001".into()]);
        assert_eq!(most_ids(text, &names), 65536);
        assert_eq!(most_ids(text, &names[1..]), 10);
        assert_eq!(most_ids(text, &["eve".into(), "7".into()]), 0);
    }
}
