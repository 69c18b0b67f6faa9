//! A sandbox's files in a host directory, where the user's editor and git work on them too.
//!
//! Files that git would execute are written here before the container exists, and are mounted read-only over themselves
//! in it. Coracle's git never opens the repository on the host.
//!
//! **Invariant:** a directory that Coracle did not create is neither used nor removed.
//! **Invariant:** every operation in it and in its parent directory uses descriptors. A container can write to the
//! directory, and the owner of the parent could replace the directory while root works on it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_host::fs::HostPath;
use coracle_host::state_file::{lock, read, remove, write};
use coracle_host::tree::{DirHandle, Node};
use coracle_types::Ids;
use coracle_types::failure::{Code, Failure, Result};
use serde::{Deserialize, Serialize};

/// Paths below the directory that are mounted read-only over themselves in the container.
pub const READ_ONLY: [&str; 3] = ["repo.git/config", "repo.git/hooks", "repo.git/info"];

/// Directories of an empty repository, and of the worktrees.
const DIRECTORIES: [&str; 9] = [
    "repo.git",
    "repo.git/hooks",
    "repo.git/info",
    "repo.git/objects",
    "repo.git/objects/info",
    "repo.git/objects/pack",
    "repo.git/refs",
    "repo.git/refs/heads",
    "worktrees",
];

/// The directory of leftovers that were in the way of a worktree.
pub(crate) const ORPHANS: &str = "worktrees/.orphans";

/// Time to wait for a concurrent call.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// A host directory that is a sandbox's `/workspace`.
#[derive(Clone, Debug)]
pub struct SharedDir {
    place: SharedDirRecord,
    /// The directory with the sandbox's records.
    records: PathBuf,
}

/// The record of a directory until it is removed, independent of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SharedDirRecord {
    dir: PathBuf,
    agent: Ids,
    /// Device and inode. A directory of that name with other numbers is not Coracle's.
    identity: Option<(u64, u64)>,
}

impl SharedDir {
    /// Returns the directory of a sandbox. `records` is the directory of the sandbox's records. `None` if the files are
    /// in a volume.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn recorded(records: &Path) -> Result<Option<Self>> {
        Ok(read(&file(records))?.map(|place| Self { place, records: records.to_owned() }))
    }

    /// Plans a directory `name` below `root` for a sandbox without one; [`prepare`](Self::prepare) creates it. `user`
    /// is the calling user; if that is root, files belong to the owner of `root` instead. `worker` cannot own files.
    ///
    /// # Errors
    /// `policy_denied` if agents would have to run as root or as the worker.
    pub fn below(root: &Path, name: &str, records: &Path, user: Ids, worker: Ids) -> Result<Self> {
        let root = HostPath::open(root).map_err(|err| Failure::new(Code::InvalidInput, err.to_string()))?;
        let agent = if user.is_root() { owner(root.real())? } else { user };
        if agent.is_root() || agent.uid == worker.uid {
            let message = format!(
                "`{}` belongs to user {}, and agents cannot run as that user.",
                root.real().display(),
                agent.uid
            );
            let failure = Failure::new(Code::PolicyDenied, message).detail("rule", "worktree.shared_owner");
            let failure = failure.detail("setting", "sandbox.worktree.shared_root");
            return Err(failure.hint("give the directory to the user who works there (`chown`)"));
        }
        let place = SharedDirRecord { dir: root.real().join(name), agent, identity: None };
        Ok(Self { place, records: records.to_owned() })
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.place.dir
    }

    /// The owner of its files, who runs every command of the sandbox.
    #[must_use]
    pub fn agent(&self) -> Ids {
        self.place.agent
    }

    /// Creates missing parts. The result identifies the directories: if it has changed, an older container has mounts of
    /// removed directories.
    ///
    /// # Errors
    /// `policy_denied` for a directory that is not Coracle's; `repo_corrupt` if a part was replaced.
    pub async fn prepare(&self) -> Result<String> {
        if let Some(good) = self.good()? {
            return Ok(good);
        }
        let _alone = lock(&self.records.join("shared.lock"), LOCK_TIMEOUT).await?;
        if self.held()?.is_none() {
            self.above().and_then(|(above, name)| self.create(&above, name)).map_err(|err| self.failed(&err))?;
        }
        let dir = self.held()?.ok_or_else(|| self.not_ours())?;
        self.restore_directories(&dir).map_err(|err| self.failed(&err))?;
        self.good()?.ok_or_else(|| self.odd())
    }

    /// Returns the identities of everything that is mounted, or `None` if part of it is missing.
    fn good(&self) -> Result<Option<String>> {
        let Some(dir) = self.held()? else { return Ok(None) };
        let mut identities = format!("{:?}", dir.identity().map_err(Failure::internal)?);
        for name in READ_ONLY.into_iter().chain(["repo.git"]) {
            let Some((above, last)) = below(&dir, name).ok().flatten() else { return Ok(None) };
            let fits = match above.entry_kind(last).map_err(Failure::internal)? {
                Some(Node::Dir) => name != READ_ONLY[0],
                Some(Node::File) => name == READ_ONLY[0],
                Some(_) => false,
                None => return Ok(None),
            };
            if !fits {
                return Err(self.odd());
            }
            // Not its change time, since its content may change.
            let birth = above.birth(last).map_err(Failure::internal)?;
            identities.push_str(&format!(" {birth:?}"));
        }
        Ok(Some(identities))
    }

    /// Opens the directory, if it is the one that Coracle created.
    fn held(&self) -> Result<Option<DirHandle>> {
        let known: Option<SharedDirRecord> = read(&file(&self.records))?;
        let held = match HostPath::open(&self.place.dir) {
            Ok(held) => held,
            Err(coracle_host::fs::HostPathError::NotFound(_)) => return Ok(None),
            Err(err) => return Err(Failure::internal(err)),
        };
        let tree = DirHandle::from_path(&held).map_err(Failure::internal)?;
        let identity = tree.identity().map_err(Failure::internal)?;
        let ours = held.real() == self.place.dir && known.and_then(|it| it.identity) == Some(identity);
        if ours { Ok(Some(tree)) } else { Err(self.not_ours()) }
    }

    /// Opens the parent directory, and returns the directory's name in it.
    fn above(&self) -> io::Result<(DirHandle, &OsStr)> {
        let (Some(above), Some(name)) = (self.place.dir.parent(), self.place.dir.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok((open(above)?, name))
    }

    /// Creates the directory under a temporary name first, so that only a complete and recorded directory gets its name.
    fn create(&self, above: &DirHandle, name: &OsStr) -> io::Result<()> {
        let mut temp = OsString::from(".coracle-");
        temp.push(name);
        match above.remove_all(&temp) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        let tree = above.create_dir(&temp)?;
        // If Coracle runs as root, the agent has to be made the owner.
        tree.set_owner(self.place.agent)?;
        self.restore_directories(&tree)?;
        let place = SharedDirRecord { identity: Some(tree.identity()?), ..self.place.clone() };
        write(&file(&self.records), &place).map_err(io::Error::other)?;
        above.rename(&temp, name)
    }

    /// Creates missing directories, for example after they were removed.
    fn restore_directories(&self, dir: &DirHandle) -> io::Result<()> {
        let agent = self.place.agent;
        for name in DIRECTORIES {
            let (above, last) = below(dir, name)?.ok_or(io::ErrorKind::NotFound)?;
            if above.entry_kind(last)?.is_none() {
                above.create_dir(last)?.set_owner(agent)?;
            }
        }
        for (name, content) in [("HEAD", "ref: refs/heads/main\n".to_owned()), ("config", config_of(None))] {
            let repo = dir.enter("repo.git".as_ref())?;
            if repo.entry_kind(name.as_ref())?.is_none() {
                repo.replace_as(name.as_ref(), (0o644, Some(agent)), &mut content.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Removes Coracle's files: the repository and empty directories. The container must be removed and its work saved. The
    /// result lists what was not removed because Coracle did not create it.
    ///
    /// # Errors
    /// `teardown_incomplete`; the next call continues.
    pub async fn remove(&self) -> Result<Vec<PathBuf>> {
        let _alone = lock(&self.records.join("shared.lock"), LOCK_TIMEOUT).await?;
        let dir = &self.place.dir;
        let Some(held) = self.held().or_else(|err| if is_policy(&err) { Ok(None) } else { Err(err) })? else {
            self.forget()?;
            return Ok(if dir.exists() { vec![dir.clone()] } else { Vec::new() });
        };
        Self::clear(&held).map_err(|err| {
            Failure::new(Code::TeardownIncomplete, format!("`{}` could not be removed whole: {err}.", dir.display()))
        })?;
        let left = held.entries().map_err(Failure::internal)?;
        if left.is_empty() && self.remove_empty(&held).is_ok() {
            self.forget()?;
        }
        Ok(left.into_iter().map(|(name, _)| dir.join(name)).collect())
    }

    /// Removes the directory itself, if it is empty and still has its name.
    fn remove_empty(&self, held: &DirHandle) -> io::Result<()> {
        let (above, name) = self.above()?;
        if above.enter(name)?.identity()? != held.identity()? {
            return Err(io::ErrorKind::NotFound.into());
        }
        above.remove_dir(name)
    }

    fn clear(held: &DirHandle) -> io::Result<()> {
        for name in ["repo.git", ORPHANS] {
            // Skips what is missing, and what Coracle did not create, such as a path through a link.
            let Some((above, last)) = below(held, name).ok().flatten() else { continue };
            if above.entry_kind(last)? == Some(Node::Dir) {
                above.remove_all(last)?;
            }
        }
        match held.remove_dir("worktrees".as_ref()) {
            Err(err) if stays(err.kind()) => Ok(()),
            done => done,
        }
    }

    fn forget(&self) -> Result<()> {
        remove(&file(&self.records))
    }

    fn not_ours(&self) -> Failure {
        let message = format!("`{}` exists and was not created for this sandbox.", self.place.dir.display());
        Failure::new(Code::PolicyDenied, message).detail("rule", "worktree.shared_taken").hint("move it away")
    }

    fn odd(&self) -> Failure {
        let message = format!("The repository in `{}` was changed.", self.place.dir.display());
        Failure::new(Code::RepoCorrupt, message).hint("inspect it, and move it away")
    }

    fn failed(&self, err: &io::Error) -> Failure {
        Failure::new(Code::SandboxUnavailable, format!("`{}` cannot be created: {err}.", self.place.dir.display()))
    }
}

/// Writes the origin into the configuration of a repository, which is read-only inside. In place, since the container
/// has this very file mounted. A configuration that was changed by others is not touched.
pub(crate) fn write_origin(dir: &Path, url: &str) -> Result<()> {
    let written = || -> io::Result<()> {
        let repo = open(dir)?.enter("repo.git".as_ref())?;
        repo.write_over("config".as_ref(), config_of(None).as_bytes(), config_of(Some(url)).as_bytes()).map(drop)
    };
    written().map_err(|err| Failure::internal(format!("the repository's configuration cannot be written: {err}")))
}

/// Renders the configuration of a bare repository in git's format.
pub(crate) fn config_of(url: Option<&str>) -> String {
    let core = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n";
    // Otherwise git would write server info into `repo.git/info`, which is read-only inside.
    let pack = "[repack]\n\tupdateServerInfo = false\n";
    let Some(url) = url else { return format!("{core}{pack}") };
    let url = url.replace('\\', r"\\").replace('"', "\\\"");
    let origin = format!("[remote \"origin\"]\n\turl = \"{url}\"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n");
    format!("{core}{pack}{origin}")
}

fn file(records: &Path) -> PathBuf {
    records.join("shared.json")
}

fn owner(root: &Path) -> Result<Ids> {
    let meta = root.metadata().map_err(Failure::internal)?;
    Ok(Ids { uid: meta.uid(), gid: meta.gid() })
}

/// Opens a directory whose path contains no link.
fn open(dir: &Path) -> io::Result<DirHandle> {
    let held = HostPath::open(dir).map_err(io::Error::other)?;
    if held.real() == dir { DirHandle::from_path(&held) } else { Err(io::Error::other("a link is in its place")) }
}

/// Opens the parent of a path below a directory, and returns the last part.
fn below<'a>(dir: &DirHandle, name: &'a str) -> io::Result<Option<(DirHandle, &'a OsStr)>> {
    let (above, last) = name.rsplit_once('/').unwrap_or(("", name));
    match dir.descend(above.split('/').filter(|it| !it.is_empty()).map(OsStr::new)) {
        Ok(above) => Ok(Some((above, OsStr::new(last)))),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
    }
}

/// Whether an error means that a directory is missing, not empty, or not a directory: it is then not changed.
fn stays(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory)
}

fn is_policy(err: &Failure) -> bool {
    err.code == Code::PolicyDenied
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "0123456789abcdef";
    const WORKER: Ids = Ids { uid: 10001, gid: 10001 };

    struct Bench {
        root: tempfile::TempDir,
        state: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            Self { root: tempfile::tempdir().unwrap(), state: tempfile::tempdir().unwrap() }
        }

        fn find(&self, root: Option<&Path>, user: Ids) -> Result<Option<SharedDir>> {
            match (SharedDir::recorded(self.state.path())?, root) {
                (None, Some(root)) => SharedDir::below(root, NAME, self.state.path(), user, WORKER).map(Some),
                (found, _) => Ok(found),
            }
        }

        /// Owned by the user who runs the tests, or by another one if that is root.
        fn shared(&self) -> SharedDir {
            let me = owner(self.state.path()).unwrap();
            if me.is_root() {
                std::os::unix::fs::chown(self.root.path(), Some(1234), Some(1234)).unwrap();
            }
            self.find(Some(self.root.path()), me).unwrap().unwrap()
        }
    }

    #[tokio::test]
    async fn it_is_created_once_restored_and_removed_completely() {
        let bench = Bench::new();
        let shared = bench.shared();
        let first = shared.prepare().await.unwrap();
        assert_eq!(shared.prepare().await.unwrap(), first);
        let config = shared.path().join("repo.git/config");
        assert_eq!(std::fs::read_to_string(&config).unwrap(), config_of(None));
        assert_eq!(owner(&shared.path().join("repo.git/hooks")).unwrap(), shared.agent());
        write_origin(shared.path(), "https://e.com/r").unwrap();
        assert_eq!(shared.prepare().await.unwrap(), first, "the container has mounted this file");
        assert_eq!(std::fs::read_to_string(&config).unwrap(), config_of(Some("https://e.com/r")));
        std::fs::remove_dir(shared.path().join("repo.git/hooks")).unwrap();
        assert_ne!(shared.prepare().await.unwrap(), first, "another directory is another mount");
        // A changed configuration does not move it.
        let elsewhere = tempfile::tempdir().unwrap();
        let again = bench.find(Some(elsewhere.path()), shared.agent()).unwrap().unwrap();
        assert_eq!(again.path(), shared.path());
        assert_eq!(bench.find(None, shared.agent()).unwrap().unwrap().path(), shared.path());
        assert_eq!(shared.remove().await.unwrap(), [""; 0].map(PathBuf::from));
        assert_eq!(std::fs::read_dir(bench.root.path()).unwrap().count(), 0);
        assert!(bench.find(None, shared.agent()).unwrap().is_none());
    }

    #[tokio::test]
    async fn a_directory_of_others_is_neither_used_nor_removed() {
        let bench = Bench::new();
        let shared = bench.shared();
        std::fs::create_dir(shared.path()).unwrap();
        let refused = shared.prepare().await.unwrap_err();
        assert_eq!((refused.code, &refused.details["rule"]), (Code::PolicyDenied, &"worktree.shared_taken".into()));
        std::fs::remove_dir(shared.path()).unwrap();
        shared.prepare().await.unwrap();
        let mine = shared.path().join("worktrees/mine");
        std::fs::create_dir_all(&mine).unwrap();
        std::fs::create_dir_all(shared.path().join(ORPHANS).join("a")).unwrap();
        assert_eq!(shared.remove().await.unwrap(), [shared.path().join("worktrees")]);
        assert!(mine.exists() && !shared.path().join("repo.git").exists() && !shared.path().join(ORPHANS).exists());
        // It is still Coracle's, and used again.
        shared.prepare().await.unwrap();
        std::fs::rename(shared.path(), bench.root.path().join("away")).unwrap();
        std::fs::create_dir(shared.path()).unwrap();
        assert_eq!(shared.remove().await.unwrap(), [shared.path()]);
        assert!(bench.root.path().join("away/repo.git").exists());
    }

    #[tokio::test]
    async fn a_link_that_replaced_a_directory_is_not_followed() {
        let bench = Bench::new();
        let (shared, other) = (bench.shared(), tempfile::tempdir().unwrap());
        shared.prepare().await.unwrap();
        std::fs::write(other.path().join("file"), "").unwrap();
        let repo = shared.path().join("repo.git");
        std::fs::rename(&repo, shared.path().join("was")).unwrap();
        std::os::unix::fs::symlink(other.path(), &repo).unwrap();
        assert!(shared.prepare().await.is_err());
        assert!(write_origin(shared.path(), "https://e.com/r").is_err());
        shared.remove().await.unwrap();
        assert!(other.path().join("file").exists());
    }

    /// Replaces a directory as a program inside or its owner could between a check and its use.
    fn swap(dir: &Path, away: &Path, other: &Path) {
        std::fs::rename(dir, away).unwrap();
        std::os::unix::fs::symlink(other, dir).unwrap();
    }

    #[tokio::test]
    async fn removing_a_directory_that_is_replaced_by_a_link_removes_nothing_else() {
        let bench = Bench::new();
        let (shared, other) = (bench.shared(), tempfile::tempdir().unwrap());
        shared.prepare().await.unwrap();
        for name in ["repo.git", ORPHANS] {
            std::fs::create_dir_all(other.path().join(name).join("file")).unwrap();
        }
        let (held, away) = (shared.held().unwrap().unwrap(), bench.root.path().join("away"));
        swap(shared.path(), &away, other.path());
        SharedDir::clear(&held).unwrap();
        assert!(shared.remove_empty(&held).is_err(), "the name was replaced");
        assert!(other.path().join("repo.git/file").exists() && other.path().join(ORPHANS).join("file").exists());
        assert!(!away.join("repo.git").exists());
        // The same for a directory in it.
        let bench = Bench::new();
        let shared = bench.shared();
        shared.prepare().await.unwrap();
        swap(&shared.path().join("worktrees"), &shared.path().join("was"), &other.path().join("worktrees"));
        shared.remove().await.unwrap();
        assert!(other.path().join(ORPHANS).join("file").exists());
    }

    #[tokio::test]
    async fn creating_in_a_parent_that_is_replaced_by_a_link_changes_nothing_elsewhere() {
        let bench = Bench::new();
        let (shared, other) = (bench.shared(), tempfile::tempdir().unwrap());
        let (root, away) = (bench.root.path(), bench.state.path().join("away"));
        let theirs = other.path().join(format!(".coracle-{NAME}"));
        std::fs::create_dir(&theirs).unwrap();
        std::fs::write(theirs.join("file"), "").unwrap();
        let before = owner(&theirs).unwrap();
        let (above, name) = shared.above().unwrap();
        swap(root, &away, other.path());
        shared.create(&above, name).unwrap();
        assert!(away.join(name).join("repo.git/config").exists());
        assert_eq!((owner(&theirs).unwrap(), theirs.join("file").exists()), (before, true));
        assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1);
        // From then on the replacement is noticed before anything is done.
        assert!(shared.prepare().await.is_err() && shared.above().is_err());
        std::fs::remove_file(root).unwrap();
        std::fs::rename(&away, root).unwrap();
        shared.prepare().await.unwrap();
    }

    #[test]
    fn no_agent_works_as_root_or_as_the_worker() {
        let bench = Bench::new();
        let of = |user| bench.find(Some(bench.root.path()), user);
        assert_eq!(of(WORKER).unwrap_err().details["rule"], "worktree.shared_owner");
        if owner(bench.root.path()).unwrap().is_root() {
            assert_eq!(of(Ids::ROOT).unwrap_err().details["rule"], "worktree.shared_owner");
        }
        assert_eq!(of(Ids { uid: 7, gid: 8 }).unwrap().unwrap().agent(), Ids { uid: 7, gid: 8 });
    }
}
