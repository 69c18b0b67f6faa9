//! Directories whose git repository is elsewhere: linked worktrees, submodules, and links in place of `.git`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use coracle_context::context::Context;
use coracle_context::warning::Warning;
use coracle_host::fs::HostPath;
use coracle_provision::ReportItem;
use coracle_runtime::{Access, Mount, shell_word};
use coracle_types::ContainerPath;

use super::host_paths::mountable;

/// Maximum size of a file that names a directory.
const MAX_POINTER: u64 = 4096;

/// A directory that is mounted or copied without its repository.
#[derive(Clone, Debug)]
pub struct GitOutside {
    /// The directory in the container.
    at: ContainerPath,
    /// The directory on the host.
    dir: PathBuf,
    /// The repository's own directory on the host.
    repository: PathBuf,
    /// Why git does not find it in the container. None if it is mounted read-only.
    missing: Option<AbsenceReason>,
}

/// Why a repository is not mounted.
#[derive(Clone, Debug)]
enum AbsenceReason {
    /// It is in no directory that may be mounted.
    Refused(String),
    /// For another reason.
    Other(String),
}

/// The repository that `.git` of a directory refers to.
struct Pointer {
    repository: PathBuf,
    /// For a linked worktree: the path at which git in the container reads it.
    read_at: Option<ContainerPath>,
}

/// Finds repositories outside of the mounts. That of a linked worktree is mounted, if allowed, at the path where git
/// inside reads it. The mount is read-only, so code inside cannot choose what git on the host runs.
pub(super) fn add_repositories(mounts: &mut Vec<Mount>, cx: &Context) -> Vec<GitOutside> {
    let mut found = Vec::new();
    for bind in mounts.clone() {
        let Some(pointer) = Pointer::read(bind.host.real()) else { continue };
        let outside = GitOutside::new(&bind.at, bind.host.real(), pointer.repository.clone());
        if mounts.iter().any(|it| pointer.repository.starts_with(it.host.real()) && it.at.as_str() == it.host.real()) {
            continue;
        }
        found.push(match repository_mount(&pointer, mounts, cx) {
            Ok(mount) => {
                mounts.push(mount);
                outside
            }
            Err(why) => GitOutside { missing: Some(why), ..outside },
        });
    }
    found
}

/// The repository outside of a directory whose files are copied.
pub(super) fn of_copy(dir: &Path, at: &ContainerPath) -> Option<GitOutside> {
    let pointer = Pointer::read(dir)?;
    let missing = Some(AbsenceReason::Other("only files of the working directory are copied in".to_owned()));
    Some(GitOutside { missing, ..GitOutside::new(at, dir, pointer.repository) })
}

fn repository_mount(pointer: &Pointer, mounts: &[Mount], cx: &Context) -> Result<Mount, AbsenceReason> {
    let Some(at) = &pointer.read_at else {
        return Err(AbsenceReason::Other("only repositories of linked worktrees are mounted by themselves".to_owned()));
    };
    let host =
        mountable(&pointer.repository, cx).map_err(|failure| AbsenceReason::Refused(failure.into_inner().message))?;
    let taken = |mount: &Mount| at.is_beneath(mount.at.as_str()) || mount.at.is_beneath(at.as_str());
    if super::target("mounts", at).is_err() || mounts.iter().any(taken) {
        return Err(AbsenceReason::Other(format!("`{at}` is not free inside")));
    }
    // Code in that other container could replace it while it is mounted.
    let written = cx.store().and_then(|store| store.is_written_inside(host.real()).map_err(Into::into));
    match written {
        Ok(false) => Ok(Mount { host, at: at.clone(), access: Access::ReadOnly }),
        Ok(true) => Err(AbsenceReason::Other("another container can write it".to_owned())),
        Err(failure) => Err(AbsenceReason::Other(failure.to_string())),
    }
}

impl Pointer {
    /// Reads `.git`; none for a directory that contains its repository, or has none.
    fn read(dir: &Path) -> Option<Self> {
        let dot_git = dir.join(".git");
        let kind = dot_git.symlink_metadata().ok()?.file_type();
        let outside = |repository: &PathBuf| !repository.starts_with(dir);
        if kind.is_symlink() {
            let repository = dot_git.canonicalize().ok().filter(outside)?;
            return Some(Self { repository, read_at: None });
        }
        let text = kind.is_file().then(|| small_file(&dot_git))??;
        let written = Path::new(text.strip_prefix("gitdir: ")?.trim_end());
        let git_dir = dir.join(written).canonicalize().ok().filter(outside)?;
        let common = small_file(&git_dir.join("commondir"));
        let repository = common.as_ref().and_then(|common| git_dir.join(common.trim_end()).canonicalize().ok());
        let Some(repository) = repository else {
            return Some(Self { repository: git_dir, read_at: None });
        };
        // Git inside walks up from `worktrees/NAME` along the literal path. With a link or `..`, that path may mean
        // another directory inside, where a mount would cover files of the image.
        let above = written.ancestors().nth(2).filter(|above| *above == repository).and_then(Path::to_str);
        // Code in a container may have written `.git`, but not the file in the repository that names this worktree.
        let back = small_file(&git_dir.join("gitdir")).unwrap_or_default();
        let above = above.filter(|_| git_dir.join(back.trim_end()).canonicalize().is_ok_and(|found| found == dot_git));
        let read_at = above.and_then(|path| ContainerPath::parse(path).ok());
        Some(Self { repository, read_at })
    }
}

fn small_file(path: &Path) -> Option<String> {
    let mut text = String::new();
    HostPath::open(path).ok()?.file().ok()?.take(MAX_POINTER).read_to_string(&mut text).ok()?;
    Some(text)
}

impl GitOutside {
    fn new(at: &ContainerPath, dir: &Path, repository: PathBuf) -> Self {
        Self { at: at.clone(), dir: dir.to_owned(), repository, missing: None }
    }

    /// How to use git in spite of that.
    fn hint(&self) -> String {
        let (repository, dir) = (self.repository.display(), shell_word(&self.dir.display().to_string()));
        let clone = format!("`coracle create --repo {dir}` gives it a clone");
        match &self.missing {
            None => format!("commit on the host, or in a clone: {clone}"),
            Some(AbsenceReason::Other(_)) => clone,
            Some(AbsenceReason::Refused(_)) => {
                format!(
                    "{clone}; with `{repository}` in `workspace.allow_roots`, a linked worktree can read its history"
                )
            }
        }
    }

    fn sentence(&self) -> String {
        let (at, repository) = (&self.at, self.repository.display());
        match &self.missing {
            None => format!("git reads `{repository}`, which is mounted read-only: inside it commits nothing"),
            Some(AbsenceReason::Refused(why) | AbsenceReason::Other(why)) => {
                format!("git does not work in `{at}`: its repository `{repository}` is not there: {why}")
            }
        }
    }

    /// An item of the step `workspace`.
    pub fn report_item(&self) -> ReportItem {
        let item = match self.missing {
            None => ReportItem::success(self.sentence()),
            Some(_) => ReportItem::skipped(self.sentence()),
        };
        item.with("hint", self.hint())
    }

    /// A warning if git does not work.
    pub fn warning(&self) -> Option<Warning> {
        self.missing.as_ref()?;
        Some(Warning::new("git_outside", format!("{}; {}", self.sentence(), self.hint())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_mounted_only_at_its_own_path() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let admin = root.join("main/.git/worktrees/w");
        std::fs::create_dir_all(&admin).unwrap();
        std::fs::create_dir(root.join("w")).unwrap();
        std::fs::write(admin.join("commondir"), "../..\n").unwrap();
        std::fs::write(admin.join("gitdir"), format!("{}\n", root.join("w/.git").display())).unwrap();
        std::os::unix::fs::symlink(root.join("main"), root.join("link")).unwrap();
        let read = |pointer: &Path| {
            std::fs::write(root.join("w/.git"), format!("gitdir: {}\n", pointer.display())).unwrap();
            Pointer::read(&root.join("w")).map(|it| (it.repository, it.read_at.map(|at| at.to_string())))
        };
        let repository = root.join("main/.git");
        assert_eq!(read(&admin), Some((repository.clone(), Some(repository.display().to_string()))));
        for pointer in ["../main/.git/worktrees/w", "../link/.git/worktrees/w"] {
            assert_eq!(read(pointer.as_ref()), Some((repository.clone(), None)), "{pointer}");
            assert_eq!(read(&root.join("w").join(pointer)), Some((repository.clone(), None)), "{pointer}");
        }
        assert_eq!(read("../none".as_ref()), None);
        std::fs::write(admin.join("gitdir"), "/elsewhere/.git\n").unwrap();
        assert_eq!(read(&admin), Some((repository, None)), "it names another worktree");
        std::fs::create_dir(root.join("w/inner")).unwrap();
        assert_eq!(read("inner".as_ref()), None);
        std::fs::remove_file(admin.join("commondir")).unwrap();
        assert_eq!(read(&admin), Some((admin.clone(), None)), "a submodule");
    }
}
