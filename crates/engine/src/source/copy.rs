//! Copies an image from a source into the store. Fetches several missing layers at a time, and unpacks earlier ones
//! meanwhile.

use std::collections::HashSet;
use std::time::Duration;

use coracle_archive::oci::{Platform, ResolvedImage, ResolvedLayer};
use coracle_runtime::Image;
use coracle_types::ImageRef;
use futures_util::future::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{ImageIdentity, ImageSource, NameUse, Result, Scratch, SourceError};
use crate::cancel::{CancelFlag, Cancellation};
use crate::store::{Addition, LayerLimits, LayerRefusal, NewImage, NewLayer, Store, StoreError};

/// How many layers are fetched at the same time.
const FETCHES: usize = 3;

/// How many fetched layers may wait to be unpacked. Each has an open file.
const WAITING: usize = 64;

/// How long to wait for the adder after a failure: it removes incomplete layers.
const GRACE: Duration = Duration::from_secs(2);

/// A deadline, and the time limit that it was made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    after: Duration,
}

impl Deadline {
    pub(crate) fn after(after: Duration) -> Self {
        // A year, if the clock cannot represent the time.
        let at = Instant::now().checked_add(after).unwrap_or_else(|| Instant::now() + Duration::from_secs(31_536_000));
        Self { at, after }
    }

    /// Runs `work` until the deadline.
    ///
    /// # Errors
    /// [`SourceError::DeadlinePassed`].
    pub(crate) async fn limit<T>(self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let late = |_| SourceError::DeadlinePassed { after: self.after };
        tokio::time::timeout_at(self.at, work).await.map_err(late)?
    }
}

/// How an image is copied.
#[derive(Clone, Debug)]
pub(crate) struct ImageCopy {
    /// The name that the image gets. If it has a digest, the image gets only the digest and no name.
    pub(crate) name: ImageRef,
    pub(crate) platform: Platform,
    pub(crate) limits: LayerLimits,
    /// Maximum size of all layers that are not in the store, both as fetched and as unpacked.
    pub(crate) max_bytes: u64,
    pub(crate) scratch: Scratch,
    pub(crate) deadline: Deadline,
}

/// Copies an image into the store, and names it. Layers that the store already has are not fetched. After a failure
/// that is worth another attempt, complete layers stay in the store for that attempt; any other result removes them.
///
/// # Errors
/// Any of [`SourceError`].
pub(crate) async fn copy_into(store: &Store, source: &dyn ImageSource, copy: &ImageCopy) -> Result<Image> {
    let identity = ImageIdentity::from_name(&copy.name)?;
    let image = copy.deadline.limit(source.resolve(&copy.platform)).await?;
    let name_use = identity.check(&image)?;
    let new = NamedImage { record: new_image(&image, &copy.name, name_use), layers: image.layers };
    let copied = add_layers(store, new, LayerFetch { source, copy }).await;
    if !copied.as_ref().is_err_and(SourceError::is_worth_another_attempt) {
        let store = store.clone();
        // A failed clean-up does not change the result of the copy.
        let _ = tokio::task::spawn_blocking(move || store.collect_leftovers()).await;
    }
    copied
}

/// An image whose layers are not all in the store yet.
struct NamedImage {
    record: NewImage,
    layers: Vec<ResolvedLayer>,
}

async fn add_layers(store: &Store, image: NamedImage, fetch: LayerFetch<'_>) -> Result<Image> {
    let copy = fetch.copy;
    let cancel = copy.scratch.cancel();
    let (missing_sender, missing) = oneshot::channel();
    let (additions, queue) = mpsc::channel(WAITING);
    let adder = Adder {
        store: store.clone(),
        image: image.record,
        queue,
        cancel: cancel.clone(),
        budget: Budget { left: copy.max_bytes, whole: copy.max_bytes },
    };
    let layers = image.layers;
    let mut added = tokio::task::spawn_blocking(move || adder.run(layers, missing_sender));
    if let Err(err) = copy.deadline.limit(Box::pin(fetch.run(missing, additions))).await {
        cancel.cancel();
        let _ = tokio::time::timeout(GRACE, added).await;
        return Err(err);
    }
    let failed = |err| SourceError::io("cannot add an image")(std::io::Error::other(err));
    let result = copy.deadline.limit(async { (&mut added).await.unwrap_or_else(|err| Err(failed(err))) }).await;
    if !matches!(result, Err(SourceError::DeadlinePassed { .. })) {
        return result;
    }
    match cancel.cancel() {
        // The image is already being published, so the copy succeeds after all.
        Cancellation::TooLate => added.await.unwrap_or_else(|err| Err(failed(err))),
        Cancellation::Effective => {
            let _ = tokio::time::timeout(GRACE, added).await;
            result
        }
    }
}

/// The fetching half of a copy.
struct LayerFetch<'a> {
    source: &'a dyn ImageSource,
    copy: &'a ImageCopy,
}

impl LayerFetch<'_> {
    /// Fetches the missing layers, and passes them to the adder in order. Ends early if the adder has failed; the
    /// adder's error is reported then.
    async fn run(&self, missing: oneshot::Receiver<Vec<ResolvedLayer>>, additions: mpsc::Sender<Step>) -> Result<()> {
        let Ok(missing) = missing.await else { return Ok(()) };
        let sizes = missing.iter().filter_map(ResolvedLayer::blob).map(|blob| blob.size);
        let bytes = sizes.fold(0, u64::saturating_add);
        if bytes > self.copy.max_bytes {
            return Err(too_large(self.copy.max_bytes));
        }
        tracing::debug!(image = %self.copy.name, layers = missing.len(), bytes, "fetch an image");
        let fetches: Vec<_> = missing.iter().map(|layer| self.fetch(layer).boxed()).collect();
        let mut fetched = stream::iter(fetches).buffered(FETCHES);
        let mut left = self.copy.max_bytes;
        while let Some(layer) = fetched.next().await {
            let layer = layer?;
            // Some sources do not know the size of a layer in advance, and one file of an archive may be several
            // layers.
            let size = layer.blob.metadata().map_err(SourceError::io("cannot read a layer"))?.len();
            left = left.checked_sub(size).ok_or_else(|| too_large(self.copy.max_bytes))?;
            if additions.send(Step::Layer(layer)).await.is_err() {
                return Ok(());
            }
        }
        let _ = additions.send(Step::Finish).await;
        Ok(())
    }

    async fn fetch(&self, layer: &ResolvedLayer) -> Result<NewLayer> {
        let blob = self.source.fetch_layer(layer, &self.copy.scratch).await?;
        tracing::debug!(image = %self.copy.name, layer = %layer.diff_id, bytes = blob.size, "a layer is fetched");
        let compression = blob.compression().map_err(SourceError::io("cannot read a layer"))?;
        Ok(NewLayer { diff_id: layer.diff_id.clone(), blob: blob.file, compression, limits: self.copy.limits })
    }
}

fn too_large(limit: u64) -> SourceError {
    SourceError::too_large("content", limit)
}

fn new_image(image: &ResolvedImage, name: &ImageRef, name_use: NameUse) -> NewImage {
    let configuration = image.configuration.clone();
    if name_use == NameUse::None {
        return NewImage { configuration, ..NewImage::default() };
    }
    let name = name.completed();
    let (named, pinned) = name.as_str().split_once('@').map_or((name.as_str(), false), |it| (it.0, true));
    let repository = match named.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => named,
    };
    NewImage {
        configuration,
        repo_digest: image.digest.as_ref().map(|digest| format!("{repository}@{digest}")),
        names: if pinned { Vec::new() } else { vec![name] },
        intermediate: false,
    }
}

enum Step {
    Layer(NewLayer),
    Finish,
}

/// How many bytes layers may still unpack to.
#[derive(Clone, Copy, Debug)]
struct Budget {
    left: u64,
    whole: u64,
}

impl Budget {
    /// Adds a layer, limited to the bytes that are left.
    fn spend(&mut self, addition: &mut Addition<'_>, layer: NewLayer) -> Result<()> {
        let of_layer = layer.limits.bytes;
        let limits = LayerLimits { bytes: of_layer.min(self.left), ..layer.limits };
        let added = addition.add_layer(NewLayer { limits, ..layer }).map_err(|err| match err {
            StoreError::Refused { refusal: LayerRefusal::FileTooLarge { .. }, .. } if self.left < of_layer => {
                too_large(self.whole)
            }
            StoreError::Refused { refusal: LayerRefusal::TooLarge { what, .. }, .. }
                if self.left < of_layer && what == "bytes" =>
            {
                too_large(self.whole)
            }
            err => err.into(),
        })?;
        // Empty files take space too, so each entry counts 512 bytes, the size of a tar header.
        self.left = self.left.saturating_sub(added.size_bytes.saturating_add(added.entries.saturating_mul(512)));
        Ok(())
    }
}

/// Adds layers and their image, on a separate thread because the store's calls block.
struct Adder {
    store: Store,
    image: NewImage,
    queue: mpsc::Receiver<Step>,
    cancel: CancelFlag,
    budget: Budget,
}

impl Adder {
    fn run(mut self, layers: Vec<ResolvedLayer>, missing: oneshot::Sender<Vec<ResolvedLayer>>) -> Result<Image> {
        let mut addition = self.store.begin_cancellable_addition(self.cancel)?;
        let mut seen = HashSet::new();
        let mut absent = Vec::new();
        for layer in layers {
            if seen.insert(layer.diff_id.clone()) && !addition.has_layer(&layer.diff_id)? {
                absent.push(layer);
            }
        }
        let _ = missing.send(absent);
        loop {
            match self.queue.blocking_recv() {
                Some(Step::Layer(layer)) => self.budget.spend(&mut addition, layer)?,
                Some(Step::Finish) => return Ok(addition.add_image(self.image)?),
                // The fetch failed, and its error is reported.
                None => return Err(SourceError::io("the copy was cancelled")(std::io::ErrorKind::Interrupted.into())),
            }
        }
    }
}
