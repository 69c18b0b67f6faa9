//! The containers of a session, made and kept by `lifecycle`, as the tools ask for them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coracle_lifecycle::{RoomAsk, RoomError, RoomRole, Rooms};
use coracle_runtime::{ByteSize, ContainerName, Link, ProcessId};
use coracle_workspace as workspace;
use coracle_workspace::{Reason, Recreated, Role, Session, Sessions};

use super::backoff::Backoff;
use super::plan::{Plan, blueprint};
use crate::context::{Context, Mouth};
use crate::failure::{Code, Failure};

/// The containers of one session, for one call.
#[derive(Clone)]
pub(crate) struct SessionContainers {
    cx: Context,
    kept: Arc<Kept>,
}

/// What stays from call to call.
struct Kept {
    rooms: Rooms,
    owner: Option<ProcessId>,
    hashes: [String; 2],
    backoff: Backoff,
}

impl SessionContainers {
    pub(super) fn new(cx: &Context) -> Result<Self, Failure> {
        let hash = |role| Plan::for_person(role, cx).hash();
        let hashes = [hash(Role::Workspace), hash(Role::Run)];
        let owner = (cx.mouth == Mouth::Mcp).then(ProcessId::current);
        let kept = Kept { rooms: cx.rooms()?, owner, hashes, backoff: Backoff::default() };
        Ok(Self { cx: cx.clone(), kept: Arc::new(kept) })
    }

    /// The same for another call: its news go there, and it can be withdrawn by itself.
    pub(super) fn for_call(&self, cx: &Context) -> Self {
        Self { cx: cx.clone(), kept: Arc::clone(&self.kept) }
    }
}

impl Kept {
    fn ask<'a>(
        &'a self,
        session: &'a ContainerName,
        role: RoomRole,
        tell: &'a coracle_lifecycle::Tell<'static>,
    ) -> RoomAsk<'a> {
        let spec_hash = &self.hashes[usize::from(role == RoomRole::Run)];
        RoomAsk { session, role, spec_hash, owner: self.owner.as_ref(), tell }
    }
}

impl fmt::Debug for SessionContainers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionContainers").field("session", &self.cx.session).finish_non_exhaustive()
    }
}

impl SessionContainers {
    pub(super) async fn ready(&self, role: Role) -> Result<Session, Failure> {
        let (room, cx, kept) = (room_role(role), &self.cx, &*self.kept);
        let tell = super::events::teller(cx);
        let plan = |_| async move {
            kept.backoff.check()?;
            super::upkeep::recover(cx, &kept.rooms).await;
            let plan = blueprint(cx, role).await;
            kept.backoff.note(&plan);
            plan.map_err(Into::into)
        };
        let ask = kept.ask(&cx.session, room, &*tell);
        let ready = kept.rooms.ensure(cx, ask, plan).await.map_err(room_failure)?;
        let plan = Plan::for_person(role, cx);
        Ok(Session {
            link: ready.link.clone(),
            session_id: ready.room.session.to_string(),
            generation: ready.room.generation.into(),
            user: plan.user,
            workdir: ready.room.workdir.clone(),
            env: ready.room.env.clone(),
            memory: plan.limits.memory.unwrap_or(ByteSize(0)),
            news: ready.news.as_ref().map(recreated),
            in_use: Arc::new(ready),
        })
    }
}

#[async_trait]
impl Sessions for SessionContainers {
    async fn ensure(&self, role: Role) -> Result<Session, Box<workspace::Failure>> {
        // A task of its own: a container that is being made is for the next call, if this one is withdrawn.
        let own = self.clone();
        let ready = tokio::spawn(async move { own.ready(role).await }).await;
        ready.map_err(Failure::internal).and_then(|it| it).map_err(|it| Box::new(of_failure(it)))
    }

    async fn held(&self, role: Role) -> Option<Link> {
        self.kept.rooms.held_link(&self.cx.session, room_role(role)).await
    }

    async fn touch(&self, role: Role) {
        self.kept.rooms.touch(&self.cx.session, room_role(role));
    }

    async fn discard(&self, role: Role, reason: Reason) -> Result<(), Box<workspace::Failure>> {
        let (cx, room) = (&self.cx, (&self.cx.session, room_role(role)));
        let discarded = self.kept.rooms.discard(cx, room, lifecycle_reason(reason)).await;
        discarded.map_err(|err| Box::new(of_failure(room_failure(err))))
    }
}

fn room_role(role: Role) -> RoomRole {
    match role {
        Role::Workspace => RoomRole::Workspace,
        Role::Run => RoomRole::Run,
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
    use coracle_lifecycle::Reason as Why;

    match it {
        // The latter two are of sandboxes alone.
        Why::Crashed | Why::Restarted | Why::NotReady => Reason::Crashed,
        Why::Oom => Reason::Oom,
        Why::Vanished => Reason::Vanished,
        Why::Idle => Reason::Idle,
        Why::SpecChanged => Reason::SpecChanged,
        Why::Timeout => Reason::Timeout,
    }
}

fn lifecycle_reason(it: Reason) -> coracle_lifecycle::Reason {
    use coracle_lifecycle::Reason as Why;

    match it {
        Reason::Crashed => Why::Crashed,
        Reason::Oom => Why::Oom,
        Reason::Vanished => Why::Vanished,
        Reason::Idle => Why::Idle,
        Reason::SpecChanged => Why::SpecChanged,
        Reason::Timeout => Why::Timeout,
    }
}

/// Why there is no container.
pub(crate) fn room_failure(err: RoomError) -> Failure {
    match err {
        RoomError::Ended(session) => Failure::new(Code::SessionEnded, format!("the session `{session}` has ended")),
        RoomError::CrashLoop { reason, retry_after } => {
            let why = format!("The container failed again and again, most recently: {}.", reason.as_str());
            Failure::new(Code::CrashLoop, why).detail("retry_after_ms", millis(retry_after))
        }
        RoomError::NotReady(why) => {
            Failure::new(Code::ReadinessFailed, "Workspace failed readiness checks.").detail("why", why.to_string())
        }
        RoomError::NotMade(err) => {
            let failure = Failure::from(err);
            let why = failure.code.word();
            Failure { code: Code::CreateFailed, ..failure }.detail("why", why)
        }
        RoomError::Plan(err) | RoomError::Fill(err) => match err.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(err) => Failure::internal(err),
        },
        RoomError::Lifecycle(err) => Failure::from(err),
        other => Failure::internal(other),
    }
}

fn millis(it: Duration) -> u64 {
    u64::try_from(it.as_millis()).unwrap_or(u64::MAX)
}

/// A failure as the tools tell it.
pub(super) fn of_failure(failure: Failure) -> workspace::Failure {
    workspace::Failure {
        code: workspace::Code::Other(failure.code.word()),
        message: failure.message,
        hint: failure.hint,
        retryable: failure.retryable,
        details: failure.details,
    }
}
