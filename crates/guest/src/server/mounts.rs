//! Compares the mounts of the container with the expected ones.

use std::collections::BTreeSet;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, makedev, openat, statx};
use rustix::io::Result;

use crate::protocol::MountIdentity;

/// Returns the targets at which another file, or no file, is mounted.
///
/// The engine may have followed a link to place a mount, so each target must be a separate mount, and not merely refer
/// to the expected file.
pub(crate) fn differing_mounts(expected: &[MountIdentity]) -> Vec<String> {
    let mut found = BTreeSet::new();
    let differs = |mount: &&MountIdentity| !matches!(mount_id(mount), Ok(Some(id)) if found.insert(id));
    expected.iter().filter(differs).map(|mount| mount.target.clone()).collect()
}

/// The id of the mount at a target, if the expected file is its root.
fn mount_id(expected: &MountIdentity) -> Result<Option<u64>> {
    let file = openat(CWD, expected.target.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let stat = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
    let device = makedev(stat.stx_dev_major, stat.stx_dev_minor);
    let is_expected = (device, stat.stx_ino) == (expected.device, expected.inode);
    let is_root = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok((is_expected && is_root).then_some(stat.stx_mnt_id))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    fn identity(target: &str, of: &str) -> MountIdentity {
        let file = std::fs::metadata(of).unwrap();
        MountIdentity { target: target.into(), device: file.dev(), inode: file.ino() }
    }

    #[test]
    fn only_the_expected_file_mounted_at_the_target_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let (link, plain) = (dir.path().join("link"), dir.path().join("plain"));
        std::fs::create_dir(&plain).unwrap();
        symlink("/proc", &link).unwrap();
        let (link, plain) = (link.to_str().unwrap(), plain.to_str().unwrap());
        assert_eq!(differing_mounts(&[identity("/proc", "/proc")]), [""; 0]);
        for (wrong, why) in [
            (identity("/proc", plain), "another file is mounted there"),
            (identity(plain, plain), "nothing is mounted there"),
            (identity("/missing", plain), "it is missing"),
        ] {
            let target = wrong.target.clone();
            assert_eq!(differing_mounts(&[wrong]), [target], "{why}");
        }
        // A link instead of the target refers to a file that is mounted elsewhere.
        assert_eq!(differing_mounts(&[identity("/proc", "/proc"), identity(link, "/proc")]), [link]);
    }
}
