//! Files into a container and out of it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::Done;
use crate::state::{State, StoredContainer};
use crate::words::Words;

/// `SRC ID:/DST`, or `ID:/SRC DST`.
pub(crate) fn copy(state: &State, words: Words) -> Result<Done> {
    let names = words.names()?;
    let [from, to] = names.as_slice() else { bail!("two paths are needed") };
    let inside = |text: &str| -> Result<Option<PathBuf>> {
        match text.split_once(':') {
            Some((id, path)) => Ok(Some(root(state, id)?.join(path.trim_start_matches('/')))),
            None => Ok(None),
        }
    };
    let outside = |it: &str| PathBuf::from(it);
    let (from, to) = (inside(from)?.unwrap_or_else(|| outside(from)), inside(to)?.unwrap_or_else(|| outside(to)));
    if from.symlink_metadata().is_err() {
        bail!("path not found");
    }
    let copied = Command::new("/bin/cp").args(["-a", "--remove-destination", "--"]).args([from, to]).output()?;
    if !copied.status.success() {
        bail!("the copy failed: {}", String::from_utf8_lossy(&copied.stderr).trim());
    }
    Ok(Done::default())
}

/// The files of a container, including mounts while it runs.
fn root(state: &State, id: &str) -> Result<PathBuf> {
    let stored: StoredContainer = state.read("containers", id).context("no container to copy with")?;
    Ok(match stored.pid() {
        Some(pid) => format!("/proc/{pid}/root").into(),
        None => state.root_of(id),
    })
}
