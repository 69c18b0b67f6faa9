//! A repository of this host that a container gets a clone of: its branches travel as one file.

use std::path::Path;

use coracle_lifecycle::{CopyRequest, ManagedContainer, copy_in};
use coracle_provision::{RepoBundle, RepoRequest, RepoSource, ReportItem, StepContext};
use coracle_runtime::host::fs::HostPath;
use coracle_runtime::{ContainerPath, ExecTarget, random_hex};

use crate::context::Context;
use crate::failure::Failure;
use crate::resolve::copy_request;
use crate::sandbox;

/// Packs a repository, and puts the file into the container.
pub(super) async fn brought(
    cx: &Context,
    found: &ManagedContainer,
    inside: &ExecTarget,
    dir: &Path,
    name: String,
) -> Result<RepoBundle, Failure> {
    // What a container could change while it is looked at is not looked at.
    let looks = !cx.store()?.is_written_inside(dir)?;
    let packed = sandbox::worktrees(cx)?.bundle_directory(dir, looks).await?;
    let file = ContainerPath::parse(format!("/tmp/coracle-{}.bundle", random_hex::<8>()))?;
    let host = HostPath::open(&packed.file()).map_err(coracle_lifecycle::Error::from)?;
    let copy = CopyRequest { protected: Vec::new(), ..copy_request(cx, host, file.clone())? };
    copy_in(found, inside, copy).await?;
    Ok(RepoBundle { name, file, origin: packed.origin.clone(), uncommitted: packed.uncommitted })
}

/// Removes the files. One that stays does no harm.
pub(super) async fn clear(place: &StepContext, repos: &[RepoRequest]) {
    for repo in repos {
        if let RepoSource::Bundle(bundle) = &repo.from
            && let Err(err) = place.link.remove(place.at(&bundle.file), false).await
        {
            tracing::warn!(file = %bundle.file, %err, "the file of a clone stays");
        }
    }
}

/// A part of the step `repos`.
pub(super) fn failed(name: &str, failure: &Failure) -> ReportItem {
    ReportItem::failed(name, &failure.message).with("code", failure.code.word())
}
