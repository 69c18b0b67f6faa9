//! Subordinate ids: the users of a container beside the person.

use std::path::Path;

use coracle_runtime::host::find_program::find_program;
use rustix::process::Uid;

use super::read;
use crate::ids::LEAST_SUBORDINATE;

/// With fewer the engine uses none.
const LEAST: u64 = LEAST_SUBORDINATE as u64;

/// Programs that map them, setuid root.
const HELPERS: [&str; 2] = ["newuidmap", "newgidmap"];

/// Who users inside a container can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdRanges {
    /// The engine runs as root and needs none.
    Root,
    /// So many ids are set aside for the person in one range: the fewer of users and groups.
    Subordinate(u64),
    /// No range has as many ids as images use: one user inside is the person, and there is no other.
    TooFew(u64),
    /// The files name none for the person: one user inside is the person, and there is no other.
    NoRange,
    /// Ranges are there, and the program that maps them is not.
    NoHelper(&'static str),
}

impl IdRanges {
    pub(super) fn inspect(machine: &Path, uid: Uid) -> Self {
        if uid.is_root() {
            return Self::Root;
        }
        let name = name_of(&read(machine, "etc/passwd"), uid);
        let ids = |file: &str| subordinate(&read(machine, file), name.as_deref(), uid);
        let ids = ids("etc/subuid").min(ids("etc/subgid"));
        let missing = HELPERS.into_iter().find(|it| find_program(it).is_err());
        match (ids, missing) {
            (0, _) => Self::NoRange,
            (..LEAST, _) => Self::TooFew(ids),
            (_, Some(helper)) => Self::NoHelper(helper),
            (ids, None) => Self::Subordinate(ids),
        }
    }
}

fn name_of(passwd: &str, uid: Uid) -> Option<String> {
    let uid = uid.as_raw().to_string();
    let mut lines = passwd.lines().map(|it| it.split(':').collect::<Vec<_>>());
    lines.find_map(|it| (it.get(2) == Some(&uid.as_str())).then(|| it[0].to_owned()))
}

/// The most ids of a line for that person, which begins with the name or the number.
fn subordinate(text: &str, name: Option<&str>, uid: Uid) -> u64 {
    let uid = uid.as_raw().to_string();
    let count = |line: &str| {
        let mut fields = line.split(':');
        let owner = fields.next()?;
        if owner != uid && Some(owner) != name {
            return None;
        }
        fields.nth(1)?.trim().parse::<u64>().ok()
    };
    text.lines().filter_map(count).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_name_and_by_number() {
        let (uid, text) = (Uid::from_raw(1001), "ada:100000:65536\n1001:300000:10\nbob:1:x\nadah:5:5\n");
        assert_eq!(subordinate(text, Some("ada"), uid), 65536);
        assert_eq!(subordinate(text, None, uid), 10);
        assert_eq!(subordinate(text, Some("eve"), Uid::from_raw(7)), 0);
        let passwd = "root:x:0:0::/root:/bin/sh\nada:x:1001:1001::/home/ada:/bin/sh\n";
        assert_eq!(name_of(passwd, uid).as_deref(), Some("ada"));
    }
}
