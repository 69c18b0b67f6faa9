//! `destroy_all`: the containers of this session, or of all.

use coracle_context::audit::automatic_removal;
use coracle_context::config::CrossSession;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText, Symbol};
use coracle_context::failure::{Code, Failure};
use coracle_context::removal::{removing, saved_lines};
use coracle_context::warning::{Warning, to_review};
use coracle_lifecycle::{
    ContainerEntry, DestroyReport, Finding, OwnNetwork, RemoveOptions, Review, SaveReport, Store, drop_networks, list,
    reconcile,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::operations::destroy::{FORGOTTEN, outcome};
use crate::schema::result_schema;
use crate::shapes::{FindingShape, SaveShape};
use jiff::Timestamp;

/// Remove all containers of this session. Unsaved work is saved on the host first.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DestroyAll {
    /// Must be true: this cannot be undone.
    #[schemars(extend("default" = false))]
    confirm: Option<bool>,
    /// `session`, or `all` where the user allows it.
    #[schemars(with = "Option<String>", extend("default" = "session", "enum" = ["session", "all"]))]
    scope: Option<Scope>,
    /// Persistent ones too.
    #[schemars(extend("default" = false))]
    include_persistent: Option<bool>,
    /// Save no work: what only the container has is lost. The user has to allow it.
    #[schemars(extend("default" = false))]
    discard: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    #[default]
    Session,
    All,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct DestroyAllResponse {
    destroyed: usize,
    results: Vec<DestroyResult>,
    networks_removed: Vec<String>,
}

#[derive(Debug, JsonSchema, Serialize)]
struct DestroyResult {
    success: bool,
    container: String,
    detail: &'static str,
    kept: bool,
    #[schemars(with = "Vec<SaveShape>")]
    saved: Vec<SaveReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<FindingShape>")]
    review: Vec<Finding>,
    error: Option<String>,
    #[schemars(with = "Option<String>")]
    code: Option<Code>,
    /// It was adopted, and is left as it is.
    #[serde(skip)]
    forgotten: bool,
    #[serde(skip)]
    warning: Option<Warning>,
}

impl Operation for DestroyAll {
    const NAME: &'static str = "destroy_all";
    const EFFECT: Effect = Effect::Irreversible;
    const RESULT: fn() -> Value = result_schema::<DestroyAllResponse>;
    type Response = DestroyAllResponse;

    async fn run(self, cx: &Context) -> Result<DestroyAllResponse, Failure> {
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
        let mine = |it: &ContainerEntry| scope == Scope::All || it.record.session == cx.call.session.as_str();
        let unused = |it: &OwnNetwork| scope == Scope::All || it.session.as_deref() == Some(cx.call.session.as_str());
        let removing = removing(cx, self.discard.unwrap_or(false), false)?;
        let persistent = self.include_persistent.unwrap_or(false);
        let selection = Selection { containers: mine, networks: unused, persistent, recorded_as: None };
        all(cx, selection, &removing).await
    }
}

/// What is removed.
pub(super) struct Selection<C, N> {
    pub(super) containers: C,
    /// Of those that no container uses.
    pub(super) networks: N,
    /// Persistent containers, too.
    pub(super) persistent: bool,
    /// The name of each removal in the audit trail, since there is no call for it.
    pub(super) recorded_as: Option<&'static str>,
}

/// Removes the selected containers, then the selected networks. A failure does not keep the others.
pub(super) async fn all(
    cx: &Context,
    selection: Selection<impl Fn(&ContainerEntry) -> bool, impl Fn(&OwnNetwork) -> bool>,
    removing: &RemoveOptions<'_>,
) -> Result<DestroyAllResponse, Failure> {
    let store = cx.store()?;
    reconcile(cx.engines(), &store, cx.config.lifecycle.gone_for.0).await?;
    let mut results = Vec::new();
    let mut listed = list(cx.engines(), &store).await?.containers;
    // Containers that joined a stack hold its network, so the container that owns the stack comes last.
    listed.sort_by_key(|it| !it.record.compose_joined);
    for it in listed.into_iter().filter(|it| (selection.containers)(it)) {
        let kept = it.record.persistent && !selection.persistent;
        results.push(match kept {
            true => DestroyResult { detail: "Kept: persistent", kept: true, ..one(&it, Ok(DestroyReport::gone())) },
            false => {
                let result = destroy(cx, &store, &it, removing).await;
                if let Some(op) = selection.recorded_as.filter(|_| result.success) {
                    automatic_removal(cx, op, &result.container).await;
                }
                result
            }
        });
    }
    let destroyed = results.iter().filter(|it| it.success && !it.kept && !it.forgotten).count();
    cx.warn(results.iter().filter_map(|result| result.warning.clone()));
    let failed = results.iter().filter(|it| !it.success).count();
    let networks_removed = drop_networks(cx.engines(), &store, selection.networks).await?;
    let answer = DestroyAllResponse { destroyed, results, networks_removed };
    if failed == 0 {
        return Ok(answer);
    }
    Err(Failure::new(Code::Partial, format!("{failed} of {} containers could not be destroyed", answer.results.len()))
        .detail("failed", failed)
        .known("destroyed", answer.destroyed)
        .known("results", &answer.results)
        .known("networks_removed", &answer.networks_removed)
        .known("warnings", cx.take_warnings())
        .hint("`results` say why; the next call goes on from there"))
}

async fn destroy(cx: &Context, store: &Store, it: &ContainerEntry, removing: &RemoveOptions<'_>) -> DestroyResult {
    let done = async {
        let runtime = cx.runtime_for(it.record.engine, &it.record.endpoint)?;
        Ok::<_, Failure>(coracle_lifecycle::destroy(&*runtime, store, &it.record, removing).await?)
    };
    one(it, done.await)
}

fn one(it: &ContainerEntry, done: Result<DestroyReport, Failure>) -> DestroyResult {
    let name = it.record.name.to_string();
    let (detail, DestroyReport { saved, review, forgotten, .. }, failure) = match done {
        Ok(done) if done.forgotten => (FORGOTTEN, done, None),
        Ok(done) => ("Destroyed", done, None),
        Err(failure) => ("Not destroyed", DestroyReport::gone(), Some(failure)),
    };
    DestroyResult {
        success: failure.is_none(),
        warning: review_warning(&name, &review),
        container: name,
        detail,
        kept: false,
        saved,
        review: review.findings,
        code: failure.as_ref().map(|it| it.code),
        error: failure.map(|it| it.into_inner().message),
        forgotten,
    }
}

/// Of several it says whose.
fn review_warning(name: &str, review: &Review) -> Option<Warning> {
    let warning = to_review(review)?;
    Some(Warning::new(warning.code, format!("`{name}`: {}", warning.message)))
}

impl Render for DestroyAllResponse {
    fn render(&self, _: Timestamp) -> Document {
        if self.results.is_empty() && self.networks_removed.is_empty() {
            return Document::line("no containers to destroy").timed_at_the_end();
        }
        let lines = self.results.iter().flat_map(|it| {
            let (mark, outcome) = match it.kept {
                true => (Symbol::Skipped, "kept: it is persistent"),
                false => (Symbol::Success, outcome(false, it.detail)),
            };
            let line = StyledText::new().symbol(mark).plain(" ").name(&it.container).plain(format!(" {outcome}"));
            [line].into_iter().chain(saved_lines(&it.saved))
        });
        let networks = self
            .networks_removed
            .iter()
            .map(|it| StyledText::new().symbol(Symbol::Success).plain(" network ").name(it).plain(" removed"));
        Document::default().and_lines(lines.chain(networks)).timed_at_the_end()
    }
}

#[cfg(test)]
mod tests {
    use coracle_prepare::process::Process;
    use coracle_runtime::{ContainerRuntime as _, FakeRuntime};
    use serde_json::{Value, json};

    use super::*;
    use crate::dispatch::{CallInput, execute};
    use crate::operations::destroy::tests::adopted;

    #[tokio::test]
    async fn what_was_adopted_is_forgotten_and_not_counted() {
        let (dir, fake) = (tempfile::tempdir().unwrap(), FakeRuntime::new());
        let cx = Context::for_tests(dir.path()).with_fake(fake.clone());
        let handle = adopted(&cx, &fake).await;
        let call = json!({ "operation": "destroy_all", "confirm": true, "include_persistent": true });
        let Value::Object(call) = call else { panic!("a call is an object") };
        let all = Value::Object(
            execute(crate::operations::ALL, &Process::new(cx.clone()), CallInput::Object(call)).await.json,
        );
        assert_eq!((&all["destroyed"], &all["results"][0]["detail"]), (&0.into(), &FORGOTTEN.into()), "{all:#}");
        assert!(fake.inspect(&handle).await.unwrap().running());
    }

    #[test]
    fn a_review_that_was_cut_is_reported_with_the_name() {
        assert!(review_warning("web", &Review::default()).is_none());
        let cut = review_warning("web", &Review { more: true, ..Review::default() }).unwrap();
        assert!(cut.code == "review" && cut.message.starts_with("`web`: 0 places"), "{}", cut.message);
    }

    #[test]
    fn each_container_has_its_line() {
        let result = |name: &str, kept, detail| DestroyResult {
            success: true,
            container: name.into(),
            detail,
            kept,
            saved: Vec::new(),
            review: Vec::new(),
            error: None,
            code: None,
            forgotten: false,
            warning: None,
        };
        let results = vec![result("a", false, "Destroyed"), result("b", true, ""), result("c", false, FORGOTTEN)];
        let mut all = DestroyAllResponse { destroyed: 1, results, networks_removed: Vec::new() };
        insta::assert_snapshot!(coracle_context::document::rendered(&all, "2026-11-21T12:30:00Z"), @r"
        ✓ a destroyed
        – b kept: it is persistent
        ✓ c is forgotten: it was adopted, and is left as it is
        ");
        all.results.clear();
        assert_eq!(coracle_context::document::rendered(&all, "2026-11-21T12:30:00Z"), "no containers to destroy");
    }
}
