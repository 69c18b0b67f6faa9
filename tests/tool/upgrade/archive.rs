//! The state of a version, as one file.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tempfile::TempDir;

const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/state");

/// The archives of all versions.
pub(super) fn all() -> Vec<PathBuf> {
    let mut all: Vec<_> = fs::read_dir(DIR).unwrap().map(|it| it.unwrap().path()).collect();
    all.sort();
    all
}

/// Writes the archive of this version.
pub(super) fn write(left: &TempDir) {
    let file = Path::new(DIR).join(concat!(env!("CARGO_PKG_VERSION"), ".tar.gz"));
    let mut gz = GzEncoder::new(File::create(file).unwrap(), Compression::best());
    gz.write_all(&packed(left.path())).unwrap();
    gz.finish().unwrap();
}

/// A tar of files and directories in the order of names. Sockets and links have no state.
fn packed(dir: &Path) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    tar.follow_symlinks(false);
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let mut names: Vec<_> = fs::read_dir(dir.join(&folder)).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        for name in names {
            let (path, below) = (dir.join(&folder).join(&name), folder.join(&name));
            let kind = path.symlink_metadata().unwrap().file_type();
            if kind.is_dir() {
                tar.append_dir(&below, &path).unwrap();
                folders.push(below);
            } else if kind.is_file() {
                tar.append_path_with_name(&path, &below).unwrap();
            }
        }
    }
    tar.into_inner().unwrap()
}

/// Unpacks a copy that a test may change.
pub(super) fn unpacked(archive: &Path) -> TempDir {
    let left = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(archive).unwrap()).read_to_end(&mut bytes).unwrap();
    unpack(&bytes, left.path());
    left
}

/// Copies a directory with its modes and times.
pub(super) fn copy(from: &Path, to: &Path) {
    unpack(&packed(from), to);
    fs::set_permissions(to, PermissionsExt::from_mode(0o700)).unwrap();
}

fn unpack(tar: &[u8], to: &Path) {
    let mut tar = tar::Archive::new(tar);
    tar.set_preserve_permissions(true);
    tar.unpack(to).unwrap();
}
