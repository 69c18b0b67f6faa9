//! Changes an upper directory to a checkpoint, in a way that another process can finish.

use std::io;
use std::path::Path;

use super::records::{CheckpointDir, RewindRecord};
use super::{Index, IndexEntry, RestoreRequest, restore};
use crate::ids::Privileges;

/// Notes that the upper directory is going to be changed to a checkpoint. [`finish_rewind`] does it.
pub(crate) fn begin_rewind(dir: &CheckpointDir, number: u64) -> io::Result<()> {
    dir.write_rewind_record(RewindRecord { number })
}

/// Finishes a rewind, if one was begun. The container must not run.
pub(crate) fn finish_rewind(
    dir: &CheckpointDir,
    upper: &Path,
    left_out: &[&str],
    privileges: &Privileges,
) -> io::Result<()> {
    let Some(RewindRecord { number }) = dir.rewind_record()? else { return Ok(()) };
    let known = dir.repaired_index()?;
    let tree = dir.tree(number)?.ok_or_else(|| io::Error::other(format!("no checkpoint {number}")))?;
    let request = RestoreRequest { upper, objects: &dir.objects(), left_out, tree: &tree };
    let entries = restore_tree(&request, &known, privileges)?;
    dir.sync()?;
    let past_bytes = dir.past_bytes_after(&known, &tree.values().copied().collect())?;
    dir.write_index(&Index { current: number, entries, past_bytes, ..known })?;
    dir.remove_rewind_record()
}

/// [`restore`], as the owner of the files.
pub(crate) fn restore_tree(
    request: &RestoreRequest<'_>,
    known: &Index,
    privileges: &Privileges,
) -> io::Result<Vec<IndexEntry>> {
    privileges.run_as_owner(|| restore(request, known))
}
