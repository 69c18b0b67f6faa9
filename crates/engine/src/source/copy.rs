//! Copies an image from a source into the store: fetches what is missing, several layers at a time, while earlier ones are
//! unpacked.

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

/// Layers that are fetched at the same time.
const FETCHES: usize = 3;

/// Fetched layers that wait until they are unpacked: each keeps a file open.
const WAITING: usize = 64;

/// After a failure, the adder is waited for that long: it removes what it has not completed.
const GRACE: Duration = Duration::from_secs(2);

/// A point in time, and how far off it was at first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    after: Duration,
}

impl Deadline {
    pub(crate) fn after(after: Duration) -> Self {
        // A year, for what no clock can hold.
        let at = Instant::now().checked_add(after).unwrap_or_else(|| Instant::now() + Duration::from_secs(31_536_000));
        Self { at, after }
    }

    /// Ends `work` when it has passed.
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
    /// The name it gets. One with a digest gives the image no name, only that digest.
    pub(crate) name: ImageRef,
    pub(crate) platform: Platform,
    pub(crate) limits: LayerLimits,
    /// Bytes of all layers that are not in the store: as they are fetched, and as they are unpacked.
    pub(crate) max_bytes: u64,
    pub(crate) scratch: Scratch,
    pub(crate) deadline: Deadline,
}

/// Copies an image into the store, and names it. Layers that the store has are not fetched. After a failure that the next
/// attempt may not meet, layers that were complete stay until any copy ends otherwise; nothing else does.
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
        // Whatever happens to the collection, the copy has ended as it has.
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
        // The image appears: to call that a failure would be untrue.
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
    /// Fetches the layers that are missing, and passes them on in their order. It ends early when the adder takes no
    /// more: it has failed then, and says why.
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
            // Not every source says before how large a layer is, and one file of an archive may be several layers.
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

/// Bytes that layers may still unpack to.
#[derive(Clone, Copy, Debug)]
struct Budget {
    left: u64,
    whole: u64,
}

impl Budget {
    /// Adds a layer within what is left.
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
        // An empty file takes space, too: as much as its header did.
        self.left = self.left.saturating_sub(added.size_bytes.saturating_add(added.entries.saturating_mul(512)));
        Ok(())
    }
}

/// Adds layers and their image, on a thread of its own: the store's calls block.
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
                // The fetch failed, and its error is the one that counts.
                None => return Err(SourceError::io("the copy was given up")(std::io::ErrorKind::Interrupted.into())),
            }
        }
    }
}
