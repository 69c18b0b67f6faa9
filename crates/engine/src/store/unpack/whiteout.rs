//! Whiteouts: what a layer hides of the layers below it.
//!
//! A whiteout hides the entry of that name in lower layers. It hides nothing of its own layer, whatever its position in the
//! archive.

use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Mode, XattrFlags, fsetxattr, makedev, mknodat, statat};
use rustix::io::Errno;

use super::super::tree::{OPAQUE, WHITEOUT, is_dir, open_beneath};
use super::path::EntryPath;
use super::{Result, Unpack};

/// The meaning of a name with the prefix of whiteouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whiteout {
    /// Hides the entry at this path in lower layers.
    Entry(EntryPath),
    /// Hides the content of its directory in lower layers.
    Directory,
    /// A file that AUFS used itself.
    Foreign,
}

impl Whiteout {
    pub(super) fn from_path(path: &EntryPath) -> Option<Self> {
        let hidden = path.name().strip_prefix(WHITEOUT)?;
        Some(match hidden {
            _ if path.name() == OPAQUE => Self::Directory,
            _ if hidden.starts_with(WHITEOUT) || matches!(hidden, b"" | b"." | b"..") => Self::Foreign,
            _ => Self::Entry(path.sibling(hidden)),
        })
    }
}

impl Unpack {
    pub(super) fn whiteout(&mut self, path: &EntryPath, whiteout: Whiteout) -> Result<()> {
        match whiteout {
            Whiteout::Foreign => Ok(()),
            Whiteout::Directory => {
                self.remember_hidden(path.parent())?;
                let dir = self.parent(path)?;
                self.set_opaque(dir.as_fd())
            }
            Whiteout::Entry(hidden) => self.hide(&hidden),
        }
    }

    fn hide(&mut self, path: &EntryPath) -> Result<()> {
        self.remember_hidden(path.as_bytes())?;
        let dir = self.parent(path)?;
        let name = path.c_name();
        match statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
            // An entry of this layer stays. It hides that of lower layers; a directory does so once it is opaque.
            Ok(stat) if is_dir(stat.st_mode) => {
                let inner = open_beneath(self.root.as_fd(), path.as_bytes())?;
                self.set_opaque(inner.as_fd())
            }
            Ok(_) => Ok(()),
            Err(Errno::NOENT) => Ok(mknodat(&dir, &name, FileType::CharacterDevice, Mode::empty(), makedev(0, 0))?),
            Err(err) => Err(err.into()),
        }
    }

    pub(super) fn set_opaque(&self, dir: BorrowedFd<'_>) -> Result<()> {
        Ok(fsetxattr(dir, self.options.overlay.opaque(), b"y", XattrFlags::empty())?)
    }
}
