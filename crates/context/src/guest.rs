//! The built-in guests, one per architecture, and their files on the host.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use coracle_runtime::ContainerRuntime;
use coracle_types::EngineKind;
use flate2::read::GzDecoder;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::config::{self, Config};
use crate::state::StateDir;

/// Maximum size of an unpacked guest.
const MAX_BYTES: u64 = 32 << 20;

/// Permission bits of the file: every user of a container may execute it, and none may change it. If root owns it, only
/// root may read it: the memory of a process whose program is unreadable is protected from the start, without a request
/// that may come too late. Other owners need read permission themselves.
fn mode() -> u32 {
    if rustix::process::geteuid().is_root() { 0o111 } else { 0o555 }
}

/// Prefix of an incomplete guest.
const UNFINISHED: &str = ".unfinished-";

/// Age after which the writer of an incomplete guest must have died.
const ABANDONED: Duration = Duration::from_hours(1);

/// A guest for one architecture, compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestFile {
    /// `amd64` or `arm64`.
    pub arch: &'static str,
    /// SHA-256 of its unpacked bytes, in hex.
    pub sha256: &'static str,
    gz: &'static [u8],
}

/// The built-in workers.
const WORKERS: &[GuestFile] = &[
    #[cfg(worker_amd64)]
    GuestFile {
        arch: "amd64",
        sha256: env!("CORACLE_WORKER_AMD64_SHA256"),
        gz: include_bytes!(env!("CORACLE_WORKER_AMD64")),
    },
    #[cfg(worker_arm64)]
    GuestFile {
        arch: "arm64",
        sha256: env!("CORACLE_WORKER_ARM64_SHA256"),
        gz: include_bytes!(env!("CORACLE_WORKER_ARM64")),
    },
];

/// Returns the worker for an architecture, which is stored like a guest.
#[must_use]
pub fn embedded_worker(arch: &str) -> Option<GuestFile> {
    WORKERS.iter().copied().find(|it| it.arch == arch)
}

/// The built-in guests; empty if none was built before.
const EMBEDDED: &[GuestFile] = &[
    #[cfg(guest_amd64)]
    GuestFile {
        arch: "amd64",
        sha256: env!("CORACLE_GUEST_AMD64_SHA256"),
        gz: include_bytes!(env!("CORACLE_GUEST_AMD64")),
    },
    #[cfg(guest_arm64)]
    GuestFile {
        arch: "arm64",
        sha256: env!("CORACLE_GUEST_ARM64_SHA256"),
        gz: include_bytes!(env!("CORACLE_GUEST_ARM64")),
    },
];

/// Returns the guest for an architecture: `amd64` or `arm64`, by the engines' names.
#[must_use]
pub fn embedded(arch: &str) -> Option<GuestFile> {
    EMBEDDED.iter().copied().find(|it| it.arch == arch)
}

/// Identifies a verified file: device, inode and time of the last change.
type FileIdentity = (u64, u64, i64, i64);

/// The guests that this process has verified. Locked during a verification, so that other threads wait for it.
static SEEN: Mutex<BTreeMap<PathBuf, FileIdentity>> = Mutex::new(BTreeMap::new());

/// Returns the file of the guest for this host, for an engine that starts containers itself.
pub(crate) fn place_for_this_machine(config: &Config, state: &StateDir) -> io::Result<Option<PathBuf>> {
    let guest = embedded(this_arch()).filter(|_| config.guest != config::Guest::Never);
    guest.map(|it| it.place(&state.root().join("guest"))).transpose()
}

pub(crate) fn this_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Whether the engine can mount files of this host.
pub fn shares_files(runtime: &dyn ContainerRuntime) -> bool {
    let endpoint = runtime.endpoint().address;
    matches!(runtime.kind(), EngineKind::Fake | EngineKind::Embedded)
        || endpoint == "local"
        || endpoint.starts_with("unix://")
}

impl GuestFile {
    /// Ensures that the guest exists as a file that a container can mount and execute: `<dir>/<sha256>`. The file is
    /// verified if it changed since the last time, and replaced if it is missing or wrong. Blocks.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn place(&self, dir: &Path) -> io::Result<PathBuf> {
        let path = dir.join(self.sha256);
        let mut known = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let there = fs::symlink_metadata(&path).ok();
        if there.as_ref().is_some_and(|it| known.get(&path) == Some(&seen(it))) {
            return Ok(path);
        }
        let is_noted =
            |it: Metadata| is_ours(&it) && fs::read_to_string(noted(&path)).is_ok_and(|noted| noted == note(&it));
        if there.is_some_and(is_noted) {
            return Ok(path);
        }
        let right = match self.check(&path)? {
            Some(right) => right,
            None => self.write(dir, &path)?,
        };
        known.insert(path.clone(), seen(&right));
        let _ = fs::write(noted(&path), note(&right)); // a process that finds no note reads the guest itself
        Ok(path)
    }

    /// Unpacks the guest.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the embedded guest is damaged, or unpacks to more than 32 MiB.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        GzDecoder::new(self.gz).take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES || hex::encode(Sha256::digest(&bytes)) != self.sha256 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the embedded guest is damaged"));
        }
        Ok(bytes)
    }

    /// Returns the metadata of the file, if it is this guest and no other user could have written it or can change it.
    fn check(&self, path: &Path) -> io::Result<Option<Metadata>> {
        // Follows no link, and does not wait for the writer of a pipe.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let Ok(file) = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path) else {
            return Ok(None);
        };
        let meta = file.metadata()?;
        if !is_ours(&meta) || meta.len() > MAX_BYTES {
            return Ok(None);
        }
        Ok((coracle_host::fs::digest(&file)?.sha256 == self.sha256).then_some(meta))
    }

    /// Writes a temporary file and renames it, so that other processes see a complete file or none. A valid file is
    /// never replaced, which another process may have written meanwhile: a starting container cannot mount a file that
    /// was unlinked.
    fn write(&self, dir: &Path, path: &Path) -> io::Result<Metadata> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        remove_abandoned(dir)?;
        let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(dir)?;
        file.write_all(&self.bytes()?)?;
        file.as_file().set_permissions(Permissions::from_mode(mode()))?;
        file.as_file().sync_all()?;
        let file = match file.persist_noclobber(path) {
            Ok(file) => file,
            Err(taken) if taken.error.kind() == io::ErrorKind::AlreadyExists => match self.check(path)? {
                Some(right) => return Ok(right),
                None => taken.file.persist(path)?,
            },
            Err(failed) => return Err(failed.error),
        };
        File::open(dir)?.sync_all()?;
        file.metadata()
    }
}

fn seen(meta: &Metadata) -> FileIdentity {
    (meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec())
}

/// Returns the path of a note for other processes about the verified file, since reading it takes longer than most
/// calls. A user who can write the note can also write the guest.
fn noted(guest: &Path) -> PathBuf {
    guest.with_extension("right")
}

fn note(meta: &Metadata) -> String {
    let (device, inode, seconds, nanoseconds) = seen(meta);
    format!("{device} {inode} {seconds} {nanoseconds}")
}

/// Whether no other user could have written it or can change it.
fn is_ours(meta: &Metadata) -> bool {
    meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o7777 == mode()
}

/// Removes files of processes that were killed while they wrote.
fn remove_abandoned(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED);
        // Another process may have removed it meanwhile.
        let age = entry.metadata().and_then(|it| it.modified()).ok().and_then(|it| it.elapsed().ok());
        if unfinished && age.is_some_and(|it| it > ABANDONED) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;
    use std::sync::Barrier;
    use std::time::SystemTime;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tempfile::TempDir;

    use super::*;

    const CONTENT: &[u8] = b"\x7fELF, so to speak";

    fn packed(content: &[u8]) -> &'static [u8] {
        let mut gz = GzEncoder::new(Vec::new(), Compression::best());
        gz.write_all(content).unwrap();
        gz.finish().unwrap().leak()
    }

    fn guest(content: &[u8]) -> GuestFile {
        GuestFile { arch: "amd64", sha256: hex::encode(Sha256::digest(content)).leak(), gz: packed(content) }
    }

    fn placed() -> (TempDir, GuestFile, PathBuf) {
        let (dir, guest) = (tempfile::tempdir().unwrap(), guest(CONTENT));
        let path = guest.place(&dir.path().join("guest")).unwrap();
        (dir, guest, path)
    }

    fn is_right(path: &Path) -> bool {
        let meta = fs::symlink_metadata(path).unwrap();
        meta.is_file() && meta.mode() & 0o7777 == mode() && fs::read(path).unwrap() == CONTENT
    }

    #[test]
    fn the_guest_is_unpacked_once_to_an_executable_read_only_file() {
        let (dir, guest, path) = placed();
        assert_eq!(path, dir.path().join("guest").join(guest.sha256));
        assert!(is_right(&path));
        assert_eq!(dir.path().join("guest").metadata().unwrap().mode() & 0o777, 0o700);
        let first = path.metadata().unwrap().ino();
        guest.place(&dir.path().join("guest")).unwrap();
        SEEN.lock().unwrap().remove(&path); // as another process
        guest.place(&dir.path().join("guest")).unwrap();
        assert_eq!(path.metadata().unwrap().ino(), first);
    }

    #[test]
    fn any_other_file_is_replaced() {
        type Damage = fn(&Path);
        let damages: [(&str, Damage); 5] = [
            ("missing", |path| fs::remove_file(path).unwrap()),
            ("cut", |path| replace(path, &CONTENT[1..])),
            ("another of the same length", |path| replace(path, b"\x7fELF, so to speaK")),
            ("writable", |path| fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap()),
            ("a link", |path| {
                let aside = path.with_extension("aside");
                fs::rename(path, &aside).unwrap();
                symlink(aside, path).unwrap();
            }),
        ];
        let (_dir, guest, path) = placed();
        for known in [true, false] {
            for (what, damage) in damages {
                damage(&path);
                if !known {
                    SEEN.lock().unwrap().remove(&path);
                }
                guest.place(path.parent().unwrap()).unwrap();
                assert!(is_right(&path), "{what}, seen before: {known}");
            }
        }
    }

    #[test]
    fn another_process_verifies_a_guest_only_if_the_file_changed() {
        let (_dir, guest, path) = placed();
        let place = || {
            SEEN.lock().unwrap().remove(&path);
            guest.place(path.parent().unwrap()).unwrap();
        };
        fs::write(noted(&path), note(&path.metadata().unwrap())).unwrap();
        let unread = fs::metadata(&path).unwrap();
        place();
        assert!(!SEEN.lock().unwrap().contains_key(&path), "it was read");
        replace(&path, b"\x7fELF, so to speaK");
        assert_ne!(note(&unread), note(&path.metadata().unwrap()));
        place();
        assert!(is_right(&path));
    }

    fn replace(path: &Path, content: &[u8]) {
        fs::remove_file(path).unwrap();
        fs::write(path, content).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode())).unwrap();
    }

    #[test]
    fn concurrent_writers_leave_one_file_that_is_never_replaced() {
        let (dir, guest, at_once) = (tempfile::tempdir().unwrap(), guest(&CONTENT.repeat(10_000)), Barrier::new(8));
        let write = || {
            at_once.wait();
            guest.write(dir.path(), &dir.path().join(guest.sha256)).unwrap().ino() // past the lock, as processes are
        };
        let files: BTreeSet<u64> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8).map(|_| scope.spawn(write)).collect();
            writers.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert_eq!(files.len(), 1);
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, [guest.sha256]);
        assert!(guest.check(&dir.path().join(guest.sha256)).unwrap().is_some());
    }

    #[test]
    fn files_of_killed_processes_are_removed_and_those_being_written_are_not() {
        let (_dir, guest, path) = placed();
        let dir = path.parent().unwrap();
        let (old, new) = (dir.join(format!("{UNFINISHED}old")), dir.join(format!("{UNFINISHED}new")));
        fs::write(&old, "").unwrap();
        fs::write(&new, "").unwrap();
        File::options().write(true).open(&old).unwrap().set_modified(SystemTime::now() - 2 * ABANDONED).unwrap();
        fs::remove_file(&path).unwrap();
        guest.place(dir).unwrap();
        assert_eq!((old.exists(), new.exists()), (false, true));
    }

    #[test]
    fn a_damaged_or_too_large_guest_is_an_error_and_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let cut = GuestFile { gz: &packed(CONTENT)[..20], ..guest(CONTENT) };
        let other = GuestFile { gz: packed(b"another"), ..guest(CONTENT) };
        let bomb = GuestFile { gz: packed(&vec![0; MAX_BYTES as usize + 1]), ..guest(CONTENT) };
        for damaged in [cut, other, bomb] {
            damaged.bytes().unwrap_err();
            damaged.place(dir.path()).unwrap_err();
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn embedded_guests_have_their_hash() {
        for guest in EMBEDDED.iter().chain(WORKERS) {
            let found = [embedded(guest.arch), embedded_worker(guest.arch)];
            assert!(found.contains(&Some(*guest)));
            assert!(guest.bytes().unwrap().starts_with(b"\x7fELF"), "{}", guest.arch);
        }
        assert_eq!(embedded("pdp11"), None);
    }
}
