//! What is in the way of a file or link of ours is kept beside it.

use coracle_protocol::{ErrorCode, FileRef};
use coracle_types::{ContainerPath, Error};

use crate::StepContext;

/// Gives what is at a path the name `<name>.orig`; nothing there is fine. Where that name is taken, an earlier one was
/// kept, and this one is left for whoever writes next.
///
/// # Errors
/// Why it cannot be renamed.
pub(crate) async fn out_of_the_way(context: &StepContext, path: &ContainerPath) -> Result<(), String> {
    let itself = FileRef { follow: false, ..context.at(path) };
    match context.link.rename(itself, &format!("{}.orig", path.file_name())).await {
        Ok(_) => Ok(()),
        Err(err) if is(&err, ErrorCode::NotFound) || is(&err, ErrorCode::Exists) => Ok(()),
        Err(err) => Err(err.to_string()),
    }
}

/// Makes a link; what is in its way is kept as `<name>.orig`.
///
/// # Errors
/// Why it cannot be made.
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
    out_of_the_way(context, path).await?;
    context.link.make_link(itself(), target.as_str(), true).await.map(drop).map_err(|it| it.to_string())
}

/// Whether the guest refused for that reason.
pub(crate) fn is(err: &Error, code: ErrorCode) -> bool {
    matches!(err, Error::Refused(fault) if fault.code == code)
}
