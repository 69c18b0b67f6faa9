//! Links to dotfiles that have no script.

use coracle_protocol::{ErrorCode, FileKind, FileRef};
use coracle_types::{ContainerPath, Error};

use crate::step_error::StepError;
use crate::{ReportItem, StepContext};

/// The files that are linked from the home.
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

/// Names that are tried for a file in the way.
const KEPT: usize = 100;

/// Links those files that are in the clone, and reports each.
pub(super) async fn create(context: &StepContext, clone: &ContainerPath) -> Vec<ReportItem> {
    let mut items = Vec::new();
    for name in LINKED {
        let (Ok(from), Ok(to)) = (context.home.join(name), clone.join(name)) else { continue };
        match context.within(link(context, &from, &to)).await {
            Ok(LinkOutcome::NoSuchFile) => {}
            Ok(LinkOutcome::Made { kept_as: None }) => items.push(ReportItem::success(name)),
            Ok(LinkOutcome::Made { kept_as: Some(kept) }) => {
                items.push(ReportItem::success(name).with("kept_as", kept));
            }
            Err(failure) => items.push(failure.into_item(name)),
        }
    }
    items
}

enum LinkOutcome {
    NoSuchFile,
    Made { kept_as: Option<String> },
}

async fn link(context: &StepContext, from: &ContainerPath, to: &ContainerPath) -> Result<LinkOutcome, StepError> {
    if !is_there(context, FileRef { follow: true, ..context.at(to) }).await? {
        return Ok(LinkOutcome::NoSuchFile);
    }
    let at = FileRef { follow: false, ..context.at(from) };
    let kept_as = if is_there(context, at.clone()).await? { Some(keep(context, from).await?) } else { None };
    if let Err(err) = context.link.make_link(at, &target(context, to), false).await {
        // Better the file that was there than none.
        if let Some(kept) = &kept_as {
            let _ = context.link.rename(beside(context, from, kept), from.file_name()).await;
        }
        return Err(err.into());
    }
    let entry = context.link.stat(context.at(from)).await?;
    if entry.kind == FileKind::Link {
        Err(StepError::plain("the link leads nowhere"))
    } else {
        Ok(LinkOutcome::Made { kept_as })
    }
}

/// From the home on where it can be: a home may be seen under another path, too.
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

/// Gives what is in the way another name, the first that is free.
async fn keep(context: &StepContext, path: &ContainerPath) -> Result<String, StepError> {
    let names = (0..KEPT).map(|n| match n {
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
    Err(StepError::new(
        "path_exists",
        format!("`{path}` is in the way, and so are {KEPT} files that it was kept as before"),
    ))
}

fn beside(context: &StepContext, path: &ContainerPath, name: &str) -> FileRef {
    let path = path.parent().and_then(|it| it.join(name).ok()).unwrap_or_else(|| path.clone());
    FileRef { follow: false, ..context.at(&path) }
}
