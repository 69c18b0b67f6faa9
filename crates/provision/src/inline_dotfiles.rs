//! Dotfiles given as text.

use std::fmt;

use coracle_types::ContainerPath;

use crate::config_files::{ReportedFile, put_all};
use crate::step_error::StepError;
use crate::{FileToPut, ProtectedBinds, StepContext, StepReport};

/// A file below the home directory of the exec user.
#[derive(Clone, PartialEq, Eq)]
pub struct InlineFile {
    /// Its path, relative to the home directory.
    pub path: String,
    /// What will be in it, byte by byte.
    pub content: Vec<u8>,
    /// Permission bits, at most 0777.
    pub mode: u32,
}

/// Hides the content, which may be a secret.
impl fmt::Debug for InlineFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:o}, {} bytes)", self.path, self.mode, self.content.len())
    }
}

/// Writes the files as the exec user, after the repository of dotfiles: a link to a file of its clone is
/// replaced, and that file is not changed.
pub async fn dotfiles_inline(context: &StepContext, files: &[InlineFile], protected: &ProtectedBinds) -> StepReport {
    let wanted = files.iter().map(|it| wanted(context, it)).collect();
    put_all("dotfiles_inline", context, wanted, protected).await
}

fn wanted(context: &StepContext, file: &InlineFile) -> ReportedFile {
    let path = below(&context.home, &file.path);
    let at = context.at(path.as_ref().unwrap_or(&context.home));
    let file_to_put = path.map(|path| FileToPut { path, content: file.content.clone(), mode: file.mode });
    (file.path.chars().take(200).collect(), at, file_to_put)
}

fn below(home: &ContainerPath, path: &str) -> Result<ContainerPath, StepError> {
    let refuse = |why: &str| Err(StepError::new("invalid_input", why));
    if path.starts_with('/') {
        return refuse("it is not relative to the home");
    }
    match home.join(path) {
        Ok(path) if path != *home => Ok(path),
        Ok(_) => refuse("it names no file"),
        Err(invalid) => refuse(invalid.why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;
    use crate::test_support::Trial;

    #[tokio::test]
    async fn files_are_written_below_the_home_only() {
        if !coracle_skips::has_root() {
            return;
        }
        let trial = Trial::new().await;
        let paths = [".config/a/b", "./.bashrc", "../x", "a/../../x", "/etc/x", "", ".", "a\nb"];
        let files: Vec<_> =
            paths.iter().map(|it| InlineFile { path: (*it).into(), content: b"x".to_vec(), mode: 0o600 }).collect();
        let step = dotfiles_inline(&trial.context, &files, &ProtectedBinds::default()).await;
        assert_eq!(
            (&*step.name, step.status, step.detail.as_str()),
            ("dotfiles_inline", Status::Partial, "2/8 files written")
        );
        assert_eq!((trial.read("home/agent/.config/a/b"), trial.read("home/agent/.bashrc")), ("x".into(), "x".into()));
        assert!(step.items[2..].iter().all(|it| it.code.as_deref() == Some("invalid_input")), "{step:#?}");
        assert!(!trial.root.join("home/x").exists() && !trial.root.join("etc/x").exists());
    }

    #[tokio::test]
    async fn they_replace_a_link_of_the_repository_and_not_its_file() {
        if !coracle_skips::has_root() {
            return;
        }
        let trial = Trial::new().await;
        trial.write("home/agent/.dotfiles/.vimrc", "theirs");
        std::os::unix::fs::symlink(".dotfiles/.vimrc", trial.root.join("home/agent/.vimrc")).unwrap();
        let file = InlineFile { path: ".vimrc".into(), content: b"mine".to_vec(), mode: 0o644 };
        let step = dotfiles_inline(&trial.context, &[file], &ProtectedBinds::default()).await;
        assert_eq!(step.status, Status::Success, "{step:#?}");
        assert_eq!(trial.read("home/agent/.vimrc"), "mine");
        assert_eq!(trial.read("home/agent/.dotfiles/.vimrc"), "theirs");
    }
}
