//! Writes a [`Tree`] as a tar to a file.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use coracle_archive::tar::{EntryKind, FileTime, TarEntry, Writer};

use super::tree::{Node, Tree};

/// The user and group ids of a base. Files of other owners become root's.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OwnerIds {
    pub(super) uids: BTreeSet<u32>,
    pub(super) gids: BTreeSet<u32>,
}

/// The number of packed files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PackReport {
    pub(super) entries: usize,
    pub(super) bytes: u64,
    /// Missing or unreadable files, and devices.
    pub(super) left_out: usize,
}

/// Packs a tree. An unreadable host file is counted, not an error.
///
/// # Errors
/// If the tar cannot be written.
pub(super) fn pack(tree: &Tree, owners: &OwnerIds, out: &File) -> io::Result<PackReport> {
    let tar = Writer::new(BufWriter::with_capacity(1 << 20, out));
    let mut packer = Packer { tar, owners, links: HashMap::new() };
    let mut packed = PackReport::default();
    for (path, node) in tree.iter() {
        match packer.add(path, node)? {
            Some(bytes) => (packed.entries, packed.bytes) = (packed.entries + 1, packed.bytes + bytes),
            None => packed.left_out += 1,
        }
    }
    packer.tar.finish()?.flush()?;
    Ok(packed)
}

struct Packer<'a> {
    tar: Writer<BufWriter<&'a File>>,
    owners: &'a OwnerIds,
    /// Device and inode of files with several names, and their first name.
    links: HashMap<(u64, u64), PathBuf>,
}

impl Packer<'_> {
    /// Adds an entry and returns its size; `None` if the host's file cannot be read.
    fn add(&mut self, path: &Path, node: &Node) -> io::Result<Option<u64>> {
        let name = path.as_os_str().as_bytes();
        match node {
            Node::Host(source) => return self.add_from_host(path, source),
            Node::Dir { mode } => self.tar.write_entry(&TarEntry::new(name, EntryKind::Directory, *mode))?,
            Node::Link(target) => {
                let target = target.as_os_str().as_bytes().to_vec();
                self.tar.write_entry(&TarEntry::new(name, EntryKind::Symlink(target), 0o777))?;
            }
            Node::File { mode, gid, bytes } => {
                let size = bytes.len() as u64;
                let entry = TarEntry { gid: *gid, ..TarEntry::new(name, EntryKind::file(size), *mode) };
                self.tar.write_file(&entry, &bytes[..])?;
                return Ok(Some(size));
            }
        }
        Ok(Some(0))
    }

    fn add_from_host(&mut self, path: &Path, source: &Path) -> io::Result<Option<u64>> {
        let Ok(meta) = fs::symlink_metadata(source) else { return Ok(None) };
        let kind = if meta.is_symlink() {
            let Ok(target) = fs::read_link(source) else { return Ok(None) };
            EntryKind::Symlink(target.into_os_string().into_vec())
        } else if meta.is_dir() {
            EntryKind::Directory
        } else if meta.is_file() {
            return self.add_file(path, source);
        } else {
            return Ok(None);
        };
        self.tar.write_entry(&self.entry_of(path, kind, &meta))?;
        Ok(Some(0))
    }

    fn add_file(&mut self, path: &Path, source: &Path) -> io::Result<Option<u64>> {
        let Some((file, meta)) = open(source) else { return Ok(None) };
        let id = (meta.dev(), meta.ino());
        if let Some(first) = self.links.get(&id) {
            let first = EntryKind::HardLink(first.as_os_str().as_bytes().to_vec());
            self.tar.write_entry(&self.entry_of(path, first, &meta))?;
            return Ok(Some(0));
        }
        self.tar.write_file(&self.entry_of(path, EntryKind::file(meta.len()), &meta), file)?;
        if meta.nlink() > 1 {
            self.links.insert(id, path.to_owned());
        }
        Ok(Some(meta.len()))
    }

    fn entry_of(&self, path: &Path, kind: EntryKind, meta: &Metadata) -> TarEntry {
        let (known_user, known_group) =
            (self.owners.uids.contains(&meta.uid()), self.owners.gids.contains(&meta.gid()));
        // A set-id file of an owner that the base does not have must not run as root.
        let set_id = if known_user && known_group { 0o7000 } else { 0o1000 };
        TarEntry {
            uid: if known_user { meta.uid() } else { 0 },
            gid: if known_group { meta.gid() } else { 0 },
            mtime: FileTime::from_seconds(meta.mtime()),
            ..TarEntry::new(path.as_os_str().as_bytes(), kind, meta.mode() & (set_id | 0o777))
        }
    }
}

/// Opens a regular file, without following a link that replaced it.
fn open(path: &Path) -> Option<(File, Metadata)> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path).ok()?;
    let meta = file.metadata().ok()?;
    meta.is_file().then_some((file, meta))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use insta::assert_snapshot;

    use super::*;

    /// Lists entries as `tar -tv` does.
    fn listed(tree: &Tree, owners: &OwnerIds) -> (String, PackReport) {
        let mut out = tempfile::tempfile().unwrap();
        let packed = pack(tree, owners, &out).unwrap();
        out.rewind().unwrap();
        let mut lines = String::new();
        for entry in tar::Archive::new(out).entries().unwrap() {
            let mut entry = entry.unwrap();
            let (path, header) = (entry.path().unwrap().display().to_string(), entry.header().clone());
            let target = entry.link_name().unwrap().map(|it| format!(" -> {}", it.display())).unwrap_or_default();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            let (kind, mode) = (header.entry_type(), header.mode().unwrap());
            let owner = format!("{}:{}", header.uid().unwrap(), header.gid().unwrap());
            lines += &format!("{kind:?} {mode:o} {owner} {path}{target} {text:?}\n");
        }
        (lines, packed)
    }

    #[test]
    fn files_links_and_directories_are_packed_and_the_rest_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("a"), "one").unwrap();
        fs::hard_link(at("a"), at("b")).unwrap();
        symlink("../target", at("l")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::RUSR).unwrap();
        fs::set_permissions(at("a"), fs::Permissions::from_mode(0o4755)).unwrap();
        let mut tree = Tree::default();
        for name in ["a", "b", "l", "fifo", "gone"] {
            tree.put(format!("usr/{name}"), Node::Host(at(name)));
        }
        tree.put(format!("usr/{}", "long".repeat(40)), Node::text("x"));
        tree.put("/etc/shadow", Node::File { mode: 0o640, gid: 42, bytes: b"secret".into() });
        tree.put("tmp", Node::Dir { mode: 0o1777 });
        tree.put("bin", Node::Link("usr/bin".into()));
        tree.close();
        let (lines, packed) = listed(&tree, &OwnerIds::default());
        assert_eq!((packed.entries, packed.left_out), (9, 2));
        assert_snapshot!(lines, @r#"
        Symlink 777 0:0 bin -> usr/bin ""
        Directory 755 0:0 etc ""
        Regular 640 0:42 etc/shadow "secret"
        Directory 1777 0:0 tmp ""
        Directory 755 0:0 usr ""
        Regular 755 0:0 usr/a "one"
        Link 755 0:0 usr/b -> usr/a ""
        Symlink 777 0:0 usr/l -> ../target ""
        Regular 644 0:0 usr/longlonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglong "x"
        "#);
    }

    #[test]
    fn a_file_of_a_known_owner_keeps_owner_and_set_id_bit() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("su");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
        let meta = fs::metadata(&file).unwrap();
        let mut tree = Tree::default();
        tree.put("su", Node::Host(file));
        let owners = OwnerIds { uids: [meta.uid()].into(), gids: [meta.gid()].into() };
        let (lines, _) = listed(&tree, &owners);
        assert_eq!(lines, format!("Regular 4755 {}:{} su \"\"\n", meta.uid(), meta.gid()));
    }

    #[test]
    fn packing_twice_gives_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = Tree::default();
        for name in ["z", "a", "m"] {
            fs::write(dir.path().join(name), name).unwrap();
            tree.put(name, Node::Host(dir.path().join(name)));
        }
        let tars = [(); 2].map(|()| {
            let mut out = tempfile::tempfile().unwrap();
            pack(&tree, &OwnerIds::default(), &out).unwrap();
            out.rewind().unwrap();
            let mut bytes = Vec::new();
            out.read_to_end(&mut bytes).unwrap();
            bytes
        });
        assert!(tars[0] == tars[1]);
    }
}
