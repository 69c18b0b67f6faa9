//! Backs up existing files at the path of a new file or link.

use coracle_protocol::{ErrorCode, FileRef};
use coracle_types::{ContainerPath, Error};

use crate::StepContext;

/// Renames the file at a path to `<name>.orig`, if there is one. If that name is taken by an earlier backup, the file
/// stays, and the caller overwrites it.
///
/// # Errors
/// Why it cannot be renamed.
pub(crate) async fn back_up(context: &StepContext, path: &ContainerPath) -> Result<(), String> {
    let itself = FileRef { follow: false, ..context.at(path) };
    match context.link.rename(itself, &format!("{}.orig", path.file_name())).await {
        Ok(_) => Ok(()),
        Err(err) if is(&err, ErrorCode::NotFound) || is(&err, ErrorCode::Exists) => Ok(()),
        Err(err) => Err(err.to_string()),
    }
}

/// Creates a link. Renames an existing file there to `<name>.orig`.
///
/// # Errors
/// Why it cannot be created.
pub(crate) async fn link(context: &StepContext, path: &ContainerPath, target: &ContainerPath) -> Result<(), String> {
    let itself = || FileRef { follow: false, ..context.at(path) };
    match context.link.make_link(itself(), target.as_str(), false).await {
        Ok(_) => return Ok(()),
        Err(err) if is(&err, ErrorCode::Exists) || is(&err, ErrorCode::WrongKind) => {}
        Err(err) => return Err(err.to_string()),
    }
    let there = context.link.stat(itself()).await.map_err(|it| it.to_string())?;
    if there.link.as_deref() == Some(target.as_str()) {
        return Ok(());
    }
    back_up(context, path).await?;
    context.link.make_link(itself(), target.as_str(), true).await.map(drop).map_err(|it| it.to_string())
}

/// Whether the guest refused with that code.
pub(crate) fn is(err: &Error, code: ErrorCode) -> bool {
    matches!(err, Error::Refused(fault) if fault.code == code)
}
