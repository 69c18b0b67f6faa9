//! Archives that depend on their content alone: sorted entries that root owns, one time for all of them.

use std::collections::BTreeSet;
use std::io::Write as _;

use anyhow::{Result, ensure};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// A file of an archive. Directories follow from the paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArchiveFile {
    /// Relative, without `.` and `..`.
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) content: Vec<u8>,
}

impl ArchiveFile {
    pub(crate) fn new(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), mode: 0o644, content: content.into() }
    }

    /// The same with permission to execute it.
    pub(crate) fn program(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { mode: 0o755, ..Self::new(path, content) }
    }
}

/// A tar archive whose paths begin with `prefix`, each directory before its content. `time` is in seconds since 1970.
pub(crate) fn tar(prefix: &str, files: &[ArchiveFile], time: u64) -> Result<Vec<u8>> {
    let mut files: Vec<&ArchiveFile> = files.iter().collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut archive = Builder::new(Vec::new());
    let mut known = BTreeSet::new();
    for file in files {
        let path = format!("{prefix}{}", file.path);
        for (end, _) in path.match_indices('/') {
            if known.insert(path[..=end].to_owned()) {
                let header = header(&path[..=end], EntryType::Directory, 0o755, time)?;
                archive.append(&header, &[][..])?;
            }
        }
        let mut header = header(&path, EntryType::Regular, file.mode, time)?;
        header.set_size(file.content.len() as u64);
        header.set_cksum();
        archive.append(&header, &file.content[..])?;
    }
    Ok(archive.into_inner()?)
}

/// A name is written as it stands: the library would drop the `./` of Debian's archives.
fn header(path: &str, kind: EntryType, mode: u32, time: u64) -> Result<Header> {
    let mut header = Header::new_gnu();
    let name = &mut header.as_old_mut().name;
    ensure!(path.len() <= name.len(), "{path} is too long for the archive");
    name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    header.set_mtime(time);
    header.set_size(0);
    header.set_cksum();
    Ok(header)
}

/// The gzip format without name and time.
pub(crate) fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}

/// Both.
pub(crate) fn tar_gz(prefix: &str, files: &[ArchiveFile], time: u64) -> Result<Vec<u8>> {
    gzip(&tar(prefix, files, time)?)
}
