//! Subordinate ids of a user, and the set-user-id programs that map them into a namespace.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_host::find_program::find_program;
use coracle_host::process::{self, Invocation, Stdin};
use coracle_types::Error;
use rustix::process::Pid;

use super::map::{IdMap, IdRange};

/// `newuidmap` and `newgidmap`.
#[derive(Clone, Debug)]
pub(crate) struct MapPrograms {
    uids: PathBuf,
    gids: PathBuf,
}

/// The subordinate ids of a user, and the programs that map them.
#[derive(Debug)]
pub(super) struct Subordinate {
    pub(super) uids: IdRange,
    pub(super) gids: IdRange,
    pub(super) programs: MapPrograms,
}

/// Why a user has no subordinate ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SubordinateError {
    #[error("`{0}` is not installed")]
    NoProgram(&'static str),
    #[error("`{0}` has no line for this user")]
    NoRange(&'static str),
}

/// The least number of ids: with fewer, images with their usual users could not be unpacked.
pub(crate) const LEAST: u32 = 1 << 16;

const DEADLINE: Duration = Duration::from_secs(10);

pub(super) fn ranges_of_user(uid: u32) -> Result<Subordinate, SubordinateError> {
    let program = |name: &'static str| find_program(name).map_err(|_| SubordinateError::NoProgram(name));
    let programs = MapPrograms { uids: program("newuidmap")?, gids: program("newgidmap")? };
    let names = names_of(uid, &std::fs::read_to_string("/etc/passwd").unwrap_or_default());
    let range = |path: &'static str| {
        let text = std::fs::read_to_string(Path::new(path)).unwrap_or_default();
        range_in(&text, &names).ok_or(SubordinateError::NoRange(path))
    };
    Ok(Subordinate { uids: range("/etc/subuid")?, gids: range("/etc/subgid")?, programs })
}

/// How `/etc/subuid` and `/etc/subgid` name a user: by name or number.
pub(crate) fn names_of(uid: u32, passwd: &str) -> Vec<String> {
    let number = uid.to_string();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    name.into_iter().chain([number]).collect()
}

/// The ranges of the user with these names.
pub(crate) fn ranges<'a>(text: &'a str, names: &'a [String]) -> impl Iterator<Item = IdRange> + use<'a> {
    text.lines().filter_map(|line| {
        let mut fields = line.trim().split(':');
        let name = fields.next()?;
        let (host, count) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        names.iter().any(|it| it == name).then_some(IdRange { inside: 0, host, count })
    })
}

/// The first range that is large enough.
fn range_in(text: &str, names: &[String]) -> Option<IdRange> {
    ranges(text, names).find(|it| it.count >= LEAST)
}

impl MapPrograms {
    /// Writes both maps of a process. Blocks, on a thread for blocking work.
    pub(super) fn write(&self, pid: Pid, map: &IdMap) -> io::Result<()> {
        let invocation = |program: &Path, ranges: &[IdRange]| {
            let numbers = ranges.iter().flat_map(|it| [it.inside, it.host, it.count]);
            let words = [pid.as_raw_nonzero().get().unsigned_abs()].into_iter().chain(numbers);
            Invocation { env: BTreeMap::new(), dir: None, ..Invocation::new(program, words.map(|it| it.to_string())) }
        };
        let run = async |name, it: Invocation| {
            let ended = process::run(name, &it, Stdin::Empty, (DEADLINE, 4096)).await?;
            if ended.ok() { Ok(()) } else { Err(failed(name, &ended.stderr.text())) }
        };
        // On a separate thread with its own runtime: the caller may be a thread of a runtime, which must not block on
        // one.
        let both = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let ended = runtime.block_on(async {
                tokio::try_join!(
                    run("newuidmap", invocation(&self.uids, &map.uids)),
                    run("newgidmap", invocation(&self.gids, &map.gids))
                )
            });
            ended.map(drop).map_err(io::Error::other)
        };
        std::thread::scope(|scope| scope.spawn(both).join())
            .unwrap_or_else(|_| Err(io::Error::other("the thread that maps ids panicked")))
    }
}

fn failed(program: &'static str, output: &str) -> Error {
    Error::Host {
        what: format!("`{program}` failed: {}", output.trim()),
        source: io::ErrorKind::PermissionDenied.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_range_is_found_by_name_or_number() {
        let names = names_of(1000, "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n");
        assert_eq!(names, ["ann", "1000"]);
        let range = |text: &str| range_in(text, &names).map(|it| it.host);
        assert_eq!(range("bob:100000:65536\nann:165536:65536\n"), Some(165_536));
        assert_eq!(range("1000:300000:65536\n"), Some(300_000));
        // A range that is too small is skipped.
        assert_eq!(range("ann:1:10\nann:500000:65536"), Some(500_000));
        assert_eq!(range("annie:1:70000\n"), None);
    }
}
