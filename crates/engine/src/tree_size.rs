//! Measures the size of a directory, which a container's processes may change meanwhile.

use std::fs::File;
use std::io;
use std::path::Path;

use coracle_host::tree::{DirHandle, Node};

/// Limits of the search: a container may have any number of files, and the caller waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeLimits {
    /// Maximum depth of directories, each of which needs an open descriptor.
    pub(crate) depth: usize,
    pub(crate) entries: usize,
}

/// Returns the bytes of all files. Follows no links.
///
/// # Errors
/// If the directory cannot be read, or exceeds the limits.
pub(crate) fn bytes_below(dir: &Path, limits: SizeLimits) -> io::Result<u64> {
    let mut count = FileCount { bytes: 0, entries_left: limits.entries };
    count.add(&DirHandle::from(File::open(dir)?), limits.depth).map(|()| count.bytes)
}

struct FileCount {
    bytes: u64,
    entries_left: usize,
}

impl FileCount {
    fn add(&mut self, dir: &DirHandle, depth_left: usize) -> io::Result<()> {
        dir.visit(|name, node| {
            self.entries_left = self.entries_left.checked_sub(1).ok_or(io::ErrorKind::FileTooLarge)?;
            // An entry that was removed or replaced meanwhile does not count.
            match node {
                Node::Dir if depth_left == 0 => return Err(io::ErrorKind::FileTooLarge.into()),
                Node::Dir => {
                    if let Ok(below) = dir.enter(&name) {
                        self.add(&below, depth_left - 1)?;
                    }
                }
                // A sparse file may have any size, so the sum saturates.
                Node::File => self.bytes = self.bytes.saturating_add(dir.size(&name).unwrap_or(0)),
                _ => {}
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn counted(dir: &Path, depth: usize) -> io::Result<u64> {
        bytes_below(dir, SizeLimits { depth, entries: 20 })
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
