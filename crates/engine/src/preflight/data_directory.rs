//! The data directory: its file system, what that supports, and the free space.

use std::path::{Path, PathBuf};

use rustix::fs::{statfs, statvfs};

/// The data directory and its file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDirectory {
    /// The directory; it need not exist.
    pub dir: PathBuf,
    /// The name of its file system, or its magic number if the name is not known.
    pub file_system: String,
    /// What the file system supports.
    pub support: FileSystemSupport,
    /// Bytes that this user may still write.
    pub free_bytes: Option<u64>,
}

/// What a file system supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemSupport {
    /// Upper layers, and mounts with mapped ids.
    Full,
    /// Only upper layers: containers created by root have no user namespace.
    WithoutIdMapping,
    /// No upper layers.
    None,
    /// Not known, so the engine tries it.
    Unknown,
}

impl FileSystemSupport {
    /// Whether an overlay may have its upper layer there.
    #[must_use]
    pub fn holds_upper(self) -> bool {
        self != Self::None
    }
}

/// Magic numbers of `statfs(2)`. The kernel's documentation of overlayfs and `mount_setattr(2)` says what each
/// supports.
const KNOWN: &[(u64, &str, FileSystemSupport)] = &[
    (0xef53, "ext4", FileSystemSupport::Full),
    (0x5846_5342, "xfs", FileSystemSupport::Full),
    (0x9123_683e, "btrfs", FileSystemSupport::Full),
    (0xf2f5_2010, "f2fs", FileSystemSupport::Full),
    (0x0102_1994, "tmpfs", FileSystemSupport::Full),
    (0x2fc1_2fc1, "zfs", FileSystemSupport::WithoutIdMapping),
    (0x794c_7630, "overlay", FileSystemSupport::None),
    (0x6969, "nfs", FileSystemSupport::None),
    (0xff53_4d42, "cifs", FileSystemSupport::None),
    (0x0102_1997, "9p", FileSystemSupport::None),
    (0x4d44, "vfat", FileSystemSupport::None),
    (0x6573_5546, "fuse", FileSystemSupport::None),
];

impl DataDirectory {
    pub(super) fn inspect(dir: &Path) -> Self {
        let existing = dir.ancestors().find(|it| it.exists()).unwrap_or(dir);
        let magic = statfs(existing).ok().map(|it| it.f_type as u64 & 0xffff_ffff);
        let (file_system, support) = magic.map_or_else(|| ("unknown".into(), FileSystemSupport::Unknown), support_of);
        let free_bytes = statvfs(existing).ok().map(|it| it.f_bavail.saturating_mul(it.f_frsize));
        Self { dir: dir.to_owned(), file_system, support, free_bytes }
    }
}

fn support_of(magic: u64) -> (String, FileSystemSupport) {
    let known = KNOWN.iter().find(|it| it.0 == magic);
    known.map_or_else(|| (format!("{magic:#x}"), FileSystemSupport::Unknown), |it| (it.1.to_owned(), it.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_has_the_file_system_of_its_parent() {
        let found = DataDirectory::inspect(Path::new("/proc/nothing/here"));
        assert_eq!((found.file_system.as_str(), found.support), ("0x9fa0", FileSystemSupport::Unknown));
        assert_eq!(found.dir, Path::new("/proc/nothing/here"));
    }

    #[test]
    fn an_overlay_holds_no_upper_layer() {
        assert_eq!(support_of(0x794c_7630), ("overlay".into(), FileSystemSupport::None));
        assert!(support_of(0xef53).1.holds_upper() && support_of(1).1.holds_upper());
    }
}
