//! The guest that this program carries, one for each architecture, and its place on the host.

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

/// Of an unpacked guest, at most.
const MAX_BYTES: u64 = 32 << 20;

/// Permission bits of a guest that is in place: whoever a container runs as may start it, nobody may change it. Where it is
/// root's nobody else may read it either: a program that cannot be read is started with a memory that nobody gets at, and
/// does not have to ask for that when it may be too late. Whoever is not root has to read the file itself.
fn mode() -> u32 {
    if rustix::process::geteuid().is_root() { 0o111 } else { 0o555 }
}

/// What a guest is called before it is whole.
const UNFINISHED: &str = ".unfinished-";

/// After that time, a writer has died.
const ABANDONED: Duration = Duration::from_hours(1);

/// A guest for one architecture, compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestFile {
    /// `amd64` or `arm64`.
    pub arch: &'static str,
    /// SHA-256 of its bytes, unpacked, in hex.
    pub sha256: &'static str,
    gz: &'static [u8],
}

/// The workers that the build found, likewise.
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

/// The worker for an architecture, which is placed as the guest is.
#[must_use]
pub fn embedded_worker(arch: &str) -> Option<GuestFile> {
    WORKERS.iter().copied().find(|it| it.arch == arch)
}

/// What the build found; nothing where the guest was not built before.
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

/// The guest for an architecture: `amd64` or `arm64`, as engines say it.
#[must_use]
pub fn embedded(arch: &str) -> Option<GuestFile> {
    EMBEDDED.iter().copied().find(|it| it.arch == arch)
}

/// What a file was when its content was found right: device, inode and time of the last change.
type FileIdentity = (u64, u64, i64, i64);

/// The guests that this process has looked at. Held while one looks, so that others wait for the answer.
static SEEN: Mutex<BTreeMap<PathBuf, FileIdentity>> = Mutex::new(BTreeMap::new());

/// The guest of this machine's architecture, in its place: for an engine that starts containers itself.
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

/// Whether the engine sees the files of this host.
pub fn shares_files(runtime: &dyn ContainerRuntime) -> bool {
    let endpoint = runtime.endpoint().address;
    matches!(runtime.kind(), EngineKind::Fake | EngineKind::Embedded)
        || endpoint == "local"
        || endpoint.starts_with("unix://")
}

impl GuestFile {
    /// Makes sure of the guest as a file that a container can mount and start: `<dir>/<sha256>`. It is read when it is
    /// another file than the last time, and written anew when it is missing or is not what it should be. Blocks.
    ///
    /// # Errors
    /// Whatever the file system says.
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

    /// The guest's bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`]: what was embedded is damaged, or unpacks to more than 32 MiB.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        GzDecoder::new(self.gz).take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES || hex::encode(Sha256::digest(&bytes)) != self.sha256 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the embedded guest is damaged"));
        }
        Ok(bytes)
    }

    /// What is at the path, if it is this guest and nobody else could have put it there or can change it.
    fn check(&self, path: &Path) -> io::Result<Option<Metadata>> {
        // Never through a link, and never waiting for the writer of a pipe.
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

    /// Written beside and renamed: another process sees all of it or nothing. One that is right is never replaced, which another
    /// process may have put there meanwhile: a container that starts could not mount a file that lost its name.
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

/// Where a process notes for the next ones which file it has found right: to read it takes longer than most calls. Who can
/// write there can write the guest.
fn noted(guest: &Path) -> PathBuf {
    guest.with_extension("right")
}

fn note(meta: &Metadata) -> String {
    let (device, inode, seconds, nanoseconds) = seen(meta);
    format!("{device} {inode} {seconds} {nanoseconds}")
}

/// Nobody else could have put it there or can change it.
fn is_ours(meta: &Metadata) -> bool {
    meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o7777 == mode()
}

/// Files of processes that were killed while they wrote.
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
    fn it_is_unpacked_once_to_a_file_that_can_be_started_and_not_written() {
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
    fn whatever_is_not_the_guest_is_replaced() {
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
    fn another_process_reads_a_guest_only_if_it_is_another_file() {
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
    fn many_at_once_leave_one_file_that_is_never_replaced() {
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
    fn what_a_killed_process_left_is_removed_and_what_is_being_written_is_not() {
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
    fn a_damaged_or_boundless_embedding_is_an_error_and_leaves_nothing() {
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
    fn what_is_embedded_is_what_its_hash_says() {
        for guest in EMBEDDED.iter().chain(WORKERS) {
            let found = [embedded(guest.arch), embedded_worker(guest.arch)];
            assert!(found.contains(&Some(*guest)));
            assert!(guest.bytes().unwrap().starts_with(b"\x7fELF"), "{}", guest.arch);
        }
        assert_eq!(embedded("pdp11"), None);
    }
}
