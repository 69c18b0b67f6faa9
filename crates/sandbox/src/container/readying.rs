//! Each start of a container is made ready once, and it is remembered that it is.

use coracle_runtime::link::Link;

use super::prepare::{Preparing, not_ready, prepare};
use super::record::{Prepared, SandboxDir, SandboxRecord};
use crate::{ProfileName, Result};

/// What makes the starts of one container ready.
#[derive(Clone, Debug)]
pub struct Readying {
    pub(super) dir: SandboxDir,
    pub(super) profile: ProfileName,
    pub(super) preparing: Preparing,
}

impl Readying {
    /// The one that is remembered in that directory.
    #[must_use]
    pub fn new(dir: SandboxDir, profile: ProfileName, preparing: Preparing) -> Self {
        Self { dir, profile, preparing }
    }

    /// Sees to it that the container with that id, which runs, has its relays and no other way out. Its proxy has to
    /// listen already.
    ///
    /// # Errors
    /// `sandbox_not_ready` with the step that failed, `egress_not_enforced`: whoever made the container takes it away.
    pub async fn ensure(&self, link: &Link, id: &str) -> Result<()> {
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
        Ok(ready.container == id && ready.run == run)
    }
}
