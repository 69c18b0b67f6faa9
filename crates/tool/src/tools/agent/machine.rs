//! The session's own machine: an ordinary container of `create`, made by the first call that needs it.
//!
//! Its name follows from the session's, so that a process that goes on with a session finds it. To make it may take longer than a
//! client waits for an answer, so a call that is withdrawn leaves it in the making for the next one.

use coracle_lifecycle::{Error, Record, at_hand, destroy, find};
use coracle_runtime::{ContainerName, Handle};
use serde_json::{Map, Value, json};

use super::response_text;
use crate::context::Context;
use crate::dispatch;
use crate::failure::{Code, Failure};
use crate::operations;
use crate::process::Process;
use crate::removal::removing;
use crate::target::{Access, check_session, start_again};

/// What an agent has to know of its machine before it reads the answer of its call.
pub(super) type MachineChange = Option<String>;

/// Finds the machine of that name, or makes it.
///
/// # Errors
/// Those of `create`; `cancelled`.
pub(super) async fn ensure(process: &Process, name: ContainerName) -> Result<MachineChange, Failure> {
    let cx = &process.context;
    if at_hand(&cx.store()?, cx.links(), &Handle::Name(name.clone())).await?.is_some_and(|it| is_own(cx, &it.0)) {
        return Ok(None);
    }
    let lock = process.machine_lock().clone().lock_owned();
    let lock = cx.unless_cancelled(async { Ok(lock.await) }).await?;
    let session = process.for_session_work();
    let making = tokio::spawn(async move {
        let _lock = lock;
        Box::pin(find_or_create(&session, name)).await
    });
    cx.unless_cancelled(async { making.await.map_err(Failure::internal)? }).await
}

/// The name of the session's machine, also before there is one.
pub(super) fn name_of(cx: &Context) -> Result<ContainerName, Failure> {
    // Other persons of the same engine have sessions of the same name.
    let digest = cx.store()?.signer().digest(cx.call.session.as_str().as_bytes());
    Ok(ContainerName::parse(format!("{}-main-{}", cx.config.label_namespace, &digest[..8]))?)
}

fn is_own(cx: &Context, record: &Record) -> bool {
    record.session == cx.call.session.as_str()
}

/// Another process of the session may make the machine meanwhile: then that one is used.
async fn find_or_create(process: &Process, name: ContainerName) -> Result<MachineChange, Failure> {
    match find_or_create_once(process, &name).await {
        Err(failure) if failure.code == Code::NameTaken => find_or_create_once(process, &name).await,
        done => done,
    }
}

async fn find_or_create_once(process: &Process, name: &ContainerName) -> Result<MachineChange, Failure> {
    let (cx, store) = (&process.context, process.context.store()?);
    // One that another process makes or starts at this moment is awaited.
    drop(store.lock(name).await?);
    let found = match find(cx.engines(), &store, &Handle::Name(name.clone())).await {
        Ok(found) => found,
        Err(Error::NotFound { .. }) => return create_machine(process, name).await,
        Err(err) => return Err(err.into()),
    };
    check_session(cx, &found.record.session, name.as_str(), Access::Use)?;
    match &found.container {
        Some(container) if container.running() => Ok(None),
        Some(_) => {
            start_again(cx, found).await?;
            Ok(Some("the machine had stopped and was started again: what ran in it has ended".to_owned()))
        }
        None => {
            destroy(&*found.runtime, &store, &found.record, &removing(cx, false, false)?).await?;
            let news = create_machine(process, name).await?;
            Ok(news.map(|it| format!("the machine was gone, with the files that only it had; {it}")))
        }
    }
}

async fn create_machine(process: &Process, name: &ContainerName) -> Result<MachineChange, Failure> {
    let call = create_call(&process.context, name);
    let made = Box::pin(dispatch::carry_out(operations::ALL, process, call)).await?;
    Ok(Some(format!("your machine {}", response_text::created(&made.json))))
}

fn create_call(cx: &Context, name: &ContainerName) -> Map<String, Value> {
    let config = &cx.config.machine;
    let mut call = json!({ "operation": "create", "name": name });
    match &config.image {
        Some(image) => call["image"] = image.to_string().into(),
        None => {
            call["purpose"] = config.purpose.to_string().into();
            call["packages"] = json!(config.packages);
        }
    }
    call.as_object().cloned().unwrap_or_default()
}
