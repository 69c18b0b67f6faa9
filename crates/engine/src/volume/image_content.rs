//! Copies content, owner and mode of an image's directory into the new volume that is mounted over it.
//!
//! The image's directory is the overlay of its layers. It is merged here rather than mounted, since the copy may be made
//! before the container's mount namespace exists. Paths are opened by directory descriptors, without following links.
//! Devices, sockets and pipes are omitted.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use coracle_types::random_hex;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, Uid, chownat, fchmod,
    fgetxattr, fstat, futimens, mkdirat, openat, readlinkat, renameat_with, statat, symlinkat, syncfs,
};
use rustix::io::Errno;

use crate::cancel::CancelFlag;
use crate::owner;
use crate::write_guard::WriteGuard;

/// Bytes that the kernel copies at once. The free space is checked after each part.
const PART: u64 = 64 << 20;

/// Maximum depth of a tree, since each level needs one descriptor per layer.
const MAX_DEPTH: usize = 128;

/// The prefix of the name of an unfinished copy.
const COPY: &str = ".copy-";

/// A complete copy whose entries move into the volume.
const COMPLETE_COPY: &str = ".filling";

const OPAQUE: [&str; 2] = ["trusted.overlay.opaque", "user.overlay.opaque"];

/// The directory of an image from which a new volume gets its content and owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageDirectory<'a> {
    /// Unpacked layers, topmost first.
    pub(crate) layers: &'a [PathBuf],
    /// The absolute path inside.
    pub(crate) target: &'a str,
}

/// Fills an empty directory; returns whether it did. Does nothing if the directory is not empty or missing in the image. The
/// directory itself is not replaced, since running containers may have mounted it. The caller holds the lock of the volume.
pub(super) fn copy_into_empty(image: &ImageDirectory<'_>, data: &Path) -> io::Result<bool> {
    let volume = data.parent().ok_or(io::ErrorKind::InvalidInput)?;
    if finish_filling(volume, data)? {
        return Ok(true);
    }
    if std::fs::read_dir(data)?.next().is_some() {
        return Ok(false);
    }
    let source = MergedDir::open(image)?;
    let Some(top) = source.0.first() else { return Ok(false) };
    let aside = volume.join(format!("{COPY}{}.{}", owner::this_process(), random_hex::<8>()));
    std::fs::create_dir(&aside)?;
    let copied = open_dir(CWD, aside.as_os_str()).and_then(|to| {
        let mut guard = WriteGuard::new("the volume", &to, CancelFlag::NEVER)?;
        copy_dir(&source, &to, &fstat(top)?, 0, &mut guard)?;
        // Synced, since names may be written before content: after a power loss, the volume would have truncated files, and
        // count as used.
        Ok(syncfs(&to)?)
    });
    // From here on, another process finishes the copy if this one dies.
    if let Err(err) = copied.and_then(|()| std::fs::rename(&aside, volume.join(COMPLETE_COPY))) {
        std::fs::remove_dir_all(&aside)?;
        return Err(err);
    }
    finish_filling(volume, data)
}

/// Whether there is a complete copy to move into the volume.
pub(super) fn is_filling(volume: &Path) -> bool {
    volume.join(COMPLETE_COPY).exists()
}

/// Moves the entries of a complete copy into the volume, and sets the copy's owner, mode and times. Names that a running
/// container has created meanwhile stay. Returns `false` if there is no copy. The caller holds the lock of the volume.
pub(super) fn finish_filling(volume: &Path, data: &Path) -> io::Result<bool> {
    let copy = volume.join(COMPLETE_COPY);
    let from = match open_dir(CWD, copy.as_os_str()) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let (to, stat) = (open_dir(CWD, data.as_os_str())?, fstat(&from)?);
    for (name, _) in MergedDir(vec![from.try_clone()?]).entries()? {
        match renameat_with(&from, &name, &to, &name, RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    set_owner(&to, OsStr::new(""), &stat)?;
    finish(&to, &stat)?;
    std::fs::remove_dir_all(&copy)?;
    Ok(true)
}

/// Removes unfinished copies of dead processes from the directory of a volume.
pub(super) fn remove_unfinished(volume: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(volume)? {
        let entry = entry?;
        if entry.file_name().to_str().and_then(|it| it.strip_prefix(COPY)).is_some_and(owner::maker_has_died) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// One directory in all layers that contribute to it, topmost first; none if the image has no such directory.
struct MergedDir(Vec<OwnedFd>);

impl MergedDir {
    /// Opens the directory. Refuses `..`, which could lead out of a layer.
    fn open(image: &ImageDirectory<'_>) -> io::Result<Self> {
        if image.target.split('/').any(|it| it == "..") {
            let why = format!("the path of a volume leads upwards: `{}`", image.target.escape_debug());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut dir = Self(image.layers.iter().map(|it| open_dir(CWD, it.as_os_str())).collect::<io::Result<_>>()?);
        for part in image.target.split('/').filter(|it| !it.is_empty() && *it != ".") {
            dir = dir.enter(OsStr::new(part))?;
        }
        Ok(dir)
    }

    /// Opens a directory below. An opaque directory hides those of lower layers, and so does an entry that is not a
    /// directory.
    fn enter(&self, name: &OsStr) -> io::Result<Self> {
        let mut below = Vec::new();
        for layer in &self.0 {
            match statat(layer, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Directory => break,
                Ok(_) => {}
            }
            let dir = open_dir(layer, name)?;
            let is_opaque = OPAQUE.iter().any(|it| fgetxattr(&dir, *it, &mut [0; 1]) == Ok(1));
            below.push(dir);
            if is_opaque {
                break;
            }
        }
        Ok(Self(below))
    }

    /// Lists each name once, with the topmost layer that has it.
    fn entries(&self) -> io::Result<Vec<(OsString, &OwnedFd)>> {
        let (mut names, mut entries) = (BTreeSet::new(), Vec::new());
        for layer in &self.0 {
            for entry in Dir::read_from(layer)? {
                let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
                let is_dots = name == "." || name == "..";
                if !is_dots && names.insert(name.clone()) {
                    entries.push((name, layer));
                }
            }
        }
        Ok(entries)
    }
}

fn copy_dir(from: &MergedDir, to: &OwnedFd, stat: &Stat, depth: usize, guard: &mut WriteGuard) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(io::Error::other("the image's directory is too deep for a volume"));
    }
    for (name, layer) in from.entries()? {
        let entry = statat(layer, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(entry.st_mode) {
            FileType::Directory => {
                mkdirat(to, &name, Mode::RWXU)?;
                copy_dir(&from.enter(&name)?, &open_dir(to, &name)?, &entry, depth + 1, guard)?;
            }
            FileType::RegularFile => copy_file(layer, to, &name, &entry, guard)?,
            FileType::Symlink => {
                symlinkat(readlinkat(layer, &name, Vec::new())?, to, &name)?;
                set_owner(to, &name, &entry)?;
            }
            // Whiteouts are devices, too.
            _ => {}
        }
    }
    set_owner(to, OsStr::new(""), stat)?;
    finish(to, stat)
}

fn copy_file(layer: &OwnedFd, to: &OwnedFd, name: &OsStr, stat: &Stat, guard: &mut WriteGuard) -> io::Result<()> {
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let source = File::from(openat(layer, name, read, Mode::empty())?);
    let mut target = File::from(openat(to, name, write, Mode::RUSR | Mode::WUSR)?);
    loop {
        match io::copy(&mut (&source).take(PART), &mut target)? {
            0 => break,
            copied => guard.written(copied)?,
        }
    }
    set_owner(to, name, stat)?;
    finish(&OwnedFd::from(target), stat)
}

/// Sets the owner. Comes before the mode, since a change of the owner clears set-id bits.
fn set_owner(dir: &OwnedFd, name: &OsStr, stat: &Stat) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    Ok(chownat(dir, name, Some(uid), Some(gid), flags)?)
}

fn finish(file: &OwnedFd, stat: &Stat) -> io::Result<()> {
    fchmod(file, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    let time = |seconds, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or_default(),
    };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    Ok(futimens(file, &times)?)
}

fn open_dir(at: impl std::os::fd::AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use rustix::fs::{XattrFlags, setxattr};

    use super::*;

    /// Two layers and a volume's directory next to them.
    struct Case {
        _dir: tempfile::TempDir,
        layers: Vec<PathBuf>,
        data: PathBuf,
    }

    impl Case {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let layers: Vec<_> = ["upper", "lower"].map(|it| dir.path().join(it)).into();
            let data = dir.path().join("volume/_data");
            for it in layers.iter().chain([&data]) {
                fs::create_dir_all(it).unwrap();
            }
            Self { _dir: dir, layers, data }
        }

        fn file(&self, layer: usize, path: &str, text: &str) {
            let path = self.layers[layer].join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn copy(&self) -> bool {
            copy_into_empty(&ImageDirectory { layers: &self.layers, target: "/srv/data" }, &self.data).unwrap()
        }

        fn read(&self, path: &str) -> Option<String> {
            fs::read_to_string(self.data.join(path)).ok()
        }
    }

    #[test]
    fn a_volume_gets_the_merged_directory_with_modes_and_links() {
        let case = Case::new();
        case.file(1, "srv/data/both", "lower");
        case.file(1, "srv/data/sub/low", "low");
        case.file(0, "srv/data/both", "upper");
        case.file(0, "srv/data/sub/up", "up");
        symlink("/etc/passwd", case.layers[1].join("srv/data/link")).unwrap();
        fs::set_permissions(case.layers[0].join("srv/data"), fs::Permissions::from_mode(0o1770)).unwrap();
        fs::set_permissions(case.layers[0].join("srv/data/both"), fs::Permissions::from_mode(0o4711)).unwrap();
        case.copy();
        let text = |it: &str| case.read(it).unwrap();
        assert_eq!([text("both"), text("sub/low"), text("sub/up")], ["upper", "low", "up"]);
        assert_eq!(fs::read_link(case.data.join("link")).unwrap(), Path::new("/etc/passwd"));
        assert_eq!(case.data.metadata().unwrap().mode() & 0o7777, 0o1770);
        assert_eq!(case.data.join("both").metadata().unwrap().mode() & 0o7777, 0o4711);
    }

    #[test]
    fn a_container_that_has_the_volume_mounted_sees_what_it_is_filled_with() {
        let case = Case::new();
        case.file(0, "srv/data/file", "image");
        case.file(0, "srv/data/dir/own", "image");
        let mounted = fs::File::open(&case.data).unwrap();
        assert!(case.copy());
        assert_eq!(case.data.metadata().unwrap().ino(), mounted.metadata().unwrap().ino());
        // Of one that died while its copy moved; a container made a name of the copy meanwhile.
        let copy = case.data.with_file_name(COMPLETE_COPY);
        fs::create_dir(&copy).unwrap();
        fs::write(copy.join("file"), "other").unwrap();
        fs::write(copy.join("new"), "new").unwrap();
        assert!(is_filling(case.data.parent().unwrap()));
        assert!(finish_filling(case.data.parent().unwrap(), &case.data).unwrap());
        assert_eq!([case.read("file"), case.read("new")], [Some("image".into()), Some("new".into())]);
        assert!(!copy.exists() && !case.copy());
    }

    #[test]
    fn what_an_upper_layer_hides_is_not_copied() {
        let case = Case::new();
        case.file(1, "srv/data/opaque/hidden", "");
        case.file(0, "srv/data/opaque/seen", "");
        case.file(1, "srv/data/now-a-file/hidden", "");
        case.file(0, "srv/data/now-a-file", "file");
        let opaque = case.layers[0].join("srv/data/opaque");
        setxattr(&opaque, "user.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
        case.copy();
        assert_eq!(case.read("opaque/hidden"), None);
        assert_eq!((case.read("opaque/seen"), case.read("now-a-file")), (Some(String::new()), Some("file".into())));
    }

    #[test]
    fn a_target_that_leads_out_of_the_layers_is_refused() {
        let case = Case::new();
        fs::create_dir_all(case.layers[0].join("srv")).unwrap();
        fs::write(case.layers[0].parent().unwrap().join("secret"), "").unwrap();
        for target in ["/..", "/srv/../..", "../x", "/srv/data/.."] {
            let refused = copy_into_empty(&ImageDirectory { layers: &case.layers, target }, &case.data);
            assert_eq!(refused.map_err(|err| err.kind()), Err(io::ErrorKind::InvalidInput), "{target}");
        }
        assert_eq!(fs::read_dir(&case.data).unwrap().count(), 0);
    }

    #[test]
    fn a_link_on_the_way_leads_nowhere_and_a_used_volume_stays_as_it_is() {
        let case = Case::new();
        fs::create_dir_all(case.layers[0].join("real/data")).unwrap();
        fs::write(case.layers[0].join("real/data/file"), "").unwrap();
        symlink("real", case.layers[0].join("srv")).unwrap();
        case.copy();
        assert_eq!(case.read("file"), None);
        let case = Case::new();
        case.file(0, "srv/data/file", "image");
        fs::write(case.data.join("own"), "").unwrap();
        case.copy();
        assert_eq!((case.read("file"), case.read("own")), (None, Some(String::new())));
    }
}
