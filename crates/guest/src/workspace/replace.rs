//! A file's content is another one, at once.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, Stat, fchmod, fstat, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::afterwards::Replaced;
use super::place::{Place, There};
use super::{Tried, Work};
use crate::os::files::{mark_in_use, read_dir, rename_new, reopen, temporary_name, unmark};
use crate::wire::space::{Item, TroubleCode};

/// A file under a name that nobody sees. It goes when this is dropped, unless it got its own.
struct Fresh<'a> {
    dir: &'a OwnedFd,
    name: String,
    placed: bool,
}

impl<'a> Fresh<'a> {
    fn create(dir: &'a OwnedFd) -> Tried<(Self, File)> {
        let name = temporary_name()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(dir, &name, flags, Mode::RUSR | Mode::WUSR)?);
        mark_in_use(&file);
        Ok((Self { dir, name, placed: false }, file))
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        if !self.placed {
            let _ = unlinkat(self.dir, &self.name, AtFlags::empty());
        }
    }
}

impl Work<'_> {
    /// Puts a new file at a place, with what `fill` writes. `over`: one that is there gives way to it.
    pub(super) fn replace(
        &self,
        place: &Place,
        (mode, over): (u32, bool),
        fill: impl FnOnce(&mut File) -> Tried<()>,
    ) -> Tried<(File, Stat)> {
        let (mut fresh, mut file) = Fresh::create(&place.dir)?;
        fill(&mut file)?;
        // Never set-id, which would reach the host through a bind.
        fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
        fsync(&file)?;
        let old = place.there.as_ref().and_then(|it| it.fd.try_clone().ok());
        let bytes = place.there.as_ref().map_or(0, There::size);
        match over {
            true => renameat(&place.dir, &fresh.name, &place.dir, place.name.as_slice())?,
            false => rename_new(&place.dir, fresh.name.as_bytes(), &place.name)?,
        }
        fresh.placed = true;
        unmark(&file);
        self.afterwards.add(Replaced { dir: read_dir(&place.dir).ok(), old, bytes });
        let stat = fstat(&file)?;
        self.memory.met(&place.path, Some(&stat));
        Ok((file, stat))
    }

    /// A file as it is told after a change.
    pub(super) fn written(&self, path: &str, stat: &Stat, version: u64) -> Item {
        Item { version, ..self.item(path.to_owned(), stat, path.as_bytes()) }
    }
}

/// The user may write it: a rename would not ask.
pub(super) fn expect_writable(there: &There) -> Tried<()> {
    match reopen(&there.fd, OFlags::WRONLY | OFlags::NONBLOCK) {
        // A program that runs cannot be written, but replaced.
        Ok(_) | Err(Errno::TXTBSY) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// What is at a place before it is changed: nothing, or a regular file.
pub(super) fn expect_changeable(place: &Place) -> Tried<()> {
    if place.is_root() {
        return Err(TroubleCode::IsDirectory.into());
    }
    place.there.as_ref().map_or(Ok(()), There::expect_file)
}
