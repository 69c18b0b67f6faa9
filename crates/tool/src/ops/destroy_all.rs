//! `destroy_all`: the containers of this session, or of all.

use coracle_lifecycle::{Listed, list, reconcile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::CrossSession;
use crate::context::Context;
use crate::failure::{Code, Failure};
use crate::op::Operation;

/// Remove all containers of this session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DestroyAll {
    /// Must be true: this cannot be undone.
    #[schemars(extend("default" = false))]
    confirm: Option<bool>,
    /// `session`, or `all` where the person grants that.
    #[schemars(with = "Option<String>", extend("default" = "session"))]
    scope: Option<Scope>,
    /// Persistent ones too.
    #[schemars(extend("default" = false))]
    include_persistent: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    #[default]
    Session,
    All,
}

/// The answer (containers.md 14.5).
#[derive(Debug, Serialize)]
pub(crate) struct AllDestroyed {
    destroyed: usize,
    results: Vec<One>,
    networks_removed: Vec<String>,
}

#[derive(Debug, Serialize)]
struct One {
    success: bool,
    container: String,
    detail: &'static str,
    kept: bool,
    saved: Vec<String>,
    error: Option<String>,
    code: Option<Code>,
}

impl Operation for DestroyAll {
    const NAME: &'static str = "destroy_all";
    type Answer = AllDestroyed;

    async fn run(self, cx: &Context) -> Result<AllDestroyed, Failure> {
        if self.confirm != Some(true) {
            let message = "`confirm` must be true to destroy all containers";
            return Err(Failure::new(Code::ConfirmRequired, message).hint("call again with `confirm: true`"));
        }
        let scope = self.scope.unwrap_or_default();
        if scope == Scope::All && cx.cross_session() != CrossSession::All {
            return Err(Failure::new(
                Code::OtherSession,
                "containers of other sessions are not this session's to destroy",
            )
            .detail("setting", "security.cross_session")
            .hint("leave `scope` out to destroy those of this session"));
        }
        let mine = |it: &Listed| scope == Scope::All || it.record.session == cx.session.as_str();
        all(cx, mine, self.include_persistent.unwrap_or(false)).await
    }
}

/// Removes every container that is meant; all are tried.
pub(super) async fn all(
    cx: &Context,
    meant: impl Fn(&Listed) -> bool,
    persistent_too: bool,
) -> Result<AllDestroyed, Failure> {
    let store = cx.store()?;
    reconcile(cx, &store, cx.config.lifecycle.gone_for.0).await?;
    let mut results = Vec::new();
    for it in list(cx, &store).await?.containers.into_iter().filter(|it| meant(it)) {
        let kept = it.record.persistent && !persistent_too;
        results.push(if kept { one(&it, "Kept: persistent", true, None) } else { destroy(cx, &store, &it).await });
    }
    let destroyed = results.iter().filter(|it| it.success && !it.kept).count();
    let failed = results.iter().filter(|it| !it.success).count();
    let answer = AllDestroyed { destroyed, results, networks_removed: Vec::new() };
    if failed == 0 {
        return Ok(answer);
    }
    Err(Failure::new(Code::Partial, format!("{failed} of {} containers could not be destroyed", answer.results.len()))
        .detail("failed", failed)
        .known("destroyed", answer.destroyed)
        .known("results", &answer.results)
        .hint("`results` say why; the next call goes on from there"))
}

async fn destroy(cx: &Context, store: &coracle_lifecycle::Store, it: &Listed) -> One {
    let done = async {
        let runtime = cx.runtime_for(it.record.engine, &it.record.endpoint)?;
        Ok::<_, Failure>(coracle_lifecycle::destroy(&*runtime, store, &it.record).await?)
    };
    match done.await {
        Ok(_) => one(it, "Destroyed", false, None),
        Err(failure) => one(it, "Not destroyed", false, Some(failure)),
    }
}

fn one(it: &Listed, detail: &'static str, kept: bool, failure: Option<Failure>) -> One {
    One {
        success: failure.is_none(),
        container: it.record.name.to_string(),
        detail,
        kept,
        saved: Vec::new(),
        code: failure.as_ref().map(|it| it.code),
        error: failure.map(|it| it.message),
    }
}
