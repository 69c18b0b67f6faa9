//! A repository of this host that a container gets a clone of: a bare copy travels.

use std::path::Path;

use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_host::fs::HostPath;
use coracle_lifecycle::{CopyRequest, ManagedContainer, copy_in};
use coracle_prepare::resolve::copy_request;
use coracle_prepare::sandbox;
use coracle_provision::{RepoCopy, RepoRequest, RepoSource, ReportItem, StepContext};
use coracle_runtime::ExecTarget;
use coracle_types::{ContainerPath, random_hex};

/// Copies a repository into the container.
pub(super) async fn brought(
    cx: &Context,
    found: &ManagedContainer,
    inside: &ExecTarget,
    dir: &Path,
    name: String,
) -> Result<RepoCopy, Failure> {
    // A directory that a container can change meanwhile is not read.
    let looks = !cx.store()?.is_written_inside(dir)?;
    let copied = sandbox::worktrees(cx)?.copy_directory(dir, looks).await?;
    let path = ContainerPath::parse(format!("/tmp/coracle-{}.git", random_hex::<8>()))?;
    let host = HostPath::open(&copied.path()).map_err(coracle_lifecycle::Error::from)?;
    let request = CopyRequest { protected: Vec::new(), ..copy_request(cx, host, path.clone())? };
    copy_in(found, inside, request).await?;
    let (origin, uncommitted, is_empty) = (copied.origin.clone(), copied.uncommitted, copied.is_empty);
    Ok(RepoCopy { name, path, origin, uncommitted, is_empty })
}

/// Removes the copies. One that stays does no harm.
pub(super) async fn clear(place: &StepContext, repos: &[RepoRequest]) {
    for repo in repos {
        if let RepoSource::Copy(copy) = &repo.from
            && let Err(err) = place.link.remove(place.at(&copy.path), true).await
        {
            tracing::warn!(path = %copy.path, %err, "the copy of a clone stays");
        }
    }
}

/// A part of the step `repos`.
pub(super) fn failed(name: &str, path: &ContainerPath, failure: &Failure) -> ReportItem {
    let item = ReportItem::failed(name, &failure.message).with("code", failure.code.word());
    let item = item.with("path", path.as_str());
    match &failure.hint {
        Some(hint) => item.with("hint", hint.as_str()),
        None => item,
    }
}
