//! Reads the planned files in batches.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read as _};

use coracle_host::tree::DirHandle;
use coracle_protocol::workspace::StagedFile;
use coracle_runtime::{Baseline, BaselineFile, BaselineMount};
use sha2::{Digest as _, Sha256};

use super::plan::{PlannedFile, Trees, plan, shown};
use super::{HostMount, ImportError, MODE};

/// Bytes that go at once.
const BATCH_BYTES: usize = 4 << 20;

/// Limit of files in a batch.
const BATCH_FILES: usize = 4000;

/// Some files, or pieces of them, on their way.
#[derive(Debug, Default)]
pub(super) struct Batch {
    files: Vec<StagedFile>,
    bytes: usize,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.files.len() >= BATCH_FILES
    }
}

/// Sends a batch; false if the receiver is closed.
pub(super) type Upload<'a> = dyn FnMut(Vec<StagedFile>) -> bool + 'a;

/// Plans all directories, then reads them. Nothing is sent before all are planned.
pub(super) fn read_all(mounts: &[HostMount], send: &mut Upload<'_>) -> Result<Baseline, ImportError> {
    let mut baseline = Baseline::default();
    let mut plans = Vec::new();
    for mount in mounts {
        let trees = Trees::open(mount)?;
        let plan = plan(mount, &trees)?;
        plans.push((mount, trees, plan));
    }
    let mut reading = ImportReader { send, batch: Batch::default(), files: BTreeMap::new() };
    for (mount, trees, plan) in plans {
        let begun = reading.files.len();
        let bytes = reading.mount(mount, &trees, &plan.files)?;
        baseline.mounts.push(BaselineMount {
            name: mount.name.clone(),
            host: mount.host.real().to_owned(),
            at: mount.at.clone(),
            include: mount.filter.include().to_vec(),
            exclude: mount.filter.exclude().to_vec(),
            files: (reading.files.len() - begun) as u64,
            bytes,
            left_out: plan.left_out,
        });
    }
    reading.flush()?;
    baseline.files = reading.files;
    Ok(baseline)
}

struct ImportReader<'a> {
    send: &'a mut Upload<'a>,
    batch: Batch,
    files: BTreeMap<String, BaselineFile>,
}

impl ImportReader<'_> {
    /// The bytes that were read.
    fn mount(&mut self, mount: &HostMount, trees: &Trees, files: &[PlannedFile]) -> Result<u64, ImportError> {
        let mut left = mount.max_bytes;
        // Files come directory by directory.
        let mut last: Option<(bool, Vec<OsString>, DirHandle)> = None;
        for file in files {
            let failed = |source| ImportError::Read { path: shown_at(mount, &file.at), source };
            let (name, above) = file.from.parts.split_last().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
            let dir = match &last {
                Some((linked, parts, dir)) if *linked == file.from.linked && parts == above => dir.clone(),
                _ => {
                    let dir = trees.dir(&file.from).map_err(failed)?;
                    last = Some((file.from.linked, above.to_vec(), dir.clone()));
                    dir
                }
            };
            if self.files.contains_key(&file.at) {
                return Err(ImportError::Twice(file.at.clone()));
            }
            let known = self.file(&dir.open(name).map_err(failed)?, file, mount, left)?;
            left -= known.size;
            self.files.insert(file.at.clone(), known);
        }
        Ok(mount.max_bytes - left)
    }

    /// A file may grow while it is read: the budget is held all the same.
    fn file(
        &mut self,
        opened: &coracle_host::tree::OpenFile,
        file: &PlannedFile,
        mount: &HostMount,
        left: u64,
    ) -> Result<BaselineFile, ImportError> {
        let failed = |source| ImportError::Read { path: shown_at(mount, &file.at), source };
        let mode = opened.mode & MODE;
        let (mut hash, mut size, mut more) = (Sha256::new(), 0_u64, false);
        loop {
            let room = BATCH_BYTES.saturating_sub(self.batch.bytes).max(1) as u64;
            let mut content = Vec::new();
            let read = (&opened.file).take(room).read_to_end(&mut content).map_err(failed)?;
            hash.update(&content);
            size += read as u64;
            if size > left {
                return Err(ImportError::TooLarge { name: mount.name.clone(), limit: mount.max_bytes, of: "bytes" });
            }
            let ended = (read as u64) < room;
            // A file that goes on has to be written to once more, which its own permissions may forbid.
            let mode = if ended { mode } else { 0o600 };
            self.batch.bytes += read;
            self.batch.files.push(StagedFile { path: file.at.clone(), mode, content: content.into(), more });
            if self.batch.is_full() {
                self.flush()?;
            }
            if ended {
                return Ok(BaselineFile { sha256: hex::encode(hash.finalize()), mode, size });
            }
            more = true;
        }
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        let batch = std::mem::take(&mut self.batch);
        if (self.send)(batch.files) { Ok(()) } else { Err(ImportError::Inside("the receiver is gone".into())) }
    }
}

fn shown_at(mount: &HostMount, at: &str) -> String {
    let inner = if mount.at.is_empty() { at } else { at.strip_prefix(&mount.at).unwrap_or(at).trim_start_matches('/') };
    shown(&mount.name, inner)
}
