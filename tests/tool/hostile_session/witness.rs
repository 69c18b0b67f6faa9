//! A marked tree of the host outside all roots. Any process that opens, reads or changes a file of it is noticed.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use coracle_types::random_hex;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

/// Files like those of users. They are not at their usual paths, where Coracle itself may read them.
const FILES: [(&str, u32); 8] = [
    ("secret", 0o644),
    ("config", 0o644),
    ("private", 0o600),
    ("compose.yml", 0o644),
    ("devcontainer.json", 0o644),
    (".ssh/id_ed25519", 0o600),
    (".aws/credentials", 0o600),
    (".config/gh/hosts.yml", 0o600),
];

/// Settings of the kernel that name programs which run as root of the host.
const SETTINGS: [&str; 2] = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe"];

#[derive(Debug, PartialEq)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    content: Vec<u8>,
}

/// The watched tree, as it was.
#[derive(Debug)]
pub(super) struct Witness {
    pub(super) dir: PathBuf,
    /// Part of each file in the tree.
    pub(super) canary: String,
    before: BTreeMap<PathBuf, Entry>,
    settings: Vec<Option<String>>,
    events: OwnedFd,
}

impl Witness {
    pub(super) fn new(dir: PathBuf) -> Self {
        let canary = format!("canary-{}", random_hex::<8>());
        for (name, mode) in FILES {
            let file = dir.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, format!("{canary}\n")).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        }
        let before = entries(&dir);
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        let flags = WatchFlags::OPEN
            | WatchFlags::ACCESS
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE;
        for path in before.keys().filter(|path| path.is_dir()) {
            inotify::add_watch(&events, path, flags).unwrap();
        }
        Self { dir, canary, before, settings: settings(), events }
    }

    /// Events since the last call. Resolving a path without opening the file is no event.
    fn events(&self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.events, &mut buffer);
        let mut found = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => found.push(format!("{:?} of {:?}", event.events(), event.file_name())),
                Err(Errno::AGAIN) => return found,
                Err(err) => panic!("{err}"),
            }
        }
    }

    /// Fails if anybody opened, read or changed a file of the tree.
    pub(super) fn assert_untouched(&self, after: &str) {
        assert_eq!(self.events(), Vec::<String>::new(), "the host's files were touched by `{after}`");
    }

    /// As [`assert_untouched`](Self::assert_untouched), and compares all content and the kernel's settings. It ends the
    /// watch, since it reads.
    pub(super) fn assert_unchanged(&self) {
        self.assert_untouched("the session");
        assert_eq!(entries(&self.dir), self.before, "the host's files changed");
        assert_eq!(settings(), self.settings, "the kernel's settings changed");
        // Otherwise no event would have been noticed.
        assert!(!self.events().is_empty(), "the watch works");
    }
}

fn settings() -> Vec<Option<String>> {
    SETTINGS.iter().map(|path| std::fs::read_to_string(path).ok()).collect()
}

fn entries(dir: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut found = BTreeMap::new();
    for path in paths(dir) {
        let meta = path.symlink_metadata().unwrap();
        let content = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        let entry = Entry {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            modified: (meta.mtime(), meta.mtime_nsec()),
            content,
        };
        found.insert(path, entry);
    }
    found
}

/// A directory and everything below it, without following links.
fn paths(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            // A directory that its owner cannot read is skipped.
            found.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    found
}

/// Things that may never appear in a directory of the host: set-id bits, devices, and content of the marked tree.
pub(super) fn dangerous(dir: &Path, canary: &str) -> Vec<String> {
    let mut found = Vec::new();
    for path in paths(dir) {
        let Ok(meta) = path.symlink_metadata() else { continue };
        let kind = meta.file_type();
        if !kind.is_symlink() && meta.mode() & 0o6000 != 0 {
            found.push(format!("set-id {:o}: {}", meta.mode(), path.display()));
        }
        if kind.is_block_device() || kind.is_char_device() {
            found.push(format!("device: {}", path.display()));
        }
        let is_small = kind.is_file() && meta.len() < 1 << 20;
        let content = if is_small { std::fs::read(&path).unwrap_or_default() } else { Vec::new() };
        if memchr::memmem::find(&content, canary.as_bytes()).is_some() {
            found.push(format!("content of the host: {}", path.display()));
        }
    }
    found
}

/// Numbers and command lines of processes of the host, containers included, with that text.
pub(in crate::tool) fn processes_with(text: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(Ok(pid)) = entry.file_name().to_str().map(str::parse) else { continue };
        let line = std::fs::read(entry.path().join("cmdline"));
        let line = String::from_utf8_lossy(&line.unwrap_or_default()).replace('\0', " ");
        if line.contains(text) {
            found.push((pid, line));
        }
    }
    found
}
