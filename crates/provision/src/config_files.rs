//! Files that the caller wants to have in the container.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Instant;

use coracle_client::WriteFile;
use coracle_protocol::FileRef;
use coracle_types::{ContainerPath, Input};
use futures_util::{StreamExt, stream};

use crate::step_error::StepError;
use crate::{ReportItem, StepContext, StepReport};

/// A file to write, with all defaults resolved.
#[derive(Clone, PartialEq, Eq)]
pub struct FileToPut {
    /// Where.
    pub path: ContainerPath,
    /// What will be in it, byte by byte.
    pub content: Vec<u8>,
    /// Permission bits, at most 0777.
    pub mode: u32,
}

/// Hides the content, which may be a secret.
impl fmt::Debug for FileToPut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:o}, {} bytes)", self.path, self.mode, self.content.len())
    }
}

/// Paths in bind-mounted host directories that may not be written, because programs on the host trust them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtectedBinds {
    /// Where host directories are mounted.
    pub roots: Vec<ContainerPath>,
    /// Protected paths, relative to any directory at or below a root.
    pub names: Vec<String>,
}

impl ProtectedBinds {
    /// Whether a file at that path would be a protected path, be in one, or replace one of its parents. Case is
    /// ignored, as it is on many hosts.
    #[must_use]
    pub fn covers(&self, path: &ContainerPath) -> bool {
        self.roots.iter().filter(|it| path.is_beneath(it.as_str())).any(|root| {
            let parts: Vec<&str> = path.parts().skip(root.parts().count()).collect();
            (0..parts.len()).any(|at| self.names.iter().any(|name| paths_overlap(&parts[at..], name)))
        })
    }
}

/// Whether one of the two paths contains the other.
fn paths_overlap(parts: &[&str], name: &str) -> bool {
    let name = name.split('/').filter(|it| !it.is_empty());
    parts.iter().zip(name).all(|(one, other)| one.to_lowercase() == other.to_lowercase())
}

/// Directories of the kernel, the engine and the guest, where no file is written.
const RESERVED: [&str; 4] = ["/proc", "/sys", "/dev", "/.coracle"];

/// How many files are written concurrently.
const MAX_CONCURRENT: usize = 8;

/// Writes each file atomically, and reads it again.
///
/// Files in the home and in the work directory belong to the exec user, others to root, if there is one. A link at the
/// path of a file is replaced, not followed.
pub async fn config_files(context: &StepContext, files: &[FileToPut], protected: &ProtectedBinds) -> StepReport {
    let own = |path: &ContainerPath| context.rootless || is_users(context, path);
    let at = |path: &ContainerPath| if own(path) { context.at(path) } else { context.at_as_root(path) };
    let wanted = files.iter().map(|it| (it.path.to_string(), at(&it.path), Ok(it.clone()))).collect();
    put_all("config_files", context, wanted, protected).await
}

/// Whether the file belongs to the user. A home or work directory that is `/` does not make all files the user's.
fn is_users(context: &StepContext, path: &ContainerPath) -> bool {
    let own = [&context.home, &context.workdir];
    own.iter().any(|it| **it != ContainerPath::root() && path.is_beneath(it.as_str()))
}

/// A file's name in the report, its owner and path, and its content unless it is refused.
pub(crate) type ReportedFile = (String, FileRef, Result<FileToPut, StepError>);

pub(crate) async fn put_all(
    name: &'static str,
    context: &StepContext,
    wanted: Vec<ReportedFile>,
    protected: &ProtectedBinds,
) -> StepReport {
    if wanted.is_empty() {
        return StepReport::skipped(name, "none were given");
    }
    let begun = Instant::now();
    let paths: Vec<ContainerPath> = wanted.iter().filter_map(|it| Some(it.2.as_ref().ok()?.path.clone())).collect();
    let mut seen = BTreeSet::new();
    let puts: Vec<_> = wanted
        .into_iter()
        .map(|(name, at, file)| {
            let file = file.and_then(|file| {
                allowed(&file, protected)?;
                check_overlap(&file.path, &paths, !seen.insert(file.path.clone()))?;
                Ok(file)
            });
            async move {
                let put = async { context.within(put(context, at, file?)).await };
                put.await.map_or_else(|failure| failure.into_item(&name), |()| ReportItem::success(&name))
            }
        })
        .collect();
    let items: Vec<ReportItem> = stream::iter(puts).buffered(MAX_CONCURRENT).collect().await;
    let good = items.iter().filter(|it| it.error.is_none()).count();
    let detail = format!("{good}/{} files written", items.len());
    StepReport::of_items(name, detail, "each file has the given bytes and mode", items).with_duration(begun.elapsed())
}

fn allowed(file: &FileToPut, protected: &ProtectedBinds) -> Result<(), StepError> {
    if file.mode > 0o777 {
        return Err(StepError::new("invalid_input", format!("the mode {:o} is above 777", file.mode)));
    }
    if RESERVED.iter().any(|it| file.path.is_beneath(it)) {
        return Err(StepError::new("policy_denied", "no files are written there"));
    }
    if protected.covers(&file.path) {
        let error = "it is a protected path (rule `files.protected`, setting `workspace.protected`)";
        return Err(StepError::new("policy_denied", error));
    }
    Ok(())
}

/// Files are written concurrently: of two at one path, each would read the other's content, or find a directory.
fn check_overlap(path: &ContainerPath, all: &[ContainerPath], again: bool) -> Result<(), StepError> {
    if again {
        return Err(StepError::new("invalid_input", "the path is given twice"));
    }
    match all.iter().find(|it| *it != path && path.is_beneath(it.as_str())) {
        Some(other) => Err(StepError::new("invalid_input", format!("it lies in `{other}`, which is given as a file"))),
        None => Ok(()),
    }
}

async fn put(context: &StepContext, at: FileRef, file: FileToPut) -> Result<(), StepError> {
    let at = FileRef { follow: false, ..at };
    let FileToPut { content, mode, .. } = file;
    let bytes = Input::Bytes(content.clone());
    let put = WriteFile { at: at.clone(), mode: Some(mode), exact: true, parents: true, replace: true, content: bytes };
    context.link.put(put).await?;
    let (entry, read) = context.link.get(at, 0, content.len() as u64 + 1).await?;
    if read != content {
        return Err(StepError::plain("the content that was read back differs from what was written"));
    }
    if entry.mode != mode {
        return Err(StepError::plain(format!("it has the mode {:o}", entry.mode)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::Status;
    use crate::test_support::{Trial, path};

    fn protected() -> ProtectedBinds {
        let names = [".git/config", ".git/hooks", ".envrc", ".cargo/config"].map(String::from);
        ProtectedBinds { roots: vec![path("/workspace")], names: names.into() }
    }

    fn file(at: &str, content: &[u8], mode: u32) -> FileToPut {
        FileToPut { path: path(at), content: content.to_vec(), mode }
    }

    #[test]
    fn a_protected_path_includes_what_it_covers_and_what_covers_it_at_any_depth() {
        let it = protected();
        for (at, covered) in [
            ("/workspace/.git/config", true),
            ("/workspace/.git/hooks/pre-commit", true),
            ("/workspace/.git", true),
            ("/workspace/sub/.GIT/Hooks/x", true),
            ("/workspace/sub/.envrc", true),
            ("/workspace/.cargo", true),
            ("/workspace/.cargo/configuration", false),
            ("/workspace/.git/HEAD", false),
            ("/workspace/config", false),
            ("/workspace2/.envrc", false),
            ("/home/agent/.git/config", false),
        ] {
            assert_eq!(it.covers(&path(at)), covered, "{at}");
        }
    }

    #[tokio::test]
    async fn files_are_written_byte_by_byte_with_their_modes_and_parents() {
        if !coracle_skips::has_root() {
            return;
        }
        let trial = Trial::new().await;
        let odd = b"it's \"quoted\" $HOME `x` \\ \xff\0 without a last newline";
        trial.write("etc/existing", "a longer text that was there");
        std::fs::set_permissions(trial.root.join("etc/existing"), PermissionsExt::from_mode(0o600)).unwrap();
        let files = [file("/opt/it's/new/a b", odd, 0o640), file("/etc/existing", b"", 0o600)];
        let step = config_files(&trial.context, &files, &protected()).await;
        assert_eq!((step.status, step.detail.as_str()), (Status::Success, "2/2 files written"), "{step:#?}");
        assert_eq!(std::fs::read(trial.root.join("opt/it's/new/a b")).unwrap(), odd);
        let mode = |at: &str| std::fs::metadata(trial.root.join(at)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(
            (mode("opt/it's/new/a b"), mode("etc/existing"), trial.read("etc/existing")),
            (0o640, 0o600, String::new())
        );
    }

    #[tokio::test]
    async fn a_link_in_the_place_of_a_file_is_replaced() {
        if !coracle_skips::has_root() {
            return;
        }
        let trial = Trial::new().await;
        trial.write("etc/target", "unchanged");
        symlink("/etc/target", trial.root.join("home/agent/.x")).unwrap();
        let step = config_files(&trial.context, &[file("/home/agent/.x", b"new", 0o644)], &protected()).await;
        assert_eq!(step.status, Status::Success, "{step:#?}");
        assert_eq!((trial.read("etc/target"), trial.read("home/agent/.x")), ("unchanged".into(), "new".into()));
    }

    #[tokio::test]
    async fn a_file_that_may_not_be_written_fails_alone_with_the_reason() {
        if !coracle_skips::has_root() {
            return;
        }
        let trial = Trial::new().await;
        trial.write("etc/file", "");
        let files = [
            file("/workspace/ok", b"1", 0o644),
            file("/workspace/.git/hooks/post-checkout", b"evil", 0o755),
            file("/workspace/ok", b"2", 0o644),
            file("/proc/sys/x", b"", 0o644),
            file("/dev/x", b"", 0o644),
            file("/.coracle/run/x", b"", 0o644),
            file("/etc/set-id", b"", 0o4755),
            file("/etc", b"", 0o644),
            file("/etc/file/below", b"", 0o644),
            file("/workspace/ok/below", b"", 0o644),
        ];
        let step = config_files(&trial.context, &files, &protected()).await;
        assert_eq!((step.status, step.detail.as_str()), (Status::Partial, "1/10 files written"));
        let codes: Vec<_> = step.items.iter().map(|it| it.code.as_deref().unwrap_or("-")).collect();
        insta::assert_snapshot!(codes.join(" "), @"- policy_denied invalid_input policy_denied policy_denied policy_denied invalid_input path_exists invalid_input invalid_input");
        assert_eq!(trial.read("workspace/ok"), "1");
        assert!(step.items[1].error.as_ref().unwrap().contains("`files.protected`"));
        assert!(!trial.root.join("workspace/.git").exists() && !trial.root.join("dev/x").exists());
    }

    #[tokio::test]
    async fn two_hundred_files_go_side_by_side_and_a_cancelled_call_writes_none() {
        if !coracle_skips::has_root() {
            return;
        }
        let trial = Trial::new().await;
        let files: Vec<_> =
            (0..200).map(|n| file(&format!("/workspace/d/{n}"), n.to_string().as_bytes(), 0o644)).collect();
        let step = config_files(&trial.context, &files, &protected()).await;
        assert_eq!(step.status, Status::Success, "{step:#?}");
        assert_eq!((step.items.len(), step.items[199].name.as_str()), (200, "/workspace/d/199"));
        trial.context.cancel.cancel();
        let step = config_files(&trial.context, &[file("/workspace/late", b"", 0o644)], &protected()).await;
        assert_eq!((step.status, step.items[0].code.as_deref()), (Status::Failed, Some("cancelled")));
        assert!(!trial.root.join("workspace/late").exists());
    }
}
