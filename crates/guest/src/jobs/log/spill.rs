//! Stores output that exceeds the limit of memory.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::{fs, io};

use rustix::fs::{FallocateFlags, fallocate};

use crate::protocol::Retention;

/// Size of a slot in bytes.
const SLOT: usize = 64 << 10;

/// An unlinked file for all jobs of a guest, in slots of 64 KiB. It is created for the first slot.
///
/// It returns no errors: a failing disk provides no slots, and output that cannot be read back is lost.
#[derive(Debug)]
pub(crate) struct Spill {
    dir: PathBuf,
    slot_bytes: usize,
    file: OnceLock<File>,
    slots: Mutex<Slots>,
}

#[derive(Debug)]
struct Slots {
    /// Slots that were freed last are reused first: their pages are most likely still in memory.
    free: Vec<u32>,
    created: u32,
    most: u64,
}

impl Spill {
    /// Creates its file in this directory, with the default limit of [`Retention`].
    pub(crate) fn in_dir(dir: &Path) -> Self {
        Self::with_slots_of(SLOT, dir)
    }

    /// As [`in_dir`](Self::in_dir), with slots of that many bytes.
    pub(super) fn with_slots_of(slot_bytes: usize, dir: &Path) -> Self {
        let most = Retention::default().total / slot_bytes as u64;
        let slots = Mutex::new(Slots { free: Vec::new(), created: 0, most });
        Self { dir: dir.to_owned(), slot_bytes, file: OnceLock::new(), slots }
    }

    /// Sets the limit. Slots beyond it stay in use until they are released.
    pub(crate) fn set_total(&self, bytes: u64) {
        self.slots().most = bytes / self.slot_bytes as u64;
    }

    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Number of slots in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        self.slots().used()
    }

    /// Reserves a free slot, within the limit.
    pub(super) fn take(&self) -> Option<u32> {
        let mut slots = self.slots();
        if slots.used() >= slots.most {
            return None;
        }
        if self.file.get().is_none() {
            let file = unlinked(&self.dir).ok()?;
            self.file.get_or_init(|| file);
        }
        if let Some(slot) = slots.free.pop() {
            return Some(slot);
        }
        let slot = slots.created;
        slots.created = slot.checked_add(1)?;
        Some(slot)
    }

    pub(super) fn release(&self, slot: u32) {
        self.slots().free.push(slot);
    }

    /// Frees the space of the slot on the disk, if the file system supports it. Must be called before the slot is released.
    pub(super) fn punch(&self, slot: u32) {
        if let Some(file) = self.file.get() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(file, flags, self.at(slot), self.slot_bytes as u64);
        }
    }

    /// Writes at most a slot of bytes. Returns whether they were written.
    pub(super) fn write(&self, slot: u32, bytes: &[u8]) -> bool {
        self.file.get().is_some_and(|file| file.write_all_at(bytes, self.at(slot)).is_ok())
    }

    /// Reads the first bytes of the slot.
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
        u64::from(self.created) - self.free.len() as u64
    }
}

/// Creates a file and removes its name. `O_TMPFILE` needs no name, but overlayfs supports it only since Linux 6.3.
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
    fn the_file_is_created_for_the_first_slot_and_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let spill = Spill::in_dir(dir.path());
        assert!(spill.file.get().is_none());
        let slot = spill.take().unwrap();
        assert!(spill.write(slot, b"data"));
        assert_eq!(spill.read(slot, 4).unwrap(), b"data");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_number_of_slots_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let spill = Spill::with_slots_of(16, dir.path());
        spill.set_total(47);
        let taken = [spill.take(), spill.take(), spill.take()];
        assert_eq!((taken, spill.used()), ([Some(0), Some(1), None], 2));
        spill.release(0);
        assert_eq!((spill.take(), spill.take()), (Some(0), None));
    }

    #[test]
    fn a_punched_slot_uses_no_disk_space() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let spill = Spill::in_dir(dir.path());
        let slot = spill.take().unwrap();
        assert!(spill.write(slot, &[7; SLOT]));
        spill.punch(slot);
        assert_eq!(spill.file.get().unwrap().metadata().unwrap().blocks(), 0);
    }

    #[test]
    fn there_are_no_slots_until_the_directory_exists() {
        let dir = tempfile::tempdir().unwrap();
        let spill = Spill::in_dir(&dir.path().join("later"));
        assert_eq!((spill.take(), spill.used()), (None, 0));
        fs::create_dir(dir.path().join("later")).unwrap();
        assert_eq!(spill.take(), Some(0));
    }
}
