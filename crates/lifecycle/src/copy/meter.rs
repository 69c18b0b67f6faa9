//! Progress of a copy: the size of the archive so far, and how much of it was sent.

use std::fs::File;
use std::io::Seek as _;
use std::sync::{Arc, Mutex, PoisonError};

/// Tells a watcher how far a copy is. Clones tell of the same copy.
#[derive(Clone, Debug, Default)]
pub struct CopyMeter(Arc<Mutex<Option<CopyStage>>>);

#[derive(Debug)]
enum CopyStage {
    /// The archive grows.
    VolumeInitFuture(File),
    /// It is read, from its beginning.
    Sending { archive: File, total: u64 },
}

/// Bytes of a copy, its archive's own among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyAmount {
    /// So far.
    pub bytes: u64,
    /// In all, once that is known.
    pub total: Option<u64>,
}

impl CopyMeter {
    /// How far it is. Nothing before it has begun.
    #[must_use]
    pub fn read(&self) -> Option<CopyAmount> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            None => None,
            Some(CopyStage::VolumeInitFuture(archive)) => {
                let bytes = archive.metadata().ok()?.len();
                Some(CopyAmount { bytes, total: None })
            }
            // The handle shares its place with the one that is read.
            Some(CopyStage::Sending { archive, total }) => {
                let mut archive = archive;
                let bytes = archive.stream_position().ok()?.min(*total);
                Some(CopyAmount { bytes, total: Some(*total) })
            }
        }
    }

    /// The archive is being filled. One that cannot be watched is copied all the same.
    pub(super) fn fills(&self, archive: &File) {
        self.is_at(archive.try_clone().ok().map(CopyStage::VolumeInitFuture));
    }

    /// The whole archive is being sent.
    pub(super) fn sends(&self, archive: &File) {
        let stage = archive.try_clone().and_then(|archive| {
            let total = archive.metadata()?.len();
            Ok(CopyStage::Sending { archive, total })
        });
        self.is_at(stage.ok());
    }

    fn is_at(&self, stage: Option<CopyStage>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _, Write as _};

    use super::{CopyAmount, CopyMeter};

    #[test]
    fn progress_reports_packed_and_sent_bytes() {
        let (meter, mut archive) = (CopyMeter::default(), tempfile::tempfile().unwrap());
        assert_eq!(meter.read(), None);
        meter.fills(&archive);
        archive.write_all(&[0; 1000]).unwrap();
        assert_eq!(meter.read(), Some(CopyAmount { bytes: 1000, total: None }));
        archive.rewind().unwrap();
        meter.clone().sends(&archive);
        archive.read_exact(&mut [0; 400]).unwrap();
        assert_eq!(meter.read(), Some(CopyAmount { bytes: 400, total: Some(1000) }));
    }
}
