//! What a container is made from in place of an image: a snapshot, or another container; and the arguments for that.

use std::time::Instant;

use coracle_images::profile::Purpose;
use coracle_images::snapshot::SnapshotImage;
use coracle_lifecycle::MadeFrom;
use coracle_provision::StepReport;
use coracle_runtime::{ContainerName, SnapshotName};

use crate::context::Context;
use crate::failure::Failure;
use crate::host_identity;
use crate::image_build::{ImageSource, Packages, ResolvedImage};
use crate::resolve::{Request, SourceFacts};
use crate::snapshot::{SnapshotSource, TakenSnapshot, snapshots};
use crate::warning::Warning;

/// What a container is made from in place of an image.
pub(crate) enum CreateSource {
    /// What was kept before.
    Snapshot(Box<SnapshotImage>),
    /// A container as it is, by a snapshot of that name.
    Fork(Box<SnapshotSource>, SnapshotName),
}

/// A snapshot to make a container from, and what is to be said of it.
pub(super) struct ResolvedSource {
    pub(super) snapshot: SnapshotImage,
    pub(super) forked: Option<ForkSource>,
    pub(super) warnings: Vec<Warning>,
    begun: Instant,
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
                reference: snapshots(cx, &cx.store()?)?.reference(name),
                purpose: source.record.purpose.as_deref().and_then(|it| Purpose::parse(it).ok()),
                workdir: source.record.workdir.clone(),
                mount_cwd: source.record.mount_cwd,
            },
        })
    }

    /// Has the snapshot. Of a fork it is made now, which is not to be abandoned half way.
    pub(super) async fn resolve(self, cx: &Context) -> Result<ResolvedSource, Failure> {
        let begun = Instant::now();
        match self {
            Self::Snapshot(it) => Ok(ResolvedSource { snapshot: *it, forked: None, warnings: Vec::new(), begun }),
            Self::Fork(source, name) => {
                let taken = source.keep(cx, (name, false)).await?;
                let TakenSnapshot { snapshot, not_included, warnings } = taken;
                let from = source.record.name.clone();
                Ok(ResolvedSource { snapshot, forked: Some(ForkSource { from, not_included }), warnings, begun })
            }
        }
    }
}

impl ResolvedSource {
    /// The same as the image of a `create`.
    pub(super) fn resolve_image(&self, cx: &Context, request: &Request) -> ResolvedImage {
        let it = &self.snapshot;
        let detail = match &self.forked {
            Some(forked) => format!("{}, made of `{}` as it is", it.reference, forked.from),
            None => format!("{} of `{}`, kept {:.0}", it.reference, it.of.container, it.created),
        };
        let probe = "the engine has the image under the id that the container is made from";
        ResolvedImage {
            image: it.image.clone(),
            reference: it.reference.clone(),
            source: ImageSource::Snapshot,
            step: StepReport::success("image", detail, probe).with_duration(self.begun.elapsed()),
            certs: host_identity::certs(cx, &request.provisioning.certs),
            packages: Packages::Done(StepReport::skipped("packages", "a snapshot has what its container had")),
            warnings: self.warnings.clone(),
            recipe: coracle_images::Recipe::default(),
        }
    }
}
