//! Packs and unpacks archives, within a container's root directory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use coracle_archive::restore::restore;
use coracle_archive::tar::{LimitedWriter, Reader, Writer, pack_tree};
use serde::{Deserialize, Serialize};

/// The result of a requested archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DownloadOutcome {
    Complete,
    Missing,
    TooLarge,
}

/// Unpacks into an existing directory, with the owners, modes and times of the archive.
pub(crate) fn unpack(tar: File, at: &Path) -> io::Result<()> {
    restore(&mut Reader::open(tar)?, File::open("/")?, at)
}

/// Packs a path; its last component is the name of the first entry. Sockets are left out.
pub(crate) fn pack(path: &Path, into: File, max_bytes: u64) -> io::Result<DownloadOutcome> {
    match fs::symlink_metadata(path) {
        Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(DownloadOutcome::Missing);
        }
        found => found?,
    };
    let name = path.file_name().map_or_else(|| PathBuf::from("."), PathBuf::from);
    let mut tar = Writer::new(LimitedWriter::new(into, max_bytes));
    match pack_tree(&mut tar, path, &name).and_then(|()| tar.finish()) {
        Ok(_) => Ok(DownloadOutcome::Complete),
        Err(err) if err.kind() == io::ErrorKind::FileTooLarge => Ok(DownloadOutcome::TooLarge),
        Err(err) => Err(err),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek as _;

    use super::*;

    #[test]
    fn links_and_names_of_any_kind_are_packed() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("tree");
        let long = "long".repeat(40);
        fs::create_dir(&at).unwrap();
        fs::write(at.join(&long), "long").unwrap();
        for (name, target) in [("root", "/"), ("up", "../../.."), ("far", "/etc/passwd")] {
            std::os::unix::fs::symlink(target, at.join(name)).unwrap();
        }
        let mut into = tempfile::tempfile().unwrap();
        assert_eq!(pack(&at, into.try_clone().unwrap(), 1 << 20).unwrap(), DownloadOutcome::Complete);
        into.rewind().unwrap();
        let mut archive = tar::Archive::new(into);
        let entries = archive.entries().unwrap().map(|it| {
            let it = it.unwrap();
            let link = it.link_name().unwrap().map(|it| it.display().to_string()).unwrap_or_default();
            format!("{} {link}", it.path().unwrap().display())
        });
        let expected = ["tree ", "tree/far /etc/passwd", &format!("tree/{long} "), "tree/root /", "tree/up ../../.."]
            .map(String::from);
        assert_eq!(entries.collect::<Vec<_>>(), expected);
        let small = pack(&at, tempfile::tempfile().unwrap(), 1000).unwrap();
        assert_eq!(small, DownloadOutcome::TooLarge);
    }
}
