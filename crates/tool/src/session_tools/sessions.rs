//! The containers of a session, made and kept by `lifecycle`, as the tools ask for them.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future as _, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use coracle_lifecycle::{EnsureRequest, Ready, Reason as Why, SessionContainers, SlotRole};
use coracle_runtime::{ByteSize, ContainerName, Ids, Link, ProcessId};
use coracle_workspace as workspace;
use coracle_workspace::{Reason, Recreated, Role, Session, Sessions, Warning};
use tokio::sync::OnceCell;

use super::backoff::Backoff;
use super::container_spec::{Plan, template};
use super::engine_backoff::Without;
use super::session_egress::WayOut;
use crate::context::{Context, Mouth};
use crate::failure::{Failure, slot_failure};

/// The containers of one session, for one call.
#[derive(Clone)]
pub(crate) struct ContainerSessions {
    cx: Context,
    kept: Arc<Kept>,
}

/// What stays from call to call.
struct Kept {
    slots: SessionContainers,
    owner: Option<ProcessId>,
    plans: [Planned; 2],
    backoff: Backoff,
    /// That there is no engine, for a while.
    without: Without,
    /// What the next result of a role has to tell.
    untold: Mutex<[Vec<Warning>; 2]>,
    /// The same of a container that took another's place and was of no use.
    unheard: Mutex<[Option<coracle_lifecycle::Recreated>; 2]>,
}

/// A role's container as the settings have it.
#[derive(Debug)]
struct Planned {
    hash: String,
    user: Ids,
    rootless: bool,
    memory: ByteSize,
    /// Kept from the first call on: as long as this process holds it, the container has its way out.
    way_out: OnceCell<Option<WayOut>>,
}

impl ContainerSessions {
    pub(super) fn new(cx: &Context) -> Result<Self, Failure> {
        let planned = |role| {
            let plan = Plan::for_person(role, cx);
            let memory = plan.limits.memory.unwrap_or(ByteSize(0));
            Planned { hash: plan.hash(), user: plan.user, rootless: plan.strict, memory, way_out: OnceCell::new() }
        };
        let plans = [planned(Role::Workspace), planned(Role::Run)];
        let owner = (cx.call.mouth == Mouth::Mcp).then(ProcessId::current);
        let (backoff, without, untold, unheard) = Default::default();
        let kept = Kept { slots: cx.session_containers()?, owner, plans, backoff, without, untold, unheard };
        Ok(Self { cx: cx.clone(), kept: Arc::new(kept) })
    }

    /// The same for another call: its news go there, and it can be withdrawn by itself.
    pub(super) fn for_call(&self, cx: &Context) -> Self {
        Self { cx: cx.clone(), kept: Arc::clone(&self.kept) }
    }
}

impl Kept {
    fn planned(&self, role: SlotRole) -> &Planned {
        &self.plans[place(role)]
    }

    /// Of settings, which stay, and of the packages for snippets, which the person may change meanwhile.
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
        let Planned { user, rootless, .. } = *self.planned(role);
        EnsureRequest { session, role, spec_hash, user, rootless, owner: self.owner.as_ref(), tell }
    }
}

impl Kept {
    fn unheard(&self) -> MutexGuard<'_, [Option<coracle_lifecycle::Recreated>; 2]> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The news of a container, and of those before it of which nobody was told.
    fn news(&self, ready: &Ready, role: SlotRole) -> Option<coracle_lifecycle::Recreated> {
        let before = self.unheard()[place(role)].take();
        match (ready.news.clone(), before) {
            (Some(now), Some(before)) => {
                let files_lost = now.files_lost || before.files_lost;
                Some(coracle_lifecycle::Recreated { from: before.from, files_lost, ..now })
            }
            (now, before) => now.or(before),
        }
    }

    fn untold(&self) -> MutexGuard<'_, [Vec<Warning>; 2]> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where of two things that of a role is.
fn place(role: SlotRole) -> usize {
    usize::from(role == SlotRole::Run)
}

impl fmt::Debug for ContainerSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainerSessions").field("session", &self.cx.call.session).finish_non_exhaustive()
    }
}

impl ContainerSessions {
    pub(super) async fn ready(&self, role: Role) -> Result<Session, Failure> {
        let (slot, cx, kept) = (slot_role(role), &self.cx, &*self.kept);
        let tell = cx.teller();
        let planned = kept.planned(slot);
        let way_out = planned.way_out.get_or_try_init(|| WayOut::of(cx, role, planned.user)).await?;
        let plan = |_| async move {
            kept.backoff.check()?;
            let what = if role == Role::Run { "snippets" } else { "the session" };
            cx.call.progress.message(format!("making the container for {what}")).await;
            // Rare and large: not in every call's future.
            Box::pin(super::maintenance::recover(cx, &kept.slots)).await;
            let sockets = way_out.as_ref().map(WayOut::sockets).transpose()?.flatten();
            let plan = Box::pin(template(cx, role, sockets.as_deref())).await;
            kept.backoff.note(&plan);
            let (plan, warnings) = plan?;
            kept.untold()[place(slot)] = warnings;
            Ok(plan)
        };
        let spec_hash = kept.spec_hash(cx, role);
        let ask = kept.ask(&cx.call.session, (slot, &spec_hash), &*tell);
        if let Err(failure) = kept.without.check()
            && kept.slots.held_link(&cx.call.session, slot).await.is_none()
        {
            return Err(failure);
        }
        let ready = kept.slots.ensure(cx.engines(), ask, plan).await.map_err(slot_failure);
        let ready = ready.map_err(|failure| kept.without.note(failure))?;
        if let Some(way_out) = way_out {
            Box::pin(self.lead_out(way_out, &ready, slot)).await?;
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
            replaced: kept.news(&ready, slot).as_ref().map(recreated),
            warnings: std::mem::take(&mut kept.untold()[place(slot)]),
            in_use: Arc::new(ready),
        })
    }
}

/// A container whose way out is not what it is to be is not used by anybody.
impl ContainerSessions {
    async fn lead_out(&self, way_out: &WayOut, ready: &Ready, role: SlotRole) -> Result<(), Failure> {
        way_out.listen()?;
        let Some(id) = &ready.slot.container_id else { return Ok(()) };
        let Err(failure) = way_out.prove(&ready.link, id).await else { return Ok(()) };
        let news = self.kept.news(ready, role);
        self.kept.unheard()[place(role)] = news;
        let only = (Some(id), Why::NotReady);
        if let Err(err) = self.kept.slots.discard(self.cx.engines(), (&self.cx.call.session, role), only).await {
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
        // What is there already is given without a change of the thread.
        let ready = match poll_fn(|cx| Poll::Ready(ready.as_mut().poll(cx))).await {
            Poll::Ready(ready) => ready,
            // A task of its own: a container that is being made is for the next call, if this one is withdrawn.
            Poll::Pending => tokio::spawn(ready).await.map_err(Failure::internal).and_then(|it| it),
        };
        ready.map_err(|it| Box::new(of_failure(it.told_to(&self.cx.reader()))))
    }

    async fn held(&self, role: Role) -> Option<Link> {
        self.kept.slots.held_link(&self.cx.call.session, slot_role(role)).await
    }

    async fn touch(&self, role: Role) {
        self.kept.slots.touch(&self.cx.call.session, slot_role(role));
    }

    async fn discard(&self, role: Role, reason: Reason) -> Result<(), Box<workspace::Failure>> {
        let (cx, slot) = (&self.cx, (&self.cx.call.session, slot_role(role)));
        let discarded = self.kept.slots.discard(cx.engines(), slot, (None, lifecycle_reason(reason))).await;
        discarded.map_err(|err| Box::new(of_failure(slot_failure(err).told_to(&self.cx.reader()))))
    }
}

pub(crate) fn slot_role(role: Role) -> SlotRole {
    match role {
        Role::Workspace => SlotRole::Workspace,
        Role::Run => SlotRole::Run,
    }
}

fn recreated(it: &coracle_lifecycle::Recreated) -> Recreated {
    Recreated {
        reason: reason(it.reason),
        exit_code: it.exit_code,
        from: it.from.into(),
        to: it.to.into(),
        files_lost: it.files_lost,
    }
}

fn reason(it: coracle_lifecycle::Reason) -> Reason {
    match it {
        // The latter two are of sandboxes alone.
        Why::Crashed | Why::Restarted | Why::NotReady => Reason::Crashed,
        Why::Oom => Reason::Oom,
        Why::Vanished => Reason::Vanished,
        Why::Idle => Reason::Idle,
        Why::SpecChanged => Reason::SpecChanged,
        Why::Timeout => Reason::Timeout,
        Why::Lifetime => Reason::Lifetime,
    }
}

fn lifecycle_reason(it: Reason) -> coracle_lifecycle::Reason {
    match it {
        Reason::Crashed => Why::Crashed,
        Reason::Oom => Why::Oom,
        Reason::Vanished => Why::Vanished,
        Reason::Idle => Why::Idle,
        Reason::SpecChanged => Why::SpecChanged,
        Reason::Timeout => Why::Timeout,
        Reason::Lifetime => Why::Lifetime,
    }
}

/// A failure as the tools tell it.
pub(crate) fn of_failure(failure: Failure) -> workspace::Failure {
    let failure = failure.into_inner();
    workspace::Failure {
        code: workspace::Code::Other(failure.code.word()),
        message: failure.message,
        hint: failure.hint,
        retryable: failure.retryable,
        details: failure.details,
    }
}
