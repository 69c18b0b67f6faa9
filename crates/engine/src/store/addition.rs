//! Adds layers and images. They are protected from garbage collection until their image is complete.

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use coracle_archive::oci::{Configuration, LayerEncoding};
use coracle_runtime::Image;
use coracle_types::{ImageId, ImageRef, StoredFileError, random_hex};
use rustix::fs::{Mode, RenameFlags, mkdirat, renameat_with, syncfs};

use super::blob::{Blob, FeedEnd};
use super::configuration::image_id;
use super::hold::Hold;
use super::image::{self, ImageRecord};
use super::layer::{self, write_synced};
use super::names::sync_dir;
use super::tree::{OverlayForm, open_beneath};
use super::unpack::{UnpackError, UnpackOptions, UnpackReport, unpack};
use super::{DiffId, LayerRecord, LayerRefusal, Result, Store, StoreError};
use crate::cancel::CancelFlag;
use crate::trash::Trash;
use crate::write_guard::WriteGuard;

/// Bytes of paths that unpacking a layer may keep in memory: four million directories of 60 bytes.
const MAX_PATH_BYTES: u64 = 256 << 20;

/// Limits of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerLimits {
    /// Maximum size of the uncompressed archive, and of all files including holes.
    pub(crate) bytes: u64,
    /// Maximum number of entries.
    pub(crate) entries: u64,
    /// Maximum number of components of a path.
    pub(crate) depth: usize,
}

impl LayerLimits {
    /// Options to unpack a layer whose contents are hashed, too.
    pub(super) fn unpack_options(&self, overlay: OverlayForm) -> UnpackOptions {
        UnpackOptions {
            overlay,
            hash_contents: true,
            max_bytes: self.bytes,
            max_entries: self.entries,
            max_depth: self.depth,
            max_path_bytes: MAX_PATH_BYTES,
            cancel: CancelFlag::NEVER,
        }
    }
}

impl Default for LayerLimits {
    fn default() -> Self {
        Self { bytes: 64 << 30, entries: 4_000_000, depth: 1024 }
    }
}

/// A layer to add.
#[derive(Debug)]
pub(crate) struct NewLayer {
    pub(crate) diff_id: DiffId,
    /// Read from its current position on.
    pub(crate) blob: File,
    pub(crate) compression: LayerEncoding,
    pub(crate) limits: LayerLimits,
}

/// An image whose layers are all in the store.
#[derive(Debug, Default)]
pub(crate) struct NewImage {
    /// The OCI configuration, byte for byte: the image's id is its digest.
    pub(crate) configuration: Vec<u8>,
    /// Names that lead to it from now on.
    pub(crate) names: Vec<ImageRef>,
    /// `repository@sha256:…` of the manifest it came by.
    pub(crate) repo_digest: Option<String>,
    /// Made on the way to another image: garbage as soon as it has no name and no user.
    pub(crate) intermediate: bool,
}

/// An addition in progress. Garbage collection leaves the layers it has seen or added; dropping it ends that.
#[derive(Debug)]
pub(crate) struct Addition<'a> {
    pub(super) store: &'a Store,
    hold: Hold,
    cancel: CancelFlag,
}

/// A directory that is being made; what is still there when it is dropped is removed.
#[derive(Debug)]
pub(super) struct Draft {
    trash: Trash,
    pub(super) path: PathBuf,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Err(err) = self.trash.discard(&self.path) {
            tracing::debug!("cannot remove `{}` now: {err}", self.path.display());
        }
    }
}

impl Store {
    /// Begins to add an image.
    pub(crate) fn begin_addition(&self) -> Result<Addition<'_>> {
        self.begin_cancellable_addition(CancelFlag::NEVER)
    }

    /// Begins to add an image, which ends without one if it is given up meanwhile.
    pub(crate) fn begin_cancellable_addition(&self, cancel: CancelFlag) -> Result<Addition<'_>> {
        Ok(Addition { store: self, hold: self.new_hold()?, cancel })
    }

    pub(super) fn new_hold(&self) -> Result<Hold> {
        let _lock = self.share_lock()?;
        Hold::new(&self.holds()).map_err(StoreError::io("cannot write to the image store"))
    }
}

impl Addition<'_> {
    /// Whether the store has the layer. If so, the layer is held until this addition ends.
    pub(crate) fn has_layer(&mut self, diff_id: &DiffId) -> Result<bool> {
        self.find_layer(diff_id).map(|it| it.is_some())
    }

    /// Returns the record of a layer, and holds the layer until this addition ends.
    pub(super) fn find_layer(&mut self, diff_id: &DiffId) -> Result<Option<LayerRecord>> {
        let _lock = self.store.share_lock()?;
        self.hold.add(diff_id.as_str()).map_err(StoreError::io("cannot hold a layer"))?;
        self.whole_layer(diff_id)
    }

    /// Returns the record of a layer if it is complete. The caller holds the lock.
    fn whole_layer(&self, diff_id: &DiffId) -> Result<Option<LayerRecord>> {
        let found = self.store.layer(diff_id).or_else(|err| match err.kind() {
            // A damaged layer is unpacked again.
            io::ErrorKind::InvalidData if StoredFileError::newer_file(&err).is_none() => Ok(None),
            _ => Err(err),
        });
        let found = found.map_err(StoreError::io("cannot read a layer's record"))?;
        let Some(layer) = found else { return Ok(None) };
        let is_whole = layer.is_of_this_boot() || self.store.layers_in_use(&[])?.contains(diff_id);
        Ok(is_whole.then_some(layer))
    }

    /// Unpacks a layer, unless the store has it.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for an archive that is hostile, too large, or not the requested one. Nothing of it is stored.
    pub(crate) fn add_layer(&mut self, layer: NewLayer) -> Result<LayerRecord> {
        let NewLayer { diff_id, blob, compression, limits } = layer;
        if let Some(found) = self.find_layer(&diff_id)? {
            return Ok(found);
        }
        let draft = self.draft()?;
        let blob = Blob { file: blob, compression, max_bytes: limits.bytes };
        let refused = |refusal| StoreError::Refused { layer: diff_id.to_string(), refusal };
        let (found, report) =
            self.unpack_blob(&draft.path, blob, limits).map_err(|err| err.of_layer(diff_id.as_str()))?;
        if found != diff_id {
            return Err(refused(LayerRefusal::OtherContent { found: found.to_string() }));
        }
        self.publish_layer(&draft, LayerRecord::new(diff_id, report))
    }

    /// Unpacks a layer whose digest is not known in advance.
    pub(super) fn add_unknown_layer(
        &mut self,
        blob: File,
        compression: LayerEncoding,
        limits: LayerLimits,
    ) -> Result<LayerRecord> {
        let draft = self.draft()?;
        let blob = Blob { file: blob, compression, max_bytes: limits.bytes };
        let (diff_id, report) =
            self.unpack_blob(&draft.path, blob, limits).map_err(|err| err.of_layer("of the import"))?;
        match self.find_layer(&diff_id)? {
            Some(found) => Ok(found),
            None => self.publish_layer(&draft, LayerRecord::new(diff_id, report)),
        }
    }

    /// Creates a temporary directory for a layer or an image.
    pub(super) fn draft(&self) -> Result<Draft> {
        let path = self.store.temporary().join(format!("{}-{}", self.hold.id, random_hex::<4>()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(StoreError::io("cannot write to the image store"))?;
        Ok(Draft { trash: self.store.trash.clone(), path })
    }

    /// Decompresses and hashes in one thread, and unpacks in this one, or in a process with the files' owner.
    fn unpack_blob(
        &self,
        draft: &Path,
        blob: Blob,
        limits: LayerLimits,
    ) -> Result<(DiffId, UnpackReport), UnpackError> {
        let options = UnpackOptions { cancel: self.cancel.clone(), ..limits.unpack_options(self.store.overlay()) };
        let dir = File::open(draft)?;
        let guard = WriteGuard::begin("the image", &dir, self.cancel.clone())?;
        let (sender, receiver) = UnixStream::pair()?;
        let unpack_end = receiver.try_clone()?;
        let (end, report) = std::thread::scope(|scope| {
            let feeder = scope.spawn(move || blob.feed(&sender, guard));
            let report = self.store.privileges.run_as_owner(move || unpack_files(&dir, receiver, options));
            // Shut down explicitly: a child of another thread may have inherited this end, so closing it is not enough.
            let _ = unpack_end.shutdown(Shutdown::Both);
            (feeder.join(), report)
        });
        let end = end.map_err(|_| io::Error::other("the thread that read the layer panicked"))?;
        match (end, report?) {
            // A refusal of the blob explains why its archive is truncated.
            (FeedEnd::Refused(refusal), _) => Err(refusal.into()),
            (FeedEnd::Io(err), _) => Err(err.into()),
            (_, Err(refusal)) => Err(refusal.into()),
            (FeedEnd::Stopped, _) => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
            (FeedEnd::Done(diff_id), Ok(report)) => Ok((diff_id, report)),
        }
    }

    /// Publishes a layer in the store, unless another process was first.
    pub(super) fn publish_layer(&mut self, draft: &Draft, record: LayerRecord) -> Result<LayerRecord> {
        let failed = || StoreError::io("cannot write to the image store");
        let json = serde_json::to_vec(&record).map_err(|err| failed()(err.into()))?;
        std::fs::write(draft.path.join(layer::RECORD), json).map_err(failed())?;
        let target = self.store.layer_dir(&record.diff_id);
        let lock = self.store.lock()?;
        match rename_new(&draft.path, &target) {
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done.map(|()| record).map_err(failed()),
        }
        // Until the lock ends, no other process publishes the layer or an image of it.
        if let Some(found) = self.whole_layer(&record.diff_id)? {
            return Ok(found);
        }
        if target.join(layer::FILES).is_dir() && self.store.layers_in_use(&[])?.contains(&record.diff_id) {
            // Only the record was damaged, and containers may have mounted the files. So only the record is replaced.
            replace_record(&draft.path, &target).map_err(failed())?;
            return Ok(record);
        }
        // An incomplete layer of an earlier boot, which no image uses.
        let taken = self.store.trash.take(&target).map_err(failed())?;
        rename_new(&draft.path, &target).map_err(failed())?;
        drop(lock);
        self.store.delete(&Vec::from_iter(taken));
        Ok(record)
    }

    /// Adds an image of layers that are in the store. An existing image with the same configuration gets the new names.
    ///
    /// # Errors
    /// [`StoreError::NoSuchLayer`], [`StoreError::Configuration`], and [`CancelledError`](crate::cancel::CancelledError) within
    /// [`StoreError::Io`]. No name has changed then.
    pub(crate) fn add_image(&mut self, image: NewImage) -> Result<Image> {
        let NewImage { configuration, names, repo_digest, intermediate } = image;
        let failed = || StoreError::io("cannot write to the image store");
        let id = image_id(&configuration);
        let parsed = Configuration::parse(&configuration)?;
        let mut record =
            ImageRecord { intermediate, added: jiff::Timestamp::now().to_string(), ..ImageRecord::default() };
        for diff_id in &parsed.rootfs.diff_ids {
            let layer = self.find_layer(diff_id)?.ok_or_else(|| StoreError::NoSuchLayer(diff_id.clone()))?;
            record.size_bytes += layer.size_bytes;
        }
        record.repo_digests.extend(repo_digest);
        // From here on, the layers count as complete even after a power loss.
        let dir = File::open(self.store.layers()).map_err(failed())?;
        syncfs(&dir).map_err(|err| failed()(err.into()))?;
        let draft = self.draft()?;
        write_synced(&draft.path.join(image::CONFIGURATION), &configuration).map_err(failed())?;
        let _lock = self.store.lock()?;
        // From here on, the caller gets the image even after its deadline.
        self.cancel.begin_publishing().map_err(failed())?;
        self.publish_image(&draft, &id, record).map_err(failed())?;
        for name in &names {
            self.store.set_name(name, &id).map_err(failed())?;
        }
        let names = self.store.all_names().map_err(failed())?.remove(&id).unwrap_or_default();
        self.store.describe(&id, &names)?.ok_or(StoreError::NoSuchImage(id))
    }

    fn publish_image(&self, draft: &Draft, id: &ImageId, mut record: ImageRecord) -> io::Result<()> {
        let target = self.store.image_dir(id);
        let old = self.store.image_record(id)?;
        if let Some(old) = &old {
            record.repo_digests.extend(old.repo_digests.iter().cloned());
            record.intermediate &= old.intermediate;
            record.added.clone_from(&old.added);
            record.later.clone_from(&old.later);
        }
        let json = serde_json::to_vec(&record)?;
        write_synced(&draft.path.join(image::RECORD), &json)?;
        if old.is_some() {
            std::fs::rename(draft.path.join(image::RECORD), target.join(image::RECORD))?;
            return sync_dir(&target);
        }
        sync_dir(&draft.path)?;
        rename_new(&draft.path, &target)?;
        sync_dir(&self.store.images())
    }
}

/// Unpacks the files. Runs as their owner.
fn unpack_files(
    dir: &File,
    archive: UnixStream,
    options: UnpackOptions,
) -> io::Result<Result<UnpackReport, LayerRefusal>> {
    mkdirat(dir, layer::FILES, Mode::from_raw_mode(0o755))?;
    let files: OwnedFd = open_beneath(dir.as_fd(), layer::FILES.as_bytes())?;
    rustix::fs::fchmod(&files, Mode::from_raw_mode(0o755))?;
    match unpack(archive, files, options) {
        Ok(report) => Ok(Ok(report)),
        Err(UnpackError::Refused(refusal)) => Ok(Err(refusal)),
        Err(UnpackError::Io(err)) => Err(err),
    }
}

/// Replaces the record of a layer by that of its draft.
fn replace_record(draft: &Path, target: &Path) -> io::Result<()> {
    let made = draft.join(layer::RECORD);
    File::open(&made)?.sync_all()?;
    std::fs::rename(made, target.join(layer::RECORD))?;
    sync_dir(target)
}

/// Renames to a name that must not exist.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, RenameFlags::NOREPLACE)?)
}
