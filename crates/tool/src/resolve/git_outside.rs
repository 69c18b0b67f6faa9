//! Directories whose git repository lies elsewhere: linked worktrees, submodules, and links in place of `.git`.

use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use coracle_provision::ReportItem;
use coracle_runtime::host::fs::HostPath;
use coracle_runtime::{Access, ContainerPath, Mount, shell_word};

use super::host_paths::mountable;
use crate::context::Context;
use crate::failure::Failure;
use crate::warning::Warning;

/// A file that names a directory is no longer.
const MAX_POINTER: u64 = 4096;

/// A directory that is mounted or copied without its repository.
#[derive(Clone, Debug)]
pub(crate) struct GitOutside {
    /// The directory inside.
    at: ContainerPath,
    /// The directory of the host.
    dir: PathBuf,
    /// The repository's own directory on the host.
    repository: PathBuf,
    /// Why git does not find it inside. None if it is mounted read-only.
    missing: Option<String>,
}

/// Where `.git` of a directory leads.
struct Pointer {
    repository: PathBuf,
    /// The path that git inside reads it at, for a linked worktree.
    read_at: Option<ContainerPath>,
}

/// Looks for repositories outside of the mounts. One of a linked worktree that may be mounted is added read-only, where git
/// inside looks for it: nothing inside decides then what git of the host runs.
pub(super) fn add_repositories(mounts: &mut Vec<Mount>, cx: &Context) -> Vec<GitOutside> {
    let mut found = Vec::new();
    for bind in mounts.clone() {
        let Some(pointer) = Pointer::read(bind.host.real(), &bind.at) else { continue };
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

/// The same for a directory whose files are copied.
pub(super) fn of_copy(dir: &Path, at: &ContainerPath) -> Option<GitOutside> {
    let pointer = Pointer::read(dir, at)?;
    let missing = Some("only files of the working directory are copied in".to_owned());
    Some(GitOutside { missing, ..GitOutside::new(at, dir, pointer.repository) })
}

fn repository_mount(pointer: &Pointer, mounts: &[Mount], cx: &Context) -> Result<Mount, String> {
    let Some(at) = &pointer.read_at else {
        return Err("only repositories of linked worktrees are mounted by themselves".to_owned());
    };
    let host = mountable(&pointer.repository, cx).map_err(|failure| refusal(&failure))?;
    let taken = |mount: &Mount| at.is_beneath(mount.at.as_str()) || mount.at.is_beneath(at.as_str());
    if super::target("mounts", at).is_err() || mounts.iter().any(taken) {
        return Err(format!("`{at}` is not free inside"));
    }
    // Code inside that one could exchange it while it is mounted.
    let written = cx.store().and_then(|store| store.is_written_inside(host.real()).map_err(Into::into));
    match written {
        Ok(false) => Ok(Mount { host, at: at.clone(), access: Access::ReadOnly }),
        Ok(true) => Err("another container can write it".to_owned()),
        Err(failure) => Err(refusal(&failure)),
    }
}

fn refusal(failure: &Failure) -> String {
    failure.message.clone()
}

impl Pointer {
    /// Reads it; none for a directory that has its repository in it, or none at all.
    fn read(dir: &Path, at: &ContainerPath) -> Option<Self> {
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
        // `worktrees/NAME` in the repository, which git walks up from.
        let is_usual = common.as_deref().map(str::trim_end) == Some("../..");
        let inside = plain(&Path::new(at.as_str()).join(written));
        let above = inside.ancestors().nth(2).filter(|_| is_usual).and_then(Path::to_str);
        let read_at = above.and_then(|path| ContainerPath::parse(path).ok());
        Some(Self { repository, read_at })
    }
}

/// Removes `.` and `..` from an absolute path, as for directories without links.
fn plain(path: &Path) -> PathBuf {
    let mut all = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(all.pop()),
            Component::CurDir => {}
            other => all.push(other),
        }
    }
    all
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

    /// What helps where git does not work.
    fn hint(&self) -> String {
        let (repository, dir) = (self.repository.display(), shell_word(&self.dir.display().to_string()));
        let clone = format!("`coracle create --repo {dir}` gives it a clone");
        match &self.missing {
            None => format!("commit on the host, or in a clone: {clone}"),
            Some(_) => {
                format!("add `{repository}` to `workspace.allow_roots`; then {clone}, and a linked worktree finds it")
            }
        }
    }

    fn sentence(&self) -> String {
        let (at, repository) = (&self.at, self.repository.display());
        match &self.missing {
            None => format!("git reads `{repository}`, which is mounted read-only: inside it commits nothing"),
            Some(why) => format!("git does not work in `{at}`: its repository `{repository}` is not there: {why}"),
        }
    }

    /// A part of the step `workspace`.
    pub(crate) fn report_item(&self) -> ReportItem {
        ReportItem::success(self.sentence()).with("hint", self.hint())
    }

    /// A warning where git does not work.
    pub(crate) fn warning(&self) -> Option<Warning> {
        self.missing.as_ref()?;
        Some(Warning::new("git_outside", format!("{}; {}", self.sentence(), self.hint())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_read_relative_to_the_directory_inside() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let admin = root.join("main/.git/worktrees/w");
        std::fs::create_dir_all(&admin).unwrap();
        std::fs::create_dir(root.join("w")).unwrap();
        std::fs::write(admin.join("commondir"), "../..\n").unwrap();
        let at = ContainerPath::parse("/workspace").unwrap();
        let read = |pointer: &str| {
            std::fs::write(root.join("w/.git"), format!("gitdir: {pointer}\n")).unwrap();
            let pointer = Pointer::read(&root.join("w"), &at)?;
            assert_eq!(pointer.repository, root.join("main/.git"));
            Some(pointer.read_at?.to_string())
        };
        assert_eq!(read(admin.to_str().unwrap()), Some(root.join("main/.git").display().to_string()));
        assert_eq!(read("../main/.git/worktrees/w").as_deref(), Some("/main/.git"));
        assert_eq!(read("../none"), None);
        std::fs::remove_file(admin.join("commondir")).unwrap();
        let submodule = Pointer::read(&root.join("w"), &at);
        assert!(submodule.is_none(), "what it leads to is not there");
    }
}
