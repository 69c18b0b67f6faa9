//! Id mappings of a user namespace.

use std::fmt::Write as _;
use std::io;

use coracle_types::ContainerId;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

/// One range of ids, as in `/proc/PID/uid_map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdRange {
    /// First id inside.
    pub(crate) inside: u32,
    /// First id on the host.
    pub(crate) host: u32,
    /// Number of ids.
    pub(crate) count: u32,
}

/// The mapping of a user namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdMap {
    pub(crate) uids: Vec<IdRange>,
    pub(crate) gids: Vec<IdRange>,
}

/// Ids of one container.
const IDS: u32 = 1 << 16;
/// The first id of containers. Their ranges are those of `systemd-nspawn`, which end far below the ids that are negative
/// as signed numbers.
const FIRST: u32 = 1 << 19;
const RANGES: u32 = (1_879_048_192 - FIRST) / IDS;

impl IdMap {
    /// A range derived from a container's id. Two containers get the same range with a probability of 1 in 28,000.
    pub(crate) fn of_range_for(id: &ContainerId) -> Self {
        let digits = id.as_str().get(..8).unwrap_or("0");
        let number = u32::from_str_radix(digits, 16).unwrap_or(0) % RANGES;
        Self::same(vec![IdRange { inside: 0, host: FIRST + number * IDS, count: IDS }])
    }

    /// The user has the same ids inside and outside; all other ids inside are subordinate ones.
    pub(crate) fn keeping((uid, gid): (u32, u32), uids: IdRange, gids: IdRange) -> Self {
        Self { uids: around(uid, uids), gids: around(gid, gids) }
    }

    /// Root inside is the user outside. No other user exists inside.
    pub(crate) fn single(uid: u32, gid: u32) -> Self {
        let alone = |id| vec![IdRange { inside: 0, host: id, count: 1 }];
        Self { uids: alone(uid), gids: alone(gid) }
    }

    fn same(ranges: Vec<IdRange>) -> Self {
        Self { uids: ranges.clone(), gids: ranges }
    }

    /// The id on the host of a user inside.
    #[cfg(test)]
    fn host_uid(&self, inside: u32) -> Option<u32> {
        let holds = |it: &&IdRange| (it.inside..it.inside + it.count).contains(&inside);
        self.uids.iter().find(holds).map(|it| it.host + (inside - it.inside))
    }

    /// The user and group ids that root inside has on the host.
    pub(crate) fn host_root(&self) -> Option<(u32, u32)> {
        let root = |ranges: &[IdRange]| ranges.iter().find(|it| it.inside == 0).map(|it| it.host);
        Some((root(&self.uids)?, root(&self.gids)?))
    }

    /// The highest group id inside.
    pub(crate) fn last_group(&self) -> u32 {
        self.gids.iter().map(|it| it.inside + (it.count - 1)).max().unwrap_or(0)
    }

    /// Writes both maps of a process. Only root may write maps of several ranges.
    pub(crate) fn write(&self, pid: Pid) -> io::Result<()> {
        let pid = pid.as_raw_nonzero();
        std::fs::write(format!("/proc/{pid}/uid_map"), lines(&self.uids))?;
        std::fs::write(format!("/proc/{pid}/gid_map"), lines(&self.gids))
    }
}

/// `fixed` maps to itself; the ids below and above come from the subordinate range.
fn around(fixed: u32, subordinate: IdRange) -> Vec<IdRange> {
    let below = fixed.min(subordinate.count);
    let above = subordinate.count - below;
    let ranges = [
        IdRange { inside: 0, host: subordinate.host, count: below },
        IdRange { inside: fixed, host: fixed, count: 1 },
        IdRange { inside: fixed.saturating_add(1), host: subordinate.host + below, count: above },
    ];
    ranges.into_iter().filter(|it| it.count > 0).collect()
}

fn lines(ranges: &[IdRange]) -> String {
    ranges.iter().fold(String::new(), |mut text, IdRange { inside, host, count }| {
        let _ = writeln!(text, "{inside} {host} {count}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_keeps_its_id_and_others_are_subordinate() {
        let range = IdRange { inside: 0, host: 100_000, count: 65_536 };
        let map = IdMap::keeping((1000, 100), range, range);
        assert_eq!(lines(&map.uids), "0 100000 1000\n1000 1000 1\n1001 101000 64536\n");
        assert_eq!(map.host_uid(0), Some(100_000));
        assert_eq!(map.host_uid(1000), Some(1000));
        assert_eq!(map.host_uid(1001), Some(101_000));
        assert_eq!(map.host_uid(70_000), None);
        // An id above the range, as of a directory service.
        let map = IdMap::keeping((900_000, 5), range, range);
        assert_eq!(lines(&map.uids), "0 100000 65536\n900000 900000 1\n");
    }

    #[test]
    fn a_containers_range_lies_in_the_ranges_of_containers() {
        for digits in ["0", "f", "7"] {
            let id = ContainerId::parse(digits.repeat(64)).unwrap();
            let range = IdMap::of_range_for(&id).uids[0];
            assert!(range.host >= FIRST && range.host.is_multiple_of(IDS) && range.host < 1_879_048_192, "{range:?}");
        }
    }
}
