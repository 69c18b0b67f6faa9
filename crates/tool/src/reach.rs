//! From the `container` of a call to a container that this session may act on.

use coracle_lifecycle::{Found, Record, Session, at_hand, find, guided_session, restart, session as plain_session};
use coracle_runtime::{Handle, Inside};
use serde::Serialize;

use crate::config::CrossSession;
use crate::context::Context;
use crate::failure::{Code, Failure};
use crate::session;

/// What is to be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Commands, copies, a look.
    Use,
    /// Its end.
    Destroy,
}

/// Something that a successful call wants to be known (containers.md 1.8).
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Warning {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Warning {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Finds a container of ours that this session may act on.
pub(crate) async fn reach(cx: &Context, handle: &Handle, act: Act) -> Result<Found, Failure> {
    let found = find(cx, &cx.store()?, handle).await?;
    allowed(cx, &found.record.session, found.record.name.as_str(), act)?;
    Ok(found)
}

/// As [`reach`], for commands and copies: it has to run. A persistent one that stopped is started again.
pub(crate) async fn reach_running(cx: &Context, handle: &Handle) -> Result<(Found, Vec<Warning>), Failure> {
    let found = reach(cx, handle, Act::Use).await?;
    let container = found.present()?;
    if container.running() {
        return Ok((found, Vec::new()));
    }
    if !found.record.persistent {
        let stopped = coracle_runtime::Error::NotRunning {
            status: container.status,
            exit_code: container.exit_code,
            oom_killed: container.oom_killed,
            output: None,
        };
        return Err(Failure::from(stopped).known("container", &found.record.name));
    }
    let found = restart(found, &cx.store()?, cx.links()).await?;
    Ok((found, vec![Warning::new("restarted", "the container had stopped and was started again")]))
}

/// A container that commands run in, and how.
pub(crate) struct Reached {
    pub(crate) record: Record,
    pub(crate) inside: Inside,
    /// Who runs commands there, where and with which environment.
    pub(crate) session: Session,
    pub(crate) warnings: Vec<Warning>,
}

/// Finds a container for commands and jobs. The engine is asked only when neither a link is held nor the guest's socket
/// answers.
pub(crate) async fn reach_inside(cx: &Context, handle: &Handle, as_root: bool) -> Result<Reached, Failure> {
    if as_root && !cx.config.security.allow_root {
        return Err(crate::ops::root_refused("root.exec", "commands as root are not granted"));
    }
    let store = cx.store()?;
    if let Some((mut record, link)) = at_hand(&store, cx.links(), handle).await? {
        allowed(cx, &record.session, record.name.as_str(), Act::Use)?;
        let warnings = session::ensure(cx, &store, &mut record, &link).await?.into_iter().collect();
        let session = guided_session(&record, as_root)?;
        return Ok(Reached { inside: Inside::Guest(link), session, record, warnings });
    }
    let (mut found, mut warnings) = reach_running(cx, handle).await?;
    let inside = cx.links().inside(&store, &mut found).await?;
    if let Inside::Guest(link) = &inside {
        warnings.extend(session::ensure(cx, &store, &mut found.record, link).await?);
    }
    let session = match &inside {
        Inside::Guest(_) => guided_session(&found.record, as_root)?,
        Inside::Plain(..) => plain_session(&found, as_root)?,
    };
    Ok(Reached { inside, session, record: found.record, warnings })
}

/// Whether this session may do that to a container of that session.
pub(crate) fn allowed(cx: &Context, session: &str, name: &str, act: Act) -> Result<(), Failure> {
    let may = match cx.cross_session() {
        _ if session == cx.session.as_str() => true,
        CrossSession::All => true,
        CrossSession::Use => act == Act::Use,
        CrossSession::None => false,
    };
    if may {
        return Ok(());
    }
    Err(Failure::new(Code::OtherSession, format!("`{name}` belongs to session `{session}`"))
        .detail("session", session)
        .detail("setting", "security.cross_session")
        .detail("rule", "session.other")
        .hint("use a container of your own; only the person can change `security.cross_session`"))
}
