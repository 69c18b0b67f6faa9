//! What differs between two checkpoints, as it looks inside the container.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::sync::Arc;

use coracle_runtime::{ChangeKind, CheckpointChange};
use coracle_types::{ContainerId, Result};
use rustix::fs::{AtFlags, statat};

use super::no_checkpoint;
use crate::blocking::blocking;
use crate::container::{find, host_error};
use crate::engine::Engine;
use crate::store::open_beneath;
use crate::tree_history::{CheckpointDir, Tree, TreeChange, changes};

/// Lists what differs between two checkpoints.
pub(crate) async fn checkpoint_diff(
    engine: &Arc<Engine>,
    id: &ContainerId,
    from: u64,
    to: u64,
) -> Result<Vec<CheckpointChange>> {
    let (container, engine) = (find(engine, &id.into())?, engine.clone());
    blocking("compare checkpoints", move || {
        let dir = container.dir.checkpoints();
        let failed = || host_error("cannot read the checkpoints");
        let tree = |number| dir.tree(number).map_err(failed())?.ok_or_else(|| no_checkpoint("compare", number));
        let (from, to) = (tree(from)?, tree(to)?);
        let layers = engine.store.layer_dirs(&container.config.image)?.unwrap_or_default();
        let layers = layers.iter().map(File::open).collect::<io::Result<Vec<_>>>().map_err(failed())?;
        let described = |change: &TreeChange| described_change(&dir, &layers, &from, change).transpose();
        changes(&from, &to).iter().filter_map(described).collect::<io::Result<_>>().map_err(failed())
    })
    .await
}

/// Describes a change. `None` for a directory that has only another time: its entries show why.
fn described_change(
    dir: &CheckpointDir,
    layers: &[File],
    from: &Tree,
    change: &TreeChange,
) -> io::Result<Option<CheckpointChange>> {
    let stat = |object: Option<u64>| object.map(|it| dir.object(it)).transpose();
    let (old, new) = (stat(from.get(&change.path).copied())?, stat(change.object)?);
    let kind = match (&old, &new) {
        // The overlay's mark of a file of the image that was removed.
        (Some(old), Some(new)) if is_whiteout(old) && is_whiteout(new) => return Ok(None),
        (_, Some(new)) if is_whiteout(new) => ChangeKind::Removed,
        (Some(old), _) if is_whiteout(old) => ChangeKind::Added,
        (Some(old), Some(new)) if is_same_directory(old, new) => return Ok(None),
        (Some(_), Some(_)) => ChangeKind::Changed,
        // A directory of the image is here as soon as something in it has changed.
        (None, Some(one)) | (Some(one), None) => match mode_in_image(layers, &change.path)? {
            Some(mode) if one.is_dir() && one.mode() == mode => return Ok(None),
            Some(_) => ChangeKind::Changed,
            None if new.is_some() => ChangeKind::Added,
            None => ChangeKind::Removed,
        },
        (None, None) => return Ok(None),
    };
    let path = format!("/{}", String::from_utf8_lossy(&change.path));
    let bytes = new.or(old).filter(Metadata::is_file).map_or(0, |it| it.len());
    Ok(Some(CheckpointChange { path, kind, bytes }))
}

/// The type and the mode of the entry that an image has at a path.
fn mode_in_image(layers: &[File], path: &[u8]) -> io::Result<Option<u32>> {
    let at = path.iter().rposition(|it| *it == b'/');
    let (parent, name) = at.map_or((&b"."[..], path), |it| (&path[..it], &path[it + 1..]));
    for layer in layers {
        let is_missing = |err: &io::Error| {
            err.raw_os_error().is_some_and(|it| [libc::ENOENT, libc::ENOTDIR, libc::ELOOP].contains(&it))
        };
        let dir = match open_beneath(layer.as_fd(), parent) {
            Err(err) if is_missing(&err) => continue,
            dir => dir?,
        };
        let name = if name.is_empty() { b"." } else { name };
        match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from) {
            Err(err) if is_missing(&err) => {}
            found => {
                let found = found?;
                let is_whiteout = found.st_rdev == 0 && found.st_mode & libc::S_IFMT == libc::S_IFCHR;
                return Ok((!is_whiteout).then_some(found.st_mode));
            }
        }
    }
    Ok(None)
}

fn is_whiteout(entry: &Metadata) -> bool {
    entry.file_type().is_char_device() && entry.rdev() == 0
}

/// Whether both are directories with the same owner and mode.
fn is_same_directory(one: &Metadata, other: &Metadata) -> bool {
    let owner = |it: &Metadata| (it.uid(), it.gid(), it.mode());
    one.is_dir() && other.is_dir() && owner(one) == owner(other)
}
