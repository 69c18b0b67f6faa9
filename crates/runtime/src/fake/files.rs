//! Files of a fake container: a directory of the host, and real tars to and from it.

use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirEntry, Metadata, MetadataExt};
use coracle_archive::restore::restore;
use coracle_archive::tar::{EntryKind, FileTime, LimitedWriter, Reader, TarEntry, Writer};
use coracle_types::{ContainerPath, Error, Result};
use tempfile::TempDir;

use super::{Verb, refused};
use crate::{Mount, Tmpfs, VolumeMount};

/// The files of a busybox image that are read here. `/bin/sh` only marks that there is a shell.
const LOCAL_FILES: [(&str, &str); 3] = [
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n"),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("bin/sh", "#!/bin/false\n"),
];

const LOCAL_DIRS: [&str; 7] = ["bin", "etc", "home", "root", "tmp", "usr", "var"];

/// The root directory of a container and what is mounted over it.
#[derive(Debug)]
pub(super) struct ContainerFiles {
    dir: TempDir,
    mounts: Vec<Mount>,
    /// Volumes and directories in memory, which are not part of its own layer.
    apart: Vec<ContainerPath>,
}

/// A path of a container on the host: a directory that is not left, and the way from there (`.` for itself).
struct HostLocation {
    base: Dir,
    rest: PathBuf,
}

impl ContainerFiles {
    /// The files of an image, a link for each bind, and room for what comes from elsewhere.
    pub(super) fn create(
        layer: Option<Arc<File>>,
        mounts: Vec<Mount>,
        volumes: &[VolumeMount],
        tmpfs: &[Tmpfs],
    ) -> Result<Self> {
        let apart = tmpfs.iter().map(|it| &it.at).chain(volumes.iter().map(|it| &it.at)).cloned().collect();
        let made = || -> io::Result<Self> {
            let files = Self { dir: tempfile::Builder::new().prefix("coracle-fake-").tempdir()?, mounts, apart };
            // Like the root of a container: all users may traverse it.
            std::fs::set_permissions(files.root(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
            match layer {
                Some(layer) => restore(&mut Reader::open(layer)?, files.root_dir()?, Path::new(""))?,
                None => files.make_local()?,
            }
            files.mounts.iter().try_for_each(|it| files.link(it))?;
            tmpfs.iter().try_for_each(|it| files.directory(it))?;
            volumes.iter().try_for_each(|it| files.clear(&it.at))?;
            Ok(files)
        };
        made().map_err(host("cannot make the files of a fake container"))
    }

    pub(super) fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Whether it has bind mounts.
    #[cfg(any(test, feature = "programs"))]
    pub(super) fn has_binds(&self) -> bool {
        !self.mounts.is_empty()
    }

    /// Mount points of volumes and tmpfs.
    #[cfg(any(test, feature = "programs"))]
    pub(super) fn mount_points(&self) -> &[ContainerPath] {
        &self.apart
    }

    fn root_dir(&self) -> io::Result<Dir> {
        Dir::open_ambient_dir(self.root(), ambient_authority())
    }

    /// Clears the tmpfs, as a restart does.
    pub(super) fn forget_memory(&self) {
        // There may be nothing.
        let _ = self.root_dir().and_then(|root| root.remove_dir_all(".coracle/run"));
    }

    fn make_local(&self) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        LOCAL_DIRS.iter().try_for_each(|it| std::fs::create_dir(self.root().join(it)))?;
        LOCAL_FILES.iter().try_for_each(|(path, text)| std::fs::write(self.root().join(path), text))?;
        std::fs::set_permissions(self.root().join("bin/sh"), PermissionsExt::from_mode(0o755))?;
        std::fs::set_permissions(self.root().join("tmp"), PermissionsExt::from_mode(0o1777))
    }

    /// A bind below another one has no link: it would have to be made in the user's own directory.
    fn link(&self, mount: &Mount) -> io::Result<()> {
        let below_another = |it: &Mount| it.at != mount.at && mount.at.is_beneath(it.at.as_str());
        if self.mounts.iter().any(below_another) {
            return Ok(());
        }
        let (root, at) = (self.root_dir()?, relative(&mount.at));
        root.create_dir_all(at.parent().unwrap_or(Path::new(".")))?;
        clear(&root, &at)?;
        symlink(mount.host.real(), self.root().join(at))
    }

    /// Its parent is there, and nothing else at its place.
    fn clear(&self, at: &ContainerPath) -> io::Result<()> {
        let (root, at) = (self.root_dir()?, relative(at));
        root.create_dir_all(at.parent().unwrap_or(Path::new(".")))?;
        clear(&root, &at)
    }

    fn directory(&self, tmpfs: &Tmpfs) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        self.clear(&tmpfs.at)?;
        let path = self.root().join(relative(&tmpfs.at));
        std::fs::create_dir(&path)?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(tmpfs.mode))
    }

    /// The location of a path: in the last bind that covers it, else beneath the root. Links inside are followed as
    /// long as they are relative and stay there.
    fn place(&self, path: &ContainerPath) -> io::Result<HostLocation> {
        let covering = self.mounts.iter().filter(|it| path.is_beneath(it.at.as_str()));
        let Some(mount) = covering.max_by_key(|it| it.at.as_str().len()) else {
            return Ok(HostLocation { base: self.root_dir()?, rest: relative(path) });
        };
        if mount.host.is_dir() {
            let rest = path.as_str()[mount.at.as_str().len()..].trim_start_matches('/');
            return Ok(HostLocation {
                base: mount.host.dir()?,
                rest: if rest.is_empty() { ".".into() } else { rest.into() },
            });
        }
        let real = mount.host.real();
        let base = Dir::open_ambient_dir(real.parent().unwrap_or(Path::new("/")), ambient_authority())?;
        Ok(HostLocation { base, rest: real.file_name().unwrap_or_default().into() })
    }

    /// The directory on the host that commands with this work directory start in, or `None` if there is none.
    pub(super) fn workdir(&self, path: &ContainerPath) -> Option<PathBuf> {
        let HostLocation { base, rest } = self.place(path).ok()?;
        base.metadata(&rest).ok().filter(Metadata::is_dir)?;
        let covering = self.mounts.iter().filter(|it| path.is_beneath(it.at.as_str()));
        let base = covering.max_by_key(|it| it.at.as_str().len()).map_or(self.root(), |it| it.host.real());
        Some(base.join(rest))
    }

    pub(super) fn has_shell(&self) -> bool {
        self.root().join("bin/sh").symlink_metadata().is_ok()
    }

    pub(super) fn upload(&self, at: &ContainerPath, tar: File) -> Result<()> {
        let dir = self.place(at).and_then(|it| it.base.open_dir(&it.rest));
        let dir = dir.map_err(|err| refused(Verb::Upload, format!("cannot enter {at}: {err}")))?;
        let unpacked = Reader::open(tar).and_then(|mut tar| restore(&mut tar, &dir, Path::new("")));
        unpacked.map_err(|err| refused(Verb::Upload, err.to_string()))
    }

    pub(super) fn download(&self, path: &ContainerPath, into: File, max_bytes: u64) -> Result<()> {
        let tar = Writer::new(LimitedWriter::new(into, max_bytes));
        let mut packer = Packer { files: self, tar, mounts: true };
        let name = if path.file_name().is_empty() { "." } else { path.file_name() };
        let packed = packer.pack(path, Path::new(name)).and_then(|()| packer.tar.finish());
        packed.map(drop).map_err(|err| match err.kind() {
            io::ErrorKind::FileTooLarge => Error::TooLarge { max_bytes },
            _ => refused(Verb::Download, format!("cannot read {path}: {err}")),
        })
    }

    /// Everything but what is mounted, as a layer of an image, and its size.
    pub(super) fn layer(&self) -> Result<(File, u64)> {
        let packed = || -> io::Result<(File, u64)> {
            let tar = Writer::new(LimitedWriter::new(tempfile::tempfile()?, u64::MAX));
            let mut packer = Packer { files: self, tar, mounts: false };
            for name in sorted(&self.root_dir()?, Path::new("."))? {
                packer.pack(&join(&ContainerPath::root(), &name)?, Path::new(&name))?;
            }
            let mut layer = packer.tar.finish()?.into_inner();
            let size = layer.stream_position()?;
            layer.rewind()?;
            Ok((layer, size))
        };
        packed().map_err(|err| refused(Verb::Commit, err.to_string()))
    }
}

struct Packer<'a> {
    files: &'a ContainerFiles,
    tar: Writer<LimitedWriter<File>>,
    /// Mounts are packed, too.
    mounts: bool,
}

impl Packer<'_> {
    fn pack(&mut self, path: &ContainerPath, name: &Path) -> io::Result<()> {
        let elsewhere = self.files.mounts.iter().map(|it| &it.at).chain(&self.files.apart).any(|it| it == path);
        if !self.mounts && elsewhere {
            return Ok(());
        }
        let HostLocation { base, rest } = self.files.place(path)?;
        let meta = base.symlink_metadata(&rest)?;
        if meta.is_symlink() {
            let target = base.read_link_contents(&rest)?.into_os_string().into_vec();
            return self.tar.write_entry(&entry(name, EntryKind::Symlink(target), &meta));
        }
        if meta.is_file() {
            return self.tar.write_file(&entry(name, EntryKind::file(meta.len()), &meta), base.open(&rest)?);
        }
        if meta.is_dir() {
            self.tar.write_entry(&entry(&name.join(""), EntryKind::Directory, &meta))?;
            return sorted(&base, &rest)?.iter().try_for_each(|it| self.pack(&join(path, it)?, &name.join(it)));
        }
        // Sockets and the like are left out, as engines do.
        Ok(())
    }
}

fn entry(name: &Path, kind: EntryKind, meta: &Metadata) -> TarEntry {
    let mtime = FileTime::from_seconds(meta.mtime());
    let entry = TarEntry::new(name.as_os_str().as_bytes(), kind, meta.mode() & 0o7777);
    TarEntry { uid: meta.uid(), gid: meta.gid(), mtime, ..entry }
}

fn sorted(base: &Dir, rest: &Path) -> io::Result<Vec<String>> {
    let name = |it: io::Result<DirEntry>| it.map(|it| it.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = base.read_dir(rest)?.map(name).collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

fn join(path: &ContainerPath, name: &str) -> io::Result<ContainerPath> {
    path.join(name).map_err(io::Error::other)
}

fn relative(path: &ContainerPath) -> PathBuf {
    let rest = path.as_str().trim_start_matches('/');
    if rest.is_empty() { ".".into() } else { rest.into() }
}

fn host(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Host { what: what.into(), source }
}

/// Removes an existing entry that is not a directory.
fn clear(root: &Dir, path: &Path) -> io::Result<()> {
    match root.symlink_metadata(path) {
        Ok(it) if it.is_dir() => root.remove_dir(path),
        Ok(_) => root.remove_file(path),
        Err(_) => Ok(()),
    }
}
