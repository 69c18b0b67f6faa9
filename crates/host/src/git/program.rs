//! Selects the git program to run.

use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use coracle_types::{Error, Result};

use crate::find_program::safe_programs;
use crate::hardened::{self, Side};
use crate::process::{Invocation, Stdin, run};

/// Timeout of `git --version`.
const DEADLINE: Duration = Duration::from_secs(10);

/// The version of a git.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitVersion {
    /// The first number.
    pub major: u32,
    /// The second one.
    pub minor: u32,
    /// The third one, 0 if missing.
    pub patch: u32,
}

impl fmt::Display for GitVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl GitVersion {
    /// Parses `git version 2.47.3`, possibly with a packager's suffix.
    fn parse(printed: &str) -> Option<Self> {
        let mut parts = printed.strip_prefix("git version ")?.split(|it: char| !it.is_ascii_digit());
        let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { major, minor, patch: parts.next().and_then(|it| it.parse().ok()).unwrap_or(0) })
    }
}

/// Returns the newest git on this host. `own` are directories of the user's `PATH` that no container can write to; a
/// git there is used only if it is newer than those in system directories, and if only root and the user can write to
/// it.
///
/// # Errors
/// [`Error::NotInstalled`].
pub async fn newest_git(own: &[PathBuf]) -> Result<PathBuf> {
    newest(usual_first(own)).await.ok_or_else(|| Error::NotInstalled { program: "git".to_owned() })
}

/// Lists the gits of this host without duplicates by real path, those of system directories first.
fn usual_first(own: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
    for program in safe_programs("git", &[]).chain(safe_programs("git", own)) {
        let Ok(real) = program.canonicalize() else { continue };
        if found.iter().all(|known| known.1 != real) {
            found.push((program, real));
        }
    }
    found.into_iter().map(|it| it.0).collect()
}

/// Returns the first of the newest ones. One without a version is used only if there is no other.
async fn newest(programs: Vec<PathBuf>) -> Option<PathBuf> {
    if programs.len() < 2 {
        return programs.into_iter().next();
    }
    let mut best: Option<(Option<GitVersion>, PathBuf)> = None;
    for program in programs {
        let version = known_version(&program).await;
        if best.as_ref().is_none_or(|known| known.0 < version) {
            best = Some((version, program));
        }
    }
    best.map(|it| it.1)
}

/// Device, inode, and the times of the last changes of content and inode in nanoseconds, which change with an upgrade.
type ProgramStamp = [i64; 6];

/// Returns the cached version of a program, or runs it.
async fn known_version(program: &Path) -> Option<GitVersion> {
    static KNOWN: LazyLock<Mutex<HashMap<ProgramStamp, Option<GitVersion>>>> = LazyLock::new(Mutex::default);
    let file = std::fs::metadata(program).ok()?;
    let [device, inode] = [file.dev(), file.ino()].map(u64::cast_signed);
    let stamp = [device, inode, file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&stamp).copied();
    if let Some(version) = known {
        return version;
    }
    let version = version_of(program).await.ok()?;
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(stamp, version);
    version
}

/// Returns the version that a git prints.
///
/// # Errors
/// If it cannot be started, or does not end.
pub async fn version_of(program: &Path) -> Result<Option<GitVersion>> {
    let env = hardened::environment(Side::Host).map(|(name, value)| (name.to_owned(), value.into())).collect();
    let asks = Invocation { env, ..Invocation::new(program, ["version"]) };
    let printed = run("git version", &asks, Stdin::Empty, (DEADLINE, 1000)).await?;
    Ok(GitVersion::parse(&printed.stdout.text()).filter(|_| printed.ok()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn versions_are_parsed() {
        for (printed, expected) in [
            ("git version 2.47.3\n", Some((2, 47, 3))),
            ("git version 2.39.5 (Apple Git-154)\n", Some((2, 39, 5))),
            ("git version 2.30.rc1", Some((2, 30, 0))),
            ("git 2.47", None),
            ("", None),
        ] {
            let expected = expected.map(|(major, minor, patch)| GitVersion { major, minor, patch });
            assert_eq!(GitVersion::parse(printed), expected, "{printed}");
        }
    }

    /// A directory whose parents only this user can write to.
    fn private_dir() -> tempfile::TempDir {
        tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")).unwrap()
    }

    #[tokio::test]
    async fn the_newest_git_runs_and_the_users_does_not_replace_an_equal_one() {
        let dir = private_dir();
        let git = |name: &str, version: &str| {
            let program = dir.path().join(name);
            std::fs::write(&program, format!("#!/bin/sh\necho {version}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            program
        };
        let [old, new] = [git("old", "git version 2.39.5"), git("new", "git version 2.100.0")];
        let [same, none] = [git("same", "git version 2.39.5"), git("none", "a wrapper without its program")];
        let all = [&none, &old, &same, &new].map(Clone::clone);
        assert_eq!(newest(all.to_vec()).await.as_ref(), Some(&new));
        assert_eq!(newest(all[..3].to_vec()).await.as_ref(), Some(&old));
        assert_eq!(newest(vec![none.clone()]).await, Some(none));
        assert_eq!(newest(Vec::new()).await, None);
    }

    #[tokio::test]
    async fn a_git_that_others_can_write_to_does_not_run_even_if_it_is_newer() {
        let dir = private_dir();
        let program = dir.path().join("git");
        std::fs::write(&program, "#!/bin/sh\necho git version 99.0.0\n").unwrap();
        let own = [dir.path().to_owned()];
        for (mode, runs) in [(0o755, true), (0o777, false)] {
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(newest_git(&own).await.unwrap() == program, runs, "{mode:o}");
        }
    }
}
