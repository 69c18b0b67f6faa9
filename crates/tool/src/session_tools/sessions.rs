//! The containers of a session for the tools, by `lifecycle`.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future as _, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use coracle_lifecycle::{EnsureRequest, Ready, SessionContainers, SlotRole};
use coracle_runtime::{ByteSize, ContainerName, Ids, Link, ProcessId};
use coracle_workspace as workspace;
use coracle_workspace::{Reason, Recreated, Role, Session, Sessions, Warning};
use tokio::sync::OnceCell;

use super::backoff::PullBackoff;
use super::container_spec::{Plan, template};
use super::engine_backoff::EngineBackoff;
use super::session_egress::SessionEgress;
use crate::context::{Context, Mouth};
use crate::failure::{Failure, slot_failure};

/// The containers of one session, for one call.
#[derive(Clone)]
pub(crate) struct ContainerSessions {
    cx: Context,
    shared: Arc<SharedState>,
}

/// State that all calls of a session share.
struct SharedState {
    slots: SessionContainers,
    owner: Option<ProcessId>,
    plans: [RolePlan; 2],
    backoff: PullBackoff,
    /// Spaces checks for a missing engine.
    engine_backoff: EngineBackoff,
    /// Warnings for the next response of a role.
    pending_warnings: Mutex<[Vec<Warning>; 2]>,
    /// Replacements by containers that were not ready, for the next response of a role.
    pending_replacements: Mutex<[Option<Recreated>; 2]>,
}

/// The configured container of a role.
#[derive(Debug)]
struct RolePlan {
    hash: String,
    user: Ids,
    rootless: bool,
    memory: ByteSize,
    /// The proxy, open from the first call on for as long as this process holds it.
    egress: OnceCell<Option<SessionEgress>>,
}

impl ContainerSessions {
    pub(super) fn new(cx: &Context) -> Result<Self, Failure> {
        let planned = |role| {
            let plan = Plan::for_person(role, cx);
            let memory = plan.limits.memory.unwrap_or(ByteSize(0));
            RolePlan { hash: plan.hash(), user: plan.user, rootless: plan.strict, memory, egress: OnceCell::new() }
        };
        let plans = [planned(Role::Workspace), planned(Role::Run)];
        let owner = (cx.call.mouth == Mouth::Mcp).then(ProcessId::current);
        let (backoff, engine_backoff, pending_warnings, pending_replacements) = Default::default();
        let shared = SharedState {
            slots: cx.session_containers()?,
            owner,
            plans,
            backoff,
            engine_backoff,
            pending_warnings,
            pending_replacements,
        };
        Ok(Self { cx: cx.clone(), shared: Arc::new(shared) })
    }

    /// The same containers for another call, with its own progress and cancellation.
    pub(super) fn for_call(&self, cx: &Context) -> Self {
        Self { cx: cx.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl SharedState {
    fn planned(&self, role: SlotRole) -> &RolePlan {
        &self.plans[role_index(role)]
    }

    /// A digest of the settings, which stay, and of the shared packages, which may change.
    fn spec_hash(&self, cx: &Context, role: Role) -> Cow<'_, str> {
        let hash = &self.planned(slot_role(role)).hash;
        match role {
            Role::Workspace => Cow::Borrowed(hash),
            Role::Run => match crate::session_tools::packages::mark(cx) {
                Some(mark) => format!("{hash} {mark}").into(),
                None => Cow::Borrowed(hash),
            },
        }
    }

    fn ask<'a>(
        &'a self,
        session: &'a ContainerName,
        (role, spec_hash): (SlotRole, &'a str),
        tell: &'a coracle_lifecycle::SlotObserver<'static>,
    ) -> EnsureRequest<'a> {
        let RolePlan { user, rootless, .. } = *self.planned(role);
        EnsureRequest { session, role, spec_hash, user, rootless, owner: self.owner.as_ref(), tell }
    }
}

impl SharedState {
    fn pending_replacements(&self) -> MutexGuard<'_, [Option<Recreated>; 2]> {
        self.pending_replacements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The replacement to report, joined with earlier ones that no response reported.
    fn take_replacement(&self, ready: &Ready, role: SlotRole) -> Option<Recreated> {
        let before = self.pending_replacements()[role_index(role)].take();
        match (ready.news.clone(), before) {
            (Some(now), Some(before)) => {
                let files_lost = now.files_lost || before.files_lost;
                Some(Recreated { from: before.from, files_lost, ..now })
            }
            (now, before) => now.or(before),
        }
    }

    fn pending_warnings(&self) -> MutexGuard<'_, [Vec<Warning>; 2]> {
        self.pending_warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The index of a role in state that is kept for both.
fn role_index(role: SlotRole) -> usize {
    usize::from(role == SlotRole::Run)
}

impl fmt::Debug for ContainerSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainerSessions").field("session", &self.cx.call.session).finish_non_exhaustive()
    }
}

impl ContainerSessions {
    pub(super) async fn ready(&self, role: Role) -> Result<Session, Failure> {
        let (slot, cx, shared) = (slot_role(role), &self.cx, &*self.shared);
        let tell = cx.teller();
        let planned = shared.planned(slot);
        let egress = planned.egress.get_or_try_init(|| SessionEgress::of(cx, role, planned.user)).await?;
        let plan = |_| async move {
            shared.backoff.check()?;
            let what = if role == Role::Run { "snippets" } else { "the session" };
            cx.call.progress.message(format!("making the container for {what}")).await;
            // Rare and large: not in every call's future.
            Box::pin(super::maintenance::recover(cx, &shared.slots)).await;
            let sockets = egress.as_ref().map(SessionEgress::sockets).transpose()?.flatten();
            let plan = Box::pin(template(cx, role, sockets.as_deref())).await;
            shared.backoff.note(&plan);
            let (plan, warnings) = plan?;
            shared.pending_warnings()[role_index(slot)] = warnings;
            Ok(plan)
        };
        let spec_hash = shared.spec_hash(cx, role);
        let ask = shared.ask(&cx.call.session, (slot, &spec_hash), &*tell);
        if let Err(failure) = shared.engine_backoff.check()
            && shared.slots.held_link(&cx.call.session, slot).await.is_none()
        {
            return Err(failure);
        }
        let ready = shared.slots.ensure(cx.engines(), ask, plan).await.map_err(slot_failure);
        let ready = ready.map_err(|failure| shared.engine_backoff.note(failure))?;
        if let Some(egress) = egress {
            Box::pin(self.attach_proxy(egress, &ready, slot)).await?;
        }
        Ok(Session {
            link: ready.link.clone(),
            session_id: ready.slot.session.to_string(),
            generation: ready.slot.generation.into(),
            user: ready.slot.user,
            workdir: ready.slot.workdir.clone(),
            env: ready.slot.env.clone(),
            memory: planned.memory,
            code: (ready.slot.rootless && role == Role::Run)
                .then(|| crate::strict::code_dir(cx, &cx.call.session))
                .transpose()?,
            replaced: shared.take_replacement(&ready, slot),
            warnings: std::mem::take(&mut shared.pending_warnings()[role_index(slot)]),
            in_use: Arc::new(ready),
        })
    }
}

/// A container whose proxy is not proven is discarded.
impl ContainerSessions {
    async fn attach_proxy(&self, egress: &SessionEgress, ready: &Ready, role: SlotRole) -> Result<(), Failure> {
        egress.listen()?;
        let Some(id) = &ready.slot.container_id else { return Ok(()) };
        let Err(failure) = egress.prove(&ready.link, id).await else { return Ok(()) };
        let news = self.shared.take_replacement(ready, role);
        self.shared.pending_replacements()[role_index(role)] = news;
        let only = (Some(id), Reason::NotReady);
        if let Err(err) = self.shared.slots.discard(self.cx.engines(), (&self.cx.call.session, role), only).await {
            tracing::warn!(%err, "a container that is not ready stays");
        }
        Err(failure)
    }
}

#[async_trait]
impl Sessions for ContainerSessions {
    async fn ensure(&self, role: Role) -> Result<Session, Box<workspace::Failure>> {
        let own = self.clone();
        let mut ready = Box::pin(async move { own.ready(role).await });
        // A container that is ready is returned without a task switch.
        let ready = match poll_fn(|cx| Poll::Ready(ready.as_mut().poll(cx))).await {
            Poll::Ready(ready) => ready,
            // A task of its own: if this call is cancelled, the next one uses the container that is being created.
            Poll::Pending => tokio::spawn(ready).await.map_err(Failure::internal).and_then(|it| it),
        };
        ready.map_err(|it| Box::new(workspace_failure(it.told_to(&self.cx.reader()))))
    }

    async fn held(&self, role: Role) -> Option<Link> {
        self.shared.slots.held_link(&self.cx.call.session, slot_role(role)).await
    }

    async fn touch(&self, role: Role) {
        self.shared.slots.touch(&self.cx.call.session, slot_role(role));
    }

    async fn discard(&self, role: Role, reason: Reason) -> Result<(), Box<workspace::Failure>> {
        let (cx, slot) = (&self.cx, (&self.cx.call.session, slot_role(role)));
        let discarded = self.shared.slots.discard(cx.engines(), slot, (None, reason)).await;
        discarded.map_err(|err| Box::new(workspace_failure(slot_failure(err).told_to(&self.cx.reader()))))
    }
}

pub(crate) fn slot_role(role: Role) -> SlotRole {
    match role {
        Role::Workspace => SlotRole::Workspace,
        Role::Run => SlotRole::Run,
    }
}

/// The failure as the workspace's tools report it.
pub(crate) fn workspace_failure(failure: Failure) -> workspace::Failure {
    let failure = failure.into_inner();
    workspace::Failure {
        code: workspace::Code::Other(failure.code.word()),
        message: failure.message,
        hint: failure.hint,
        retryable: failure.retryable,
        details: failure.details,
    }
}
