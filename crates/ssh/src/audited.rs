//! The trail of what a connection does.

use coracle::{Context, Failure, audit};
use serde_json::{Map, Value, json};

/// Announces an act on a container; the act is not done when this fails.
pub(crate) async fn intent(cx: &Context, container: &str, what: Value) -> Result<audit::Intent, Failure> {
    let mut args = Map::from_iter([("container".to_owned(), json!(container))]);
    if let Value::Object(more) = what {
        args.extend(more);
    }
    audit::intent(cx, "ssh", &args).await
}

/// Records how it ended.
pub(crate) async fn finish(intent: audit::Intent, result: Result<Option<u8>, &Failure>) {
    let fields = result.map(|code| Map::from_iter([("exit_code".to_owned(), json!(code))]));
    intent.finish(fields.as_ref().map_err(|failure| *failure)).await;
}
