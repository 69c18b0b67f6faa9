//! Each start of a container is made ready once, and it is remembered that it is.

use std::sync::Arc;

use coracle_runtime::link::{Link, Way};

use super::gate::Gate;
use super::prepare::{Preparing, not_ready, prepare};
use super::record::{Prepared, SandboxDir, SandboxRecord};
use crate::{ProfileName, Result};

/// What makes the starts of one container ready.
#[derive(Clone, Debug)]
pub struct Readying {
    pub(super) dir: SandboxDir,
    pub(super) profile: ProfileName,
    pub(super) preparing: Preparing,
    /// What keeps the proxy, where it is reached by the container's own link.
    by_link: Option<Arc<Gate>>,
}

impl Readying {
    /// The one that is remembered in that directory.
    #[must_use]
    pub fn new(dir: SandboxDir, profile: ProfileName, preparing: Preparing) -> Self {
        Self { dir, profile, preparing, by_link: None }
    }

    /// Its proxy is reached by the container's own link.
    #[must_use]
    pub fn by_link(self, gate: Arc<Gate>) -> Self {
        Self { by_link: Some(gate), preparing: Preparing { way: Way::Link, ..self.preparing }, ..self }
    }

    /// The container that runs is reached by that link.
    pub(super) fn met(&self, link: &Link) -> Result<()> {
        self.by_link.iter().try_for_each(|it| it.reached_by(link))
    }

    /// Sees to it that the container with that id, which runs, has its relays and no other way out. Its proxy has to
    /// listen already.
    ///
    /// # Errors
    /// `sandbox_not_ready` with the step that failed, `egress_not_enforced`: whoever made the container takes it away.
    pub async fn ensure(&self, link: &Link, id: &str) -> Result<()> {
        self.met(link)?;
        if self.is_proven(link, id).await? {
            return Ok(());
        }
        let _alone = self.dir.lock().await?;
        if self.is_proven(link, id).await? {
            return Ok(());
        }
        self.prove(link, id).await
    }

    /// The record's lock is held.
    pub(super) async fn prove(&self, link: &Link, id: &str) -> Result<()> {
        let (key, profile) = (self.dir.key().clone(), self.profile.clone());
        let remember = |ready| self.dir.save(&SandboxRecord { key: key.clone(), profile: profile.clone(), ready });
        let mut given = None;
        let prepared = prepare((link, id), &self.preparing, async |prepared| {
            given = Some(prepared.clone());
            remember(Some(prepared))
        });
        match prepared.await {
            Ok(()) => remember(given.map(|it| Prepared { proven: true, ..it })),
            Err(failure) => {
                remember(None)?;
                Err(failure)
            }
        }
    }

    pub(super) async fn is_proven(&self, link: &Link, id: &str) -> Result<bool> {
        let Some(ready) = self.dir.record()?.and_then(|it| it.ready).filter(|it| it.proven) else { return Ok(false) };
        let run = link.run_id().await.map_err(|err| not_ready("guest", err))?;
        // The person may have put up a wall since, and a container in which something runs is still the same one.
        Ok(ready.holds((id, &run), self.preparing.wall().is_some()))
    }
}
