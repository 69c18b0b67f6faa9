//! Audit records of what programs of the user do in a container outside of operations, such as over ssh.

use coracle_context::{Context, Failure, audit};
use serde_json::{Map, Value};

use crate::dispatch::Effect;
use crate::person_session::PersonSession;

/// Records the start of an action on a container. `way` is how the program reaches it, such as `ssh`.
///
/// # Errors
/// The trail cannot be written: the action must not be executed then.
pub async fn intent(cx: &Context, way: &str, session: &PersonSession, what: Value) -> Result<audit::Intent, Failure> {
    let mut args = of_container(&session.name);
    if let Value::Object(more) = what {
        args.extend(more);
    }
    if session.as_root {
        args.insert("as_root".to_owned(), true.into());
    }
    audit::intent(cx, way, Effect::Mutating, &args).await
}

/// Records that a client requested root, and why it was refused.
///
/// # Errors
/// The trail cannot be written.
pub async fn root_refused(cx: &Context, way: &str, container: &str, failure: &Failure) -> Result<(), Failure> {
    let mut args = of_container(container);
    args.extend([("channel".to_owned(), "login".into()), ("as_root".to_owned(), true.into())]);
    audit::intent(cx, way, Effect::Mutating, &args).await?.finish(Err(failure)).await;
    Ok(())
}

fn of_container(container: &str) -> Map<String, Value> {
    Map::from_iter([("container".to_owned(), container.into())])
}
