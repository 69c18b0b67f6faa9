//! Links to dotfiles that have no script.

use coracle_protocol::{ErrorCode, FileKind, FileRef};
use coracle_types::{ContainerPath, Error};

use crate::step_error::StepError;
use crate::{ReportItem, StepContext};

/// The files that are linked from the home directory.
const LINKED: [&str; 11] = [
    ".bashrc",
    ".bash_profile",
    ".bash_aliases",
    ".zshrc",
    ".zprofile",
    ".gitconfig",
    ".gitignore_global",
    ".vimrc",
    ".tmux.conf",
    ".inputrc",
    ".editorconfig",
];

/// Maximum number of backup names to try.
const MAX_BACKUPS: usize = 100;

/// Links those of the files that the clone contains, and reports each.
pub(super) async fn create(context: &StepContext, clone: &ContainerPath) -> Vec<ReportItem> {
    let mut items = Vec::new();
    for name in LINKED {
        let (Ok(from), Ok(to)) = (context.home.join(name), clone.join(name)) else { continue };
        match context.within(link(context, &from, &to)).await {
            Ok(LinkOutcome::NoSuchFile) => {}
            Ok(LinkOutcome::Made { backup_name: None }) => items.push(ReportItem::success(name)),
            Ok(LinkOutcome::Made { backup_name: Some(backup) }) => {
                items.push(ReportItem::success(name).with("kept_as", backup));
            }
            Err(failure) => items.push(failure.into_item(name)),
        }
    }
    items
}

enum LinkOutcome {
    NoSuchFile,
    Made { backup_name: Option<String> },
}

async fn link(context: &StepContext, from: &ContainerPath, to: &ContainerPath) -> Result<LinkOutcome, StepError> {
    if !is_there(context, FileRef { follow: true, ..context.at(to) }).await? {
        return Ok(LinkOutcome::NoSuchFile);
    }
    let at = FileRef { follow: false, ..context.at(from) };
    let backup_name = if is_there(context, at.clone()).await? { Some(back_up(context, from).await?) } else { None };
    if let Err(err) = context.link.make_link(at, &target(context, to), false).await {
        // Restores the existing file if the link fails.
        if let Some(backup) = &backup_name {
            let _ = context.link.rename(beside(context, from, backup), from.file_name()).await;
        }
        return Err(err.into());
    }
    let entry = context.link.stat(context.at(from)).await?;
    if entry.kind == FileKind::Link {
        Err(StepError::plain("the link leads nowhere"))
    } else {
        Ok(LinkOutcome::Made { backup_name })
    }
}

/// Returns a target relative to the home if possible, since the home may be visible under another path, too.
fn target(context: &StepContext, to: &ContainerPath) -> String {
    let below = to.as_str().strip_prefix(context.home.as_str()).and_then(|it| it.strip_prefix('/'));
    below.unwrap_or(to.as_str()).to_owned()
}

async fn is_there(context: &StepContext, at: FileRef) -> Result<bool, StepError> {
    match context.link.stat(at).await {
        Ok(_) => Ok(true),
        Err(Error::Refused(fault)) if fault.code == ErrorCode::NotFound => Ok(false),
        Err(err) => Err(err.into()),
    }
}

/// Renames an existing file to the first free backup name.
async fn back_up(context: &StepContext, path: &ContainerPath) -> Result<String, StepError> {
    let names = (0..MAX_BACKUPS).map(|n| match n {
        0 => format!("{}.orig", path.file_name()),
        n => format!("{}.orig.{n}", path.file_name()),
    });
    for name in names {
        let at = FileRef { follow: false, ..context.at(path) };
        match context.link.rename(at, &name).await {
            Ok(_) => return Ok(name),
            Err(Error::Refused(fault)) if fault.code == ErrorCode::Exists => {}
            Err(err) => return Err(err.into()),
        }
    }
    Err(StepError::new("path_exists", format!("`{path}` exists, and so do {MAX_BACKUPS} backups of it")))
}

fn beside(context: &StepContext, path: &ContainerPath, name: &str) -> FileRef {
    let path = path.parent().and_then(|it| it.join(name).ok()).unwrap_or_else(|| path.clone());
    FileRef { follow: false, ..context.at(&path) }
}
