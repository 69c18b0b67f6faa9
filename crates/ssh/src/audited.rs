//! Audit records of a connection.

use coracle::{Effect, PersonSession};
use coracle_context::{Context, Failure, audit};
use serde_json::{Map, Value, json};

/// Records the start of an action on a container; on failure the action must not be executed.
pub(crate) async fn intent(cx: &Context, session: &PersonSession, what: Value) -> Result<audit::Intent, Failure> {
    let mut args = of_container(&session.name);
    if let Value::Object(more) = what {
        args.extend(more);
    }
    if session.as_root {
        args.insert("as_root".to_owned(), true.into());
    }
    audit::intent(cx, "ssh", Effect::Mutating, &args).await
}

/// Records that a client requested root, and why it was refused.
pub(crate) async fn root_refused(cx: &Context, container: &str, failure: &Failure) -> Result<(), Failure> {
    let mut args = of_container(container);
    args.extend([("channel".to_owned(), "login".into()), ("as_root".to_owned(), true.into())]);
    audit::intent(cx, "ssh", Effect::Mutating, &args).await?.finish(Err(failure)).await;
    Ok(())
}

fn of_container(container: &str) -> Map<String, Value> {
    Map::from_iter([("container".to_owned(), container.into())])
}

/// Records the result.
pub(crate) async fn finish(intent: audit::Intent, result: Result<Option<u8>, &Failure>) {
    let fields = result.map(|code| Map::from_iter([("exit_code".to_owned(), json!(code))]));
    intent.finish(fields.as_ref().map_err(|failure| *failure)).await;
}
