//! Copies an image from a source into the store: fetches what is missing, several layers at a time, while earlier ones are
//! unpacked.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use coracle_runtime::{Image, ImageRef};
use futures_util::future::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{ImageSource, Platform, Result, SourceError, SourceImage, SourceLayer};
use crate::store::{LayerLimits, NewImage, NewLayer, Store};

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
    /// A directory for temporary files, in the file system of the store.
    pub(crate) scratch: PathBuf,
    pub(crate) deadline: Deadline,
}

/// A step of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyEvent<'a> {
    /// The image is known, and so many of its layers are not in the store.
    Resolved { missing: usize, bytes: u64 },
    /// A layer is here, and is unpacked next.
    Fetched { layer: &'a SourceLayer, bytes: u64 },
}

/// Copies an image into the store, and names it. Layers that the store has are not fetched. After a failure, layers that
/// were complete may stay, for the next attempt or garbage collection; nothing else does.
///
/// # Errors
/// Any of [`SourceError`].
pub(crate) async fn copy_into(
    store: &Store,
    source: &dyn ImageSource,
    copy: &ImageCopy,
    progress: &(dyn Fn(CopyEvent<'_>) + Send + Sync),
) -> Result<Image> {
    let fetch = LayerFetch { source, copy, progress };
    let image = copy.deadline.limit(source.resolve(&copy.platform)).await?;
    let (missing_sender, missing) = oneshot::channel();
    let (additions, queue) = mpsc::channel(WAITING);
    let adder = Adder { store: store.clone(), image: new_image(&image, &copy.name), queue };
    let layers = image.layers;
    let mut added = tokio::task::spawn_blocking(move || adder.run(layers, missing_sender));
    let fetched = copy.deadline.limit(Box::pin(fetch.run(missing, additions))).await;
    if let Err(err) = fetched {
        // The adder has lost its queue, and ends after the layer that it has begun.
        let _ = tokio::time::timeout(GRACE, added).await;
        return Err(err);
    }
    let failed = |err| SourceError::io("cannot add an image")(std::io::Error::other(err));
    copy.deadline.limit(async { (&mut added).await.unwrap_or_else(|err| Err(failed(err))) }).await
}

/// The fetching half of a copy.
struct LayerFetch<'a> {
    source: &'a dyn ImageSource,
    copy: &'a ImageCopy,
    progress: &'a (dyn Fn(CopyEvent<'_>) + Send + Sync),
}

impl LayerFetch<'_> {
    /// Fetches the layers that are missing, and passes them on in their order. It ends early when nobody takes them any
    /// more: then the adder has failed, and says why.
    async fn run(&self, missing: oneshot::Receiver<Vec<SourceLayer>>, additions: mpsc::Sender<Step>) -> Result<()> {
        let Ok(missing) = missing.await else { return Ok(()) };
        let bytes = missing.iter().filter_map(|it| it.blob.as_ref()).map(|it| it.size).sum();
        (self.progress)(CopyEvent::Resolved { missing: missing.len(), bytes });
        let fetches: Vec<_> = missing.iter().map(|layer| self.fetch(layer).boxed()).collect();
        let mut fetched = stream::iter(fetches).buffered(FETCHES);
        while let Some(layer) = fetched.next().await {
            if additions.send(Step::Layer(layer?)).await.is_err() {
                return Ok(());
            }
        }
        let _ = additions.send(Step::Finish).await;
        Ok(())
    }

    async fn fetch(&self, layer: &SourceLayer) -> Result<NewLayer> {
        let blob = self.source.fetch_layer(layer, &self.copy.scratch).await?;
        (self.progress)(CopyEvent::Fetched { layer, bytes: blob.size });
        let compression = blob.compression().map_err(SourceError::io("cannot read a layer"))?;
        Ok(NewLayer { diff_id: layer.diff_id.clone(), blob: blob.file, compression, limits: self.copy.limits })
    }
}

fn new_image(image: &SourceImage, name: &ImageRef) -> NewImage {
    let name = name.completed();
    let (named, pinned) = name.as_str().split_once('@').map_or((name.as_str(), false), |it| (it.0, true));
    let repository = match named.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => named,
    };
    NewImage {
        configuration: image.configuration.clone(),
        repo_digest: image.digest.as_ref().map(|digest| format!("{repository}@{digest}")),
        names: if pinned { Vec::new() } else { vec![name] },
        intermediate: false,
    }
}

enum Step {
    Layer(NewLayer),
    Finish,
}

/// Adds layers and their image, on a thread of its own: the store's calls block.
struct Adder {
    store: Store,
    image: NewImage,
    queue: mpsc::Receiver<Step>,
}

impl Adder {
    fn run(mut self, layers: Vec<SourceLayer>, missing: oneshot::Sender<Vec<SourceLayer>>) -> Result<Image> {
        let mut addition = self.store.begin_addition()?;
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
                Some(Step::Layer(layer)) => drop(addition.add_layer(layer)?),
                Some(Step::Finish) => return Ok(addition.add_image(self.image)?),
                // The fetch failed, and its error is the one that counts.
                None => return Err(SourceError::io("the copy was given up")(std::io::ErrorKind::Interrupted.into())),
            }
        }
    }
}
