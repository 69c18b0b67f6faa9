//! Ensures the container of a role.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future as _, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use coracle_client::Link;
use coracle_lifecycle::{BoxError, EnsureRequest, Ready, SlotError, SlotKey};
use coracle_types::SlotRole;

use super::engine_backoff::EngineBackoff;
use super::{ContainerProvider, ManagedOptions, RoleSettings};
use crate::response::Result;
use crate::{Reason, Replacement, SessionHandle, Warning};

/// The containers of one session. Clones share their state.
#[derive(Clone)]
pub struct ManagedSessions {
    provider: Arc<dyn ContainerProvider>,
    shared: Arc<SharedState>,
}

/// State that all calls of a session share.
struct SharedState {
    options: ManagedOptions,
    engine_backoff: EngineBackoff,
    pending: [Mutex<NextReport>; 2],
}

/// What the next response of a role reports.
#[derive(Debug, Default)]
struct NextReport {
    warnings: Vec<Warning>,
    /// A replacement by a container that was not ready.
    replaced: Option<Replacement>,
}

impl SharedState {
    fn pending(&self, role: SlotRole) -> MutexGuard<'_, NextReport> {
        self.pending[usize::from(role == SlotRole::Run)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self, role: SlotRole) -> &RoleSettings {
        if role == SlotRole::Run { &self.options.run } else { &self.options.workspace }
    }

    /// A digest of the settings, which stay, and of the shared packages, which may change.
    fn spec_hash(&self, role: SlotRole) -> Cow<'_, str> {
        let hash = &self.settings(role).spec_hash;
        if role != SlotRole::Run {
            return hash.into();
        }
        // The error for packages that cannot be read is that of their mount.
        let packages = self.options.store.shared_packages().unwrap_or_default();
        let volumes = packages.iter().map(|it| format!(" {}", it.volume));
        volumes.fold(Cow::Borrowed(hash.as_str()), |hash, volume| hash + Cow::from(volume))
    }

    /// The replacement to report, joined with an earlier one that no response reported.
    fn take_replacement(&self, ready: &Ready) -> Option<Replacement> {
        let before = self.pending(ready.slot.role).replaced.take();
        match (ready.replacement.clone(), before) {
            (Some(now), Some(before)) => {
                let files_lost = now.files_lost || before.files_lost;
                Some(Replacement { from: before.from, files_lost, ..now })
            }
            (now, before) => now.or(before),
        }
    }
}

impl fmt::Debug for ManagedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagedSessions").field("session", &self.shared.options.session).finish_non_exhaustive()
    }
}

impl ManagedSessions {
    /// The containers of the session that `options` name.
    #[must_use]
    pub fn new(options: ManagedOptions, provider: Arc<dyn ContainerProvider>) -> Self {
        let (engine_backoff, pending) = Default::default();
        Self { provider, shared: Arc::new(SharedState { options, engine_backoff, pending }) }
    }

    /// The same containers for one call, with its own progress and cancellation.
    #[must_use]
    pub fn for_call(&self, provider: Arc<dyn ContainerProvider>) -> Self {
        Self { provider, shared: Arc::clone(&self.shared) }
    }

    /// The container of a role, ready for use.
    ///
    /// # Errors
    /// Why the container cannot be created.
    pub async fn ensure(&self, role: SlotRole) -> Result<SessionHandle> {
        let own = self.clone();
        let mut ready = Box::pin(async move { own.ready(role).await });
        // A container that is ready is returned without a task switch.
        match poll_fn(|cx| Poll::Ready(ready.as_mut().poll(cx))).await {
            Poll::Ready(ready) => ready,
            // A task of its own: if this call is cancelled, the next one uses the container that is being created.
            Poll::Pending => match tokio::spawn(ready).await {
                Ok(ready) => ready,
                Err(err) => Err(self.provider.failure(SlotError::Plan(err.into())).into()),
            },
        }
    }

    async fn ready(&self, role: SlotRole) -> Result<SessionHandle> {
        let shared = &*self.shared;
        let (options, settings) = (&shared.options, shared.settings(role));
        let template = |_| async move {
            // Rare and large: not in every call's future.
            let (template, warnings) = Box::pin(self.provider.template(role)).await.map_err(BoxError::from)?;
            shared.pending(role).warnings = warnings;
            Ok(template)
        };
        let request = EnsureRequest {
            session: &options.session,
            role,
            spec_hash: &shared.spec_hash(role),
            user: settings.user,
            rootless: settings.rootless,
            owner: options.owner.as_ref(),
            observer: &*options.observer,
        };
        if let Err(failure) = shared.engine_backoff.check()
            && self.held_link(role).await.is_none()
        {
            return Err(failure);
        }
        let ready = options.slots.ensure(&*options.engines, request, template).await;
        let ready = ready.map_err(|err| shared.engine_backoff.note(self.provider.failure(err)))?;
        let replaced = shared.take_replacement(&ready);
        if let (true, Some(id)) = (settings.has_proxy, &ready.slot.container_id)
            && let Err(failure) = self.provider.attach_proxy(role, &ready.link, id).await
        {
            shared.pending(role).replaced = replaced;
            return Err(failure.into());
        }
        Ok(SessionHandle {
            link: ready.link.clone(),
            session_id: ready.slot.session.to_string(),
            generation: ready.slot.generation.into(),
            user: ready.slot.user,
            workdir: ready.slot.workdir.clone(),
            env: ready.slot.env.clone(),
            memory: Some(settings.memory),
            code: settings.code.clone().filter(|_| ready.slot.rootless),
            replaced,
            warnings: std::mem::take(&mut shared.pending(role).warnings),
            in_use: Some(Arc::new(ready)),
        })
    }

    pub(crate) async fn held_link(&self, role: SlotRole) -> Option<Link> {
        self.shared.options.slots.held_link(SlotKey::new(&self.shared.options.session, role)).await
    }

    pub(crate) fn touch(&self, role: SlotRole) {
        self.shared.options.slots.touch(&self.shared.options.session, role);
    }

    /// The next call finds a container dead that could not be removed.
    pub(crate) async fn discard(&self, role: SlotRole, reason: Reason) {
        let ManagedOptions { slots, session, engines, .. } = &self.shared.options;
        if let Err(err) = Box::pin(slots.discard(&**engines, SlotKey::new(session, role), reason, None)).await {
            tracing::warn!(%err, "a container that is discarded stays");
        }
    }
}
