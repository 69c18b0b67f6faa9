//! The session's own machine: an ordinary container of `create`, made by the first call that needs it.
//!
//! Its name follows from the session's, so that a process that goes on with a session finds it. To make it may take
//! longer than a client waits for an answer, so a call that is withdrawn leaves it in the making for the next one.

use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_context::removal::removing;
use coracle_lifecycle::{Error, Record, destroy, find, find_linked};
use coracle_prepare::process::Process;
use coracle_prepare::requests::Create;
use coracle_types::{ContainerName, Handle};
use serde_json::{Map, json};

use super::inner_call::text_of;
use crate::dispatch::ParsedCall;
use crate::target::{Access, check_session, start_again};

/// What an agent has to know of its machine before it reads the answer of its call.
pub(super) type MachineChange = Option<String>;

/// Finds the machine of that name, or makes it.
///
/// # Errors
/// Those of `create`; `cancelled`.
pub(super) async fn ensure(process: &Process, name: ContainerName) -> Result<MachineChange, Failure> {
    let cx = &process.context;
    if find_linked(&cx.store()?, cx.links(), &Handle::Name(name.clone())).await?.is_some_and(|it| is_own(cx, &it.0)) {
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
    let config = &process.context.config.machine;
    let mut request = Create { name: Some(name.clone()), ..Create::default() };
    match &config.image {
        Some(image) => request.image = Some(image.clone()),
        None => (request.purpose, request.packages) = (Some(config.purpose.clone()), Some(config.packages.clone())),
    }
    let args = Map::from_iter([("name".to_owned(), json!(name))]);
    let created = text_of(&Box::pin(ParsedCall::new(request, args).execute(process)).await?);
    Ok(Some(format!("your machine {created}")))
}
