//! What a container uses now.

use std::fs::File;
use std::io;
use std::sync::Arc;

use coracle_runtime::host::tree::{DirHandle, Node};
use coracle_runtime::{ContainerId, ContainerUsage, Result};

use super::containers::{StoredContainer, find};
use super::host_error;
use super::state::State;
use crate::blocking::blocking;
use crate::engine::Engine;

/// Directories in each other whose files are counted, each by an open descriptor.
const DEEPEST: usize = 128;

/// Entries that are looked at. A container may have any number, and its caller waits.
const MAX_ENTRIES: usize = 500_000;

/// `None` when it does not run, or no control group counts.
pub(crate) async fn usage(engine: &Arc<Engine>, id: &ContainerId) -> Result<Option<ContainerUsage>> {
    let container = find(engine, &id.into())?;
    let state = State::read(&container.dir).map_err(host_error("cannot read the state of the container"))?;
    let State::Running { run, process } = state else { return Ok(None) };
    let Some(used) = run.group.usage(process.pid, &engine.cpu_samples).await else { return Ok(None) };
    let engine = engine.clone();
    let disk_bytes = blocking("count the files of a container", move || Ok(own_bytes(&engine, &container))).await?;
    Ok(Some(ContainerUsage {
        memory_bytes: used.memory_bytes,
        pids: used.pids,
        cpu_percent: used.cpu_percent,
        disk_bytes,
    }))
}

/// Bytes of the files that it changed. `None` where they cannot be counted, or are too many.
fn own_bytes(engine: &Engine, container: &StoredContainer) -> Option<u64> {
    let upper = container.dir.upper();
    let counted = engine.privileges.run_as_owner(|| {
        let mut count = FileCount { bytes: 0, entries_left: MAX_ENTRIES };
        count.add(&DirHandle::from(File::open(&upper)?), DEEPEST).map(|()| count.bytes)
    });
    counted.ok()
}

/// The files of a directory that processes change meanwhile. No link is followed.
struct FileCount {
    bytes: u64,
    entries_left: usize,
}

impl FileCount {
    fn add(&mut self, dir: &DirHandle, depth_left: usize) -> io::Result<()> {
        for (name, node) in dir.entries()? {
            self.entries_left = self.entries_left.checked_sub(1).ok_or(io::ErrorKind::FileTooLarge)?;
            // An entry that is gone meanwhile, or is something else now, does not count.
            match node {
                Node::Dir if depth_left == 0 => return Err(io::ErrorKind::FileTooLarge.into()),
                Node::Dir => {
                    if let Ok(below) = dir.enter(&name) {
                        self.add(&below, depth_left - 1)?;
                    }
                }
                Node::File => self.bytes += dir.size(&name).unwrap_or(0),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn counted(dir: &std::path::Path, depth: usize) -> io::Result<u64> {
        let mut count = FileCount { bytes: 0, entries_left: 20 };
        count.add(&DirHandle::from(File::open(dir)?), depth).map(|()| count.bytes)
    }

    #[test]
    fn files_are_counted_within_limits_and_through_no_link() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("large"), [0; 1000]).unwrap();
        symlink(outside.path(), dir.path().join("link")).unwrap();
        symlink(outside.path().join("large"), dir.path().join("file-link")).unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/file"), [0; 10]).unwrap();
        assert_eq!(counted(dir.path(), 2).unwrap(), 10);
        assert!(counted(dir.path(), 1).is_err());
        (0..20).for_each(|it| std::fs::write(dir.path().join(it.to_string()), "x").unwrap());
        assert!(counted(dir.path(), 2).is_err());
    }
}
