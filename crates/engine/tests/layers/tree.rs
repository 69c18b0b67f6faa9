//! A file tree as a map that can be compared.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// All that a program can see of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    kind: &'static str,
    mode: u32,
    owner: (u32, u32),
    device: u64,
    /// Of a directory it says nothing.
    size: u64,
    /// Archives of Docker and BuildKit have whole seconds.
    modified: i64,
    content: String,
    xattrs: BTreeMap<String, String>,
    /// The first name of the same file.
    same_as: PathBuf,
}

/// Everything beneath a directory, and itself.
pub(crate) fn read(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let (mut all, mut links, mut pending) = (BTreeMap::new(), HashMap::new(), vec![PathBuf::new()]);
    while let Some(path) = pending.pop() {
        let at = root.join(&path);
        let seen = look(&at, &path, &mut links);
        if seen.kind == "directory" {
            let mut inner: Vec<_> =
                std::fs::read_dir(&at).unwrap().map(|it| path.join(it.unwrap().file_name())).collect();
            inner.sort();
            pending.extend(inner.into_iter().rev());
        }
        all.insert(path, seen);
    }
    all
}

fn look(at: &Path, path: &Path, links: &mut HashMap<(u64, u64), PathBuf>) -> Seen {
    let found = at.symlink_metadata().unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    let kind = match found.file_type() {
        it if it.is_dir() => "directory",
        it if it.is_file() => "file",
        it if it.is_symlink() => "link",
        it if it.is_char_device() => "character device",
        it if it.is_block_device() => "block device",
        it if it.is_fifo() => "pipe",
        _ => "other",
    };
    let content = match kind {
        "file" => hex::encode(Sha256::digest(std::fs::read(at).unwrap())),
        "link" => std::fs::read_link(at).unwrap().into_os_string().into_vec().escape_ascii().to_string(),
        _ => String::new(),
    };
    let is_linked = kind != "directory" && found.nlink() > 1;
    let same_as = if is_linked {
        links.entry((found.dev(), found.ino())).or_insert_with(|| path.to_owned()).clone()
    } else {
        path.to_owned()
    };
    Seen {
        kind,
        mode: found.mode() & 0o7777,
        owner: (found.uid(), found.gid()),
        device: found.rdev(),
        size: if kind == "directory" { 0 } else { found.size() },
        modified: found.mtime(),
        content,
        xattrs: xattrs(at),
        same_as,
    }
}

fn xattrs(at: &Path) -> BTreeMap<String, String> {
    let mut names = vec![0; 65536];
    let length = rustix::fs::llistxattr(at, &mut names[..]).unwrap();
    let names = names[..length].split(|it| *it == 0).filter(|it| !it.is_empty() && *it != b"security.selinux");
    let value = |name: &[u8]| {
        let mut value = vec![0; 65536];
        let length = rustix::fs::lgetxattr(at, name, &mut value[..]).unwrap();
        (std::ffi::OsStr::from_bytes(name).to_string_lossy().into_owned(), value[..length].escape_ascii().to_string())
    };
    names.map(value).collect()
}
