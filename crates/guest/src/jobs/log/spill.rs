//! Stores output that exceeds memory.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::{fs, io};

use rustix::fs::{FallocateFlags, fallocate};

use crate::protocol::Retention;

/// Bytes of a slot.
const SLOT: usize = 64 << 10;

/// An unlinked file for all jobs of a guest, in slots of 64 KiB. It is created for the first slot.
///
/// Nothing of it is ever an error: a disk that fails has no slots, and what it does not give back is gone.
#[derive(Debug)]
pub(crate) struct Spill {
    dir: PathBuf,
    slot_bytes: usize,
    file: OnceLock<File>,
    slots: Mutex<Slots>,
}

#[derive(Debug)]
struct Slots {
    /// The one that was freed last is taken first: its pages are the likeliest to be in memory.
    free: Vec<u32>,
    made: u32,
    most: u64,
}

impl Spill {
    /// Its file is created in this directory, with the default limit of [`Retention`].
    pub(crate) fn in_dir(dir: &Path) -> Self {
        Self::with_slots_of(SLOT, dir)
    }

    /// As [`in_dir`](Self::in_dir), with slots of that many bytes.
    pub(super) fn with_slots_of(slot_bytes: usize, dir: &Path) -> Self {
        let most = Retention::default().total / slot_bytes as u64;
        let slots = Mutex::new(Slots { free: Vec::new(), made: 0, most });
        Self { dir: dir.to_owned(), slot_bytes, file: OnceLock::new(), slots }
    }

    /// Sets the limit. Slots beyond it stay in use until they are released.
    pub(crate) fn set_total(&self, bytes: u64) {
        self.slots().most = bytes / self.slot_bytes as u64;
    }

    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Slots in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        self.slots().used()
    }

    /// A free slot, within the limit.
    pub(super) fn take(&self) -> Option<u32> {
        let mut slots = self.slots();
        if slots.used() >= slots.most {
            return None;
        }
        if self.file.get().is_none() {
            let made = unlinked(&self.dir).ok()?;
            self.file.get_or_init(|| made);
        }
        if let Some(slot) = slots.free.pop() {
            return Some(slot);
        }
        let slot = slots.made;
        slots.made = slot.checked_add(1)?;
        Some(slot)
    }

    /// Frees the slot.
    pub(super) fn release(&self, slot: u32) {
        self.slots().free.push(slot);
    }

    /// Gives back what the slot holds on the disk, where the filesystem can. To be called while it is still taken.
    pub(super) fn punch(&self, slot: u32) {
        if let Some(file) = self.file.get() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(file, flags, self.at(slot), self.slot_bytes as u64);
        }
    }

    /// Whether the bytes are in the slot now. They are at most a slot long.
    pub(super) fn write(&self, slot: u32, bytes: &[u8]) -> bool {
        self.file.get().is_some_and(|file| file.write_all_at(bytes, self.at(slot)).is_ok())
    }

    /// The first bytes of the slot.
    pub(super) fn read(&self, slot: u32, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.file.get()?.read_exact_at(&mut bytes, self.at(slot)).ok()?;
        Some(bytes)
    }

    fn at(&self, slot: u32) -> u64 {
        u64::from(slot) * self.slot_bytes as u64
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    fn used(&self) -> u64 {
        u64::from(self.made) - self.free.len() as u64
    }
}

/// A file without a name. `O_TMPFILE` would need no name at all, but overlayfs has had it only since Linux 6.3.
fn unlinked(dir: &Path) -> io::Result<File> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| io::ErrorKind::Other)?;
    let path = dir.join(format!(".output-{}", hex::encode(random)));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_file_comes_with_the_first_slot_and_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let spill = Spill::in_dir(dir.path());
        assert!(spill.file.get().is_none());
        let slot = spill.take().unwrap();
        assert!(spill.write(slot, b"kept"));
        assert_eq!(spill.read(slot, 4).unwrap(), b"kept");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn no_more_slots_are_in_use_than_may_be() {
        let dir = tempfile::tempdir().unwrap();
        let spill = Spill::with_slots_of(16, dir.path());
        spill.set_total(47);
        let taken = [spill.take(), spill.take(), spill.take()];
        assert_eq!((taken, spill.used()), ([Some(0), Some(1), None], 2));
        spill.release(0);
        assert_eq!((spill.take(), spill.take()), (Some(0), None));
    }

    #[test]
    fn a_punched_slot_takes_no_room_on_the_disk() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let spill = Spill::in_dir(dir.path());
        let slot = spill.take().unwrap();
        assert!(spill.write(slot, &[7; SLOT]));
        spill.punch(slot);
        assert_eq!(spill.file.get().unwrap().metadata().unwrap().blocks(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_has_no_slots_until_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let spill = Spill::in_dir(&dir.path().join("later"));
        assert_eq!((spill.take(), spill.used()), (None, 0));
        fs::create_dir(dir.path().join("later")).unwrap();
        assert_eq!(spill.take(), Some(0));
    }
}
