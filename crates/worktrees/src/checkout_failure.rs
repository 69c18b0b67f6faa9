//! Failures of writing a patch to a checkout.

use coracle_host::tree_backup::{BackupError, TreeBackup};
use coracle_types::failure::{Code, Failure};

/// A file could not be copied before the patch.
pub(crate) fn not_copied(err: &BackupError) -> Failure {
    let message = format!("`{}` cannot be copied first, so nothing was changed: {}", err.path.display(), err.source);
    Failure::new(Code::ApplyFailed, message)
}

/// Restores all files after a patch that could not be written. The failure reports whether that worked.
pub(crate) fn restored_after(backup: &TreeBackup, why: &str) -> Failure {
    let failed = backup.restore(|_| true);
    let why = why.trim().trim_end_matches('.');
    let Some(BackupError { path, source }) = failed.first() else {
        let message = format!("The patch could not be written: {why}. All files are as they were before.");
        return Failure::new(Code::ApplyFailed, message)
            .hint("nothing was changed; see that the files can be written and the disk has room, then try again");
    };
    let (path, copies) = (path.display(), backup.copies().display().to_string());
    let message = format!(
        "The patch could not be written: {why}. {} of its files could not be put back (`{path}`: {source}); copies of \
         all that existed before are in `{copies}`.",
        failed.len()
    );
    let written: Vec<String> = failed.iter().map(|it| it.path.display().to_string()).collect();
    let failure = Failure::new(Code::ApplyFailed, message).detail("written", written).detail("copies", &*copies);
    failure.hint(format!("copy the files of `written` back from `{copies}`, then remove that directory"))
}
