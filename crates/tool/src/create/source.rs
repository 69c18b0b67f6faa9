//! What a container is made from in place of an image: a snapshot, or another container; and the arguments for that.

use std::time::Instant;

use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_context::host_identity;
use coracle_images::profile::Purpose;
use coracle_images::snapshot::SnapshotImage;
use coracle_lifecycle::MadeFrom;
use coracle_prepare::image_build::{ImageSource, Packages, ResolvedImage};
use coracle_prepare::resolve::{Request, SourceFacts};
use coracle_provision::StepReport;
use coracle_runtime::Image;
use coracle_types::{ContainerId, ContainerName, ImageRef, SnapshotName};

use crate::snapshot::{CopySource, SnapshotSource, TakenSnapshot, snapshots};

/// What a container is made from in place of an image.
pub(crate) enum CreateSource {
    /// A snapshot.
    Snapshot(Box<SnapshotImage>),
    /// A container as it is: by its engine, or by a snapshot of that name.
    Fork(Box<SnapshotSource>, SnapshotName),
}

/// An image to make a container from, and the step that reports it.
pub(super) struct ResolvedSource {
    image: Image,
    reference: ImageRef,
    detail: String,
    pub(super) forked: Option<ForkSource>,
    /// The container that the engine copies.
    pub(super) parent: Option<ForkParent>,
    begun: Instant,
}

/// A container whose files an engine copies while it runs.
#[derive(Clone, Debug)]
pub(super) struct ForkParent {
    pub(super) name: ContainerName,
    pub(super) id: ContainerId,
    /// The checkpoint whose files the new container gets, instead of the current ones.
    pub(super) checkpoint: Option<u64>,
}

/// What the answer of `fork` has besides.
#[derive(Clone, Debug)]
pub(super) struct ForkSource {
    pub(super) from: ContainerName,
    pub(super) not_included: Vec<String>,
}

impl CreateSource {
    /// What is known of it now.
    pub(super) fn seen(&self, cx: &Context) -> Result<SourceFacts, Failure> {
        Ok(match self {
            Self::Snapshot(it) => SourceFacts {
                made_from: MadeFrom { name: it.name.clone(), own: false },
                reference: it.reference.clone(),
                purpose: it.of.purpose.clone(),
                workdir: it.of.workdir.clone(),
                mount_cwd: it.of.mount_cwd,
            },
            Self::Fork(source, name) => SourceFacts {
                made_from: MadeFrom { name: name.clone(), own: true },
                reference: fork_reference(cx, source, name)?,
                purpose: source.record.purpose.as_deref().and_then(|it| Purpose::parse(it).ok()),
                workdir: source.record.workdir.clone(),
                mount_cwd: source.record.mount_cwd,
            },
        })
    }

    /// Has the image. The snapshot of a fork is made now, which is not to be abandoned half way.
    pub(super) async fn resolve(self, cx: &Context) -> Result<ResolvedSource, Failure> {
        let begun = Instant::now();
        match self {
            Self::Snapshot(it) => {
                let detail = format!("{} of `{}`, taken {:.0}", it.reference, it.of.container, it.created);
                Ok(ResolvedSource {
                    image: it.image,
                    reference: it.reference,
                    detail,
                    forked: None,
                    parent: None,
                    begun,
                })
            }
            Self::Fork(source, name) if source.is_copied_by_engine() => {
                let CopySource { container, image, checkpoint, not_included } = source.check_copy(cx).await?;
                let reference = fork_reference(cx, &source, &name)?;
                let from = source.record.name.clone();
                let state = match checkpoint {
                    Some(number) => format!("at checkpoint {number}"),
                    None => "as they are".to_owned(),
                };
                let detail = format!("{reference}, with the files of `{from}` {state}");
                let parent = Some(ForkParent { name: from.clone(), id: container, checkpoint });
                let forked = Some(ForkSource { from, not_included });
                Ok(ResolvedSource { image, reference, detail, forked, parent, begun })
            }
            Self::Fork(source, name) => {
                let taken = source.keep(cx, (name, false)).await?;
                let TakenSnapshot { snapshot: SnapshotImage { image, reference, .. }, not_included } = taken;
                let from = source.record.name.clone();
                let detail = format!("{reference}, made of `{from}` as it is");
                let forked = Some(ForkSource { from, not_included });
                Ok(ResolvedSource { image, reference, detail, forked, parent: None, begun })
            }
        }
    }
}

/// The name of what a fork is made from: of its container's own image, or of the snapshot between the two.
fn fork_reference(cx: &Context, source: &SnapshotSource, name: &SnapshotName) -> Result<ImageRef, Failure> {
    if source.is_copied_by_engine() {
        return ImageRef::parse(source.record.image.as_str()).map_err(Failure::internal);
    }
    Ok(snapshots(cx, &cx.store()?)?.reference(name))
}

impl ResolvedSource {
    /// The same as the image of a `create`.
    pub(super) fn resolve_image(&self, cx: &Context, request: &Request) -> ResolvedImage {
        let probe = "the engine has the image under the id that the container is made from";
        ResolvedImage {
            image: self.image.clone(),
            reference: self.reference.clone(),
            source: ImageSource::Snapshot,
            step: StepReport::success("image", self.detail.as_str(), probe).with_duration(self.begun.elapsed()),
            certs: host_identity::certs(cx, &request.provisioning.certs),
            packages: Packages::Done(StepReport::skipped("packages", "a snapshot has what its container had")),
            recipe: coracle_images::Recipe::default(),
        }
    }
}
