//! Resolves the `container` of a call to a container that this session may use.

use coracle_client::Link;
use coracle_context::config::CrossSession;
use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure, StoppedContainer};
use coracle_context::warning::{Warning, replaced_mounts};
use coracle_context::{container_proxy, session_env, steps};
use coracle_images::snapshot::SnapshotImage;
use coracle_lifecycle::{
    ExecContext, ManagedContainer, Record, Role, Store, enter, find, guided_session, may_be_root, restart,
    session as plain_session,
};
use coracle_provision::UserRequest;
use coracle_runtime::{Container, ExecTarget, PolicyRefusal, Problem};
use coracle_types::{Handle, Ids};

/// What a call does with a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Inspect it.
    Read,
    /// Run commands in it, copy.
    Use,
    /// Create others from it.
    Snapshot,
    /// Remove it.
    Destroy,
}

/// Finds a managed container that this session may access.
pub(crate) async fn reach(cx: &Context, handle: &Handle, access: Access) -> Result<ManagedContainer, Failure> {
    let found = find(cx.engines(), &cx.store()?, handle).await?;
    check_session(cx, &found.record.session, found.record.name.as_str(), access)?;
    check_policy(cx, &found.record, access)?;
    touch(cx, &found.record);
    Ok(found)
}

/// As `reach`, for commands and copies: it has to run. A persistent one that stopped is started again.
pub(crate) async fn reach_running(cx: &Context, handle: &Handle) -> Result<ManagedContainer, Failure> {
    let found = reach(cx, handle, Access::Use).await?;
    steps::settled(cx, &found.record.record_id).await;
    let container = found.present()?;
    if container.running() {
        return with_user(found).await;
    }
    if !found.record.persistent || found.record.role == Role::Adopted {
        return Err(stopped(container, &found.record));
    }
    cx.warn([Warning::new("restarted", "the container had stopped and was started again")]);
    Box::pin(start_again(cx, found)).await
}

/// Why nothing runs in a container that has stopped.
pub fn stopped(container: &Container, record: &Record) -> Failure {
    let oom_killed = container.oom_killed;
    let stopped = StoppedContainer { name: record.name.as_str(), engine: Some(record.engine), oom_killed };
    let failure = match container.not_running() {
        over @ coracle_types::Error::LifetimeOver { .. } => Failure::from(over),
        ended => Failure::from(ended).hint_stopped(stopped),
    };
    failure.known("container", &record.name)
}

/// Starts a stopped container, restores the session of its guest, and starts its main program again. Returns what
/// cannot be restored.
pub(crate) async fn start_again(cx: &Context, found: ManagedContainer) -> Result<ManagedContainer, Failure> {
    let store = cx.store()?;
    let mut found = restart(found, &store, cx.links()).await?;
    if let ExecTarget::Guest(link) = cx.links().inside(&store, &mut found).await? {
        Box::pin(settle(cx, &store, &mut found.record, &link)).await?;
    }
    Ok(found)
}

/// Gives a restarted guest its session again, and lets the proxy of the container listen.
async fn settle(cx: &Context, store: &Store, record: &mut Record, link: &Link) -> Result<(), Failure> {
    container_proxy::ensure(cx, record, link).await?;
    session_env::ensure(cx, store, record, link).await?;
    // Of background jobs.
    cx.warn(container_proxy::refused(cx, record).await);
    Ok(())
}

/// The name of a container's network in answers.
pub(crate) fn network_name(proxied: bool, networks: &[String]) -> String {
    match networks.first() {
        _ if proxied => "proxy".to_owned(),
        Some(name) => name.clone(),
        None => "none".to_owned(),
    }
}

/// Commands in a service, or in what was adopted, run as the image's user: a user name is looked up in the service's
/// own files.
async fn with_user(mut found: ManagedContainer) -> Result<ManagedContainer, Failure> {
    let named = found.record.user_name.clone().filter(|_| matches!(found.record.role, Role::Service | Role::Adopted));
    let (None, Some(name)) = (found.record.exec_user, named) else { return Ok(found) };
    let user = UserRequest::parse(&name)?;
    let id = &found.present()?.id;
    let accounts = coracle_provision::accounts(&*found.runtime, id).await?;
    found.record.exec_user = Some(accounts.resolve(&user)?);
    Ok(found)
}

/// Such a container has no guest that keeps set-id files off the host. Where root inside is root outside, one may have
/// a writable directory of the host because it does not run as root, and then no command in it does.
fn root_may_enter(found: &ManagedContainer) -> Result<(), Failure> {
    let plain = matches!(found.record.role, Role::Service | Role::Adopted);
    let service = plain && found.record.exec_user != Some(Ids::ROOT);
    let writes = found.container.iter().flat_map(|it| &it.mounts).any(|it| it.writable);
    if service && writes && !found.runtime.endpoint().rootless {
        let message =
            "a container without a guest that writes to mounts and does not run as root is not entered as root";
        return Err(coracle_context::failure::root_refused("root.exec", message));
    }
    Ok(())
}

/// A container that commands run in, and how.
pub(crate) struct CommandTarget {
    pub(crate) record: Record,
    pub(crate) inside: ExecTarget,
    /// Who runs commands there, where and with which environment.
    pub(crate) session: ExecContext,
}

/// Finds a container for commands and jobs. It is inspected only when its guest is reached neither by a link that is held,
/// nor by its socket, nor by the engine's exec.
pub(crate) async fn reach_inside(cx: &Context, handle: &Handle, as_root: bool) -> Result<CommandTarget, Failure> {
    if as_root && !cx.config.security.allow_root {
        return Err(coracle_context::failure::root_refused("root.exec", "commands as root are not granted"));
    }
    let store = cx.store()?;
    if let Some((mut record, link)) = enter(cx.engines(), &store, cx.links(), handle).await? {
        check_session(cx, &record.session, record.name.as_str(), Access::Use)?;
        check_policy(cx, &record, Access::Use)?;
        if as_root {
            may_be_root(&record)?;
        }
        touch(cx, &record);
        steps::settled(cx, &record.record_id).await;
        Box::pin(settle(cx, &store, &mut record, &link)).await?;
        cx.warn(replaced_mounts(&record).await);
        let session = guided_session(&record, as_root)?;
        return Ok(CommandTarget { inside: ExecTarget::Guest(link), session, record });
    }
    let mut found = Box::pin(reach_running(cx, handle)).await?;
    if as_root {
        root_may_enter(&found)?;
        may_be_root(&found.record)?;
    }
    let inside = cx.links().inside(&store, &mut found).await?;
    if let ExecTarget::Guest(link) = &inside {
        Box::pin(settle(cx, &store, &mut found.record, link)).await?;
    }
    cx.warn(replaced_mounts(&found.record).await);
    let session = match &inside {
        ExecTarget::Guest(_) => guided_session(&found.record, as_root)?,
        ExecTarget::Plain(..) => plain_session(&found, as_root)?,
    };
    Ok(CommandTarget { inside, session, record: found.record })
}

/// Whether this session may make containers of a snapshot, see it and remove it: those that it made in any case, others
/// unless sessions are to see nothing of each other. A snapshot is there for later sessions.
pub(crate) fn may_use_snapshot(cx: &Context, snapshot: &SnapshotImage) -> Result<(), Failure> {
    let session = snapshot.of.session.as_str();
    if session == cx.call.session.as_str() || cx.cross_session() != CrossSession::None {
        return Ok(());
    }
    Err(other_session(session, snapshot.name.as_str()))
}

/// Records the use of a container, which extends its lease. A failure to record it does not fail the call.
fn touch(cx: &Context, record: &Record) {
    cx.use_container(record);
    // A service has the lease of the container that it was created with.
    let of_service = record.compose_project.as_ref().filter(|_| record.role == Role::Service);
    let noted = cx.store().and_then(|store| match of_service {
        Some(project) => Ok(store.stack_owner(project)?.map_or(Ok(()), |owner| store.touch(&owner))?),
        None => Ok(store.touch(record)?),
    });
    if let Err(failure) = noted {
        tracing::warn!(container = %record.name, "its use is not noted: {}", failure.message);
    }
}

/// Whether this session may do that to a container of that session.
pub(crate) fn check_session(cx: &Context, session: &str, name: &str, access: Access) -> Result<(), Failure> {
    let may = match cx.cross_session() {
        _ if session == cx.call.session.as_str() => true,
        CrossSession::All => true,
        CrossSession::Use => matches!(access, Access::Read | Access::Use),
        CrossSession::None => false,
    };
    if may {
        return Ok(());
    }
    Err(other_session(session, name))
}

/// Under `strict` nothing runs in a container that `standard` made, in which PID 1 is root, and it is not started again. It
/// can be looked at, and ended.
pub fn check_policy(cx: &Context, record: &Record, access: Access) -> Result<(), Failure> {
    let is_without_root = record.guest.as_ref().is_some_and(|it| it.own.is_some());
    if is_without_root || !cx.config.is_strict() || matches!(access, Access::Read | Access::Destroy) {
        return Ok(());
    }
    let hint = "`destroy` ends it, and saves its work; `status` and `list` show it";
    Err(root_is_inside(record.name.as_str()).hint(hint))
}

/// Why nothing runs in it under `strict`.
pub(crate) fn root_is_inside(name: &str) -> Failure {
    let message = format!("`{name}` was made under `policy = \"standard\"`, and root is inside");
    let problem = Problem { rule: "root.init", setting: Some("policy"), value: name.to_owned(), message };
    PolicyRefusal { problems: vec![problem] }.into()
}

fn other_session(session: &str, name: &str) -> Failure {
    Failure::new(Code::OtherSession, format!("`{name}` belongs to session `{session}`"))
        .detail("session", session)
        .detail("setting", "security.cross_session")
        .detail("rule", "session.other")
        .hint_setting("use one of your own", "security.cross_session")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Map, Value, json};

    use coracle_context::config::{Config, Preset};
    use coracle_context::{Context, Frontend, Host, Options};
    use coracle_prepare::process::Process;
    use coracle_runtime::FakeRuntime;
    use coracle_runtime::fake::Verb;
    use coracle_types::ContainerId;

    use crate::{CallInput, execute, operations};

    async fn call(cx: &Context, operation: &str, more: Value) -> Map<String, Value> {
        let mut call = json!({ "operation": operation, "container": "usual" });
        call.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        execute(operations::ALL, &Process::new(cx.clone()), CallInput::Text(call.to_string().into())).await.json
    }

    #[tokio::test]
    async fn a_container_is_inspected_only_when_it_cannot_be_entered() {
        let dir = tempfile::tempdir().unwrap();
        let fake = FakeRuntime::new();
        // Each holds no link yet, as a process that makes one call.
        let open = || {
            Context::open(Host::below(dir.path()), &Options::default(), Frontend::Call).unwrap().with_fake(fake.clone())
        };
        let create = json!({
            "operation": "create", "name": "usual", "image": coracle_runtime::fake::LOCAL_IMAGE, "mount_cwd": false,
        });
        let made =
            execute(operations::ALL, &Process::new(open()), CallInput::Text(create.to_string().into())).await.json;
        let id = ContainerId::parse(made["id"].as_str().unwrap()).unwrap();
        let inspected = || fake.calls().iter().filter(|it| **it == Verb::Inspect).count();
        let before = inspected();
        let ran = call(&open(), "exec", json!({ "command": "true" })).await;
        assert_eq!((&ran["success"], inspected()), (&json!(true), before), "{ran:#?}");
        fake.crash(&id);
        let refused = call(&open(), "exec", json!({ "command": "true" })).await;
        assert_eq!(refused["code"], "not_running", "{refused:#?}");
        assert!(inspected() > before);
        fake.disappear(&id);
        let refused = call(&open(), "exec", json!({ "command": "true" })).await;
        assert_eq!(refused["code"], "not_found", "{refused:#?}");
    }

    #[tokio::test]
    async fn strict_runs_nothing_in_a_container_that_standard_made_and_shows_and_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        let fake = FakeRuntime::new();
        let open = || {
            Context::open(Host::below(dir.path()), &Options::default(), Frontend::Call).unwrap().with_fake(fake.clone())
        };
        let usual = open();
        let create = json!({
            "operation": "create", "name": "usual", "image": coracle_runtime::fake::LOCAL_IMAGE, "mount_cwd": false,
        });
        let made = execute(operations::ALL, &Process::new(usual.clone()), CallInput::Text(create.to_string().into()))
            .await
            .json;
        assert_eq!(made["success"], true, "{made:#?}");
        let config = Arc::new(Config { policy: Preset::Strict, ..(*usual.config).clone() });
        // One call holds its link, and the other needs it.
        for mut strict in [usual.clone(), open()] {
            strict.config = config.clone();
            for (operation, more) in [
                ("exec", json!({ "command": "true" })),
                ("exec_background", json!({ "command": "true" })),
                ("exec_interactive_hint", json!({})),
                ("snapshot", json!({ "name": "saved" })),
            ] {
                let refused = call(&strict, operation, more).await;
                assert_eq!(refused["code"], "policy_denied", "{operation}: {refused:#?}");
                assert_eq!(refused["details"]["rule"], "root.init", "{operation}: {refused:#?}");
                assert!(refused["hint"].as_str().unwrap().contains("destroy"));
            }
            assert_eq!(call(&strict, "status", json!({})).await["success"], true);
        }
        let mut strict = usual;
        strict.config = config;
        assert_eq!(call(&strict, "destroy", json!({})).await["success"], true);
    }
}
