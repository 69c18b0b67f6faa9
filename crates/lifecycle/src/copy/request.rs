//! One copy: its request, its report, and its archive on this host.

use std::fs::File;
use std::path::PathBuf;

use coracle_archive::transfer::{self, Limits, TransferReport, Writer};
use coracle_host::fs::HostPath;
use coracle_types::ContainerPath;

use super::meter::CopyMeter;
use crate::{Error, Result};

/// Bounds of one copy.
pub type CopyLimits = Limits;

/// One copy, in either direction. Paths are checked against the policy by the caller.
#[derive(Debug)]
pub struct CopyRequest {
    /// The host's side: what is copied in, or the existing directory that is copied out into.
    pub host: HostPath,
    /// The name on the host that is copied out to; `None` to keep its own.
    pub host_name: Option<String>,
    /// The container's side.
    pub container: ContainerPath,
    /// The container's side was written with a slash at its end: it is a directory.
    pub into_directory: bool,
    /// Files that exist are replaced.
    pub overwrite: bool,
    /// Bounds.
    pub limits: CopyLimits,
    /// Paths that are never written on the host, relative to any directory.
    pub protected: Vec<String>,
    /// Where temporary files go.
    pub scratch: PathBuf,
    /// Where unfinished names on the host are noted: [`Store::unfinished_copies`](crate::Store::unfinished_copies).
    pub notes: PathBuf,
    /// Tells how far it is.
    pub meter: CopyMeter,
}

/// What was copied, and where it is now.
#[derive(Debug)]
pub struct CopyReport {
    /// Counts, and what did not travel.
    pub moved: TransferReport,
    /// Real path on the host.
    pub host_path: PathBuf,
    /// Path inside.
    pub container_path: ContainerPath,
}

/// Missing parents first, then the tree; all of it the exec user's.
pub(super) fn pack(host: &HostPath, inside: &str, mut writer: Writer) -> Result<(File, TransferReport)> {
    let parents: Vec<_> = inside.match_indices('/').map(|(at, _)| &inside[..at]).collect();
    for parent in &parents {
        writer.dir(parent, 0o755, None).map_err(Error::Copy)?;
    }
    if host.is_dir() {
        writer.host_dir(inside, &host.dir().map_err(cannot_spool)?).map_err(Error::Copy)?;
    } else {
        writer.host_file(inside, host.file().map_err(cannot_spool)?).map_err(Error::Copy)?;
    }
    let (file, mut moved) = writer.finish().map_err(Error::Copy)?;
    moved.dirs -= parents.len() as u64;
    Ok((file, moved))
}

pub(super) fn temporary(scratch: &std::path::Path) -> Result<File> {
    tempfile::tempfile_in(scratch).map_err(cannot_spool)
}

pub(super) fn cannot_spool(source: std::io::Error) -> Error {
    Error::Copy(transfer::Error::Io { path: "files on the host".into(), source })
}

pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|err| cannot_spool(std::io::Error::other(err)))?
}
