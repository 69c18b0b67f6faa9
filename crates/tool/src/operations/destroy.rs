//! `destroy`: one container, with all that only it used.

use std::path::PathBuf;
use std::sync::Arc;

use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText, optional, word};
use coracle_context::failure::{Code, Failure};
use coracle_context::removal::{removing, saved_lines};
use coracle_context::steps;
use coracle_context::warning::{Warning, to_review};
use coracle_lifecycle::{
    DestroyReport as Removed, Error, Finding, Record, Role, SaveReport, Store, find_linked, reconcile,
};
use coracle_runtime::ContainerRuntime;
use coracle_types::{ContainerName, Handle, ProjectName};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::shapes::{FindingShape, SaveShape};
use crate::target::{Access, check_session, reach};

/// Remove a container with all that only it used. Work that only it has is saved on the host first. A second time
/// succeeds quietly.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Destroy {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    pub container: Handle,
    /// End its commands at once, without a chance to clean up. Work is saved all the same.
    #[schemars(extend("default" = false))]
    pub force: Option<bool>,
    /// Project of the stack: with a Compose file, the name of the new one; without, a running one to join; for
    /// `destroy`, the one to remove with the container.
    #[schemars(with = "Option<String>")]
    pub compose_project: Option<ProjectName>,
    /// Save no work: what only the container has is lost. The user has to allow it.
    #[schemars(extend("default" = false))]
    pub discard: Option<bool>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub struct DestroyResponse {
    #[schemars(with = "String")]
    container: ContainerName,
    detail: &'static str,
    pub(crate) already_gone: bool,
    #[schemars(with = "Vec<SaveShape>")]
    pub(crate) saved: Vec<SaveReport>,
    /// What to look at in directories of the host that it could write.
    #[schemars(with = "Vec<FindingShape>")]
    pub(crate) review: Vec<Finding>,
    #[schemars(with = "Option<String>")]
    compose_project: Option<ProjectName>,
}

/// What became of one that was adopted.
pub(super) const FORGOTTEN: &str = "Forgotten: it was adopted, and is left as it is";

impl Operation for Destroy {
    const NAME: &'static str = "destroy";
    const EFFECT: Effect = Effect::Irreversible;
    const RESULT: fn() -> Value = result_schema::<DestroyResponse>;
    type Response = DestroyResponse;

    async fn run(self, cx: &Context) -> Result<DestroyResponse, Failure> {
        let store = cx.store()?;
        let removing = removing(cx, self.discard.unwrap_or(false), self.force.unwrap_or(false))?;
        reconcile(cx.engines(), &store, cx.config.lifecycle.gone_for.0).await?;
        let (runtime, record) = match reach_to_destroy(cx, &self.container).await {
            Ok(found) => found,
            Err(failure) => {
                let gone = store.destroyed(&self.container).map_err(Error::from)?;
                let unknown = matches!(
                    failure.code,
                    coracle_context::failure::Code::NotFound | coracle_context::failure::Code::NotManaged
                );
                // A destroyed container stays destroyed, even if a foreign container has taken its name.
                return match gone.filter(|_| unknown) {
                    Some(container) => Ok(answer(container, None, Removed::gone())),
                    None => Err(failure),
                };
            }
        };
        let record = with_its_stack(&store, record, self.compose_project.as_ref())?;
        steps::settled(cx, &record.record_id).await;
        let name = &record.name;
        let what = if self.discard == Some(true) {
            format!("removing {name}")
        } else {
            format!("saving the work of {name}, then removing it")
        };
        cx.call.progress.message(what).await;
        let done = coracle_lifecycle::destroy(&*runtime, &store, &record, &removing).await;
        let done = done.map_err(|err| Failure::from(err).known("container", &record.name))?;
        let stays = (done.forgotten && self.force == Some(true)).then(|| adopted_stays(&record.name));
        cx.warn(to_review(&done.review).into_iter().chain(bind_missing(&done.missing)).chain(stays));
        Ok(answer(record.name, record.compose_project, done))
    }
}

/// A container whose guest responds is provably Coracle's, so no engine call is needed.
async fn reach_to_destroy(cx: &Context, handle: &Handle) -> Result<(Arc<dyn ContainerRuntime>, Record), Failure> {
    if let Some((record, _)) = find_linked(&cx.store()?, cx.links(), handle).await? {
        check_session(cx, &record.session, record.name.as_str(), Access::Destroy)?;
        return Ok((cx.runtime_for(record.engine, &record.endpoint)?, record));
    }
    let found = reach(cx, handle, Access::Destroy).await?;
    Ok((found.runtime, found.record))
}

/// The container to destroy together with its stack. For a service, that is the container that owns the stack, and only if
/// the request names the stack.
fn with_its_stack(store: &Store, record: Record, requested: Option<&ProjectName>) -> Result<Record, Failure> {
    let project = record.compose_project.clone();
    match (requested, &project) {
        (Some(requested), project) if project.as_ref() != Some(requested) => {
            Err(Failure::not_found("compose project", requested.as_str(), &[]).detail("container", &record.name))
        }
        (None, Some(project)) if record.role == Role::Service => {
            let message = format!("`{}` is a service and goes with its stack `{project}`", record.name);
            Err(Failure::invalid("compose_project", message)
                .hint("give `compose_project` to destroy the whole stack with the container that it was made with"))
        }
        (_, Some(project)) if !record.compose_joined => {
            let joined = store.joined(project)?;
            if !joined.is_empty() {
                return Err(Failure::new(Code::InUse, format!("containers have joined the stack `{project}`"))
                    .detail("kind", "compose project")
                    .detail("containers", joined)
                    .hint("`destroy` those first"));
            }
            Ok(store.stack_owner(project)?.unwrap_or(record))
        }
        _ => Ok(record),
    }
}

fn answer(container: ContainerName, compose_project: Option<ProjectName>, removed: Removed) -> DestroyResponse {
    let Removed { already_gone, saved, review, forgotten, .. } = removed;
    let detail = if forgotten { FORGOTTEN } else { "Destroyed" };
    let review = review.findings;
    DestroyResponse { container, detail, already_gone, saved, review, compose_project }
}

/// The source of a bind is missing, so it could not be reviewed.
fn bind_missing(missing: &[PathBuf]) -> Option<Warning> {
    let names: Vec<_> = missing.iter().map(|path| format!("`{}`", path.display())).collect();
    let message = format!(
        "{} of the host, which the container had mounted, is gone or was replaced: its work was saved without it",
        names.join(", ")
    );
    (!names.is_empty()).then(|| Warning::new("mount_missing", message))
}

/// `force` of an agent does not reach a container that the user adopted.
fn adopted_stays(container: &ContainerName) -> Warning {
    let message = format!(
        "the container stays: `force` removes an adopted container only at the command line, by `coracle adopt {container}` \
         and `coracle destroy {container} --force`"
    );
    Warning::new("adopted_stays", message)
}

impl Render for DestroyResponse {
    fn render(&self, _: Timestamp) -> Document {
        let outcome = outcome(self.already_gone, self.detail);
        let stack = self.compose_project.as_ref().map(|it| format!(", with the services of the stack {it}"));
        let line = StyledText::new().name(&self.container).plain(format!(" {outcome}{}", optional(stack)));
        let review = self.review.iter().map(|it| {
            let place = format!(" {} ({})", it.path.display(), word(it.change));
            StyledText::from("  ").doubtful("review").plain(place)
        });
        Document::line(line).and_lines(saved_lines(&self.saved)).and_lines(review).timed()
    }
}

/// What became of a container, for its line.
pub(super) fn outcome(already_gone: bool, detail: &str) -> &'static str {
    match detail {
        _ if already_gone => "was gone already",
        FORGOTTEN => "is forgotten: it was adopted, and is left as it is",
        _ => "destroyed",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use coracle_prepare::process::Process;
    use coracle_runtime::fake::LOCAL_IMAGE;
    use coracle_runtime::{FakeRuntime, ImageStore as _, NetworkAttachment, admit};
    use coracle_types::ImageRef;
    use serde_json::{Value, json};

    use super::*;
    use crate::dispatch::{CallInput, execute};

    /// A container that runs and was adopted.
    pub(in crate::operations) async fn adopted(cx: &Context, fake: &FakeRuntime) -> Handle {
        let image = ImageRef::parse(LOCAL_IMAGE).unwrap();
        let found = fake.find_images(std::slice::from_ref(&image)).await.unwrap();
        let spec = coracle_prepare::resolve::bare(ContainerName::parse("theirs").unwrap(), image);
        let spec = admit(spec, &cx.policy().unwrap())
            .unwrap()
            .with_image(found[0].id.clone(), NetworkAttachment::EngineDefault);
        let id = fake.create(&spec).await.unwrap();
        fake.start(&id).await.unwrap();
        let handle = Handle::parse("theirs").unwrap();
        coracle_lifecycle::adopt(cx.engines(), &cx.store().unwrap(), &handle, cx.call.session.as_str()).await.unwrap();
        handle
    }

    #[tokio::test]
    async fn an_agent_that_forces_the_end_of_an_adopted_container_is_informed_that_it_stays() {
        let (dir, fake) = (tempfile::tempdir().unwrap(), FakeRuntime::new());
        let cx = Context::for_tests(dir.path()).with_fake(fake.clone());
        let handle = adopted(&cx, &fake).await;
        let Value::Object(call) = json!({ "operation": "destroy", "container": "theirs", "force": true }) else {
            panic!()
        };
        let gone = Value::Object(
            execute(crate::operations::ALL, &Process::new(cx.clone()), CallInput::Object(call)).await.json,
        );
        assert_eq!(gone["warnings"][0]["code"], "adopted_stays", "{gone:#}");
        assert!(fake.inspect(&handle).await.unwrap().running());
    }

    #[test]
    fn an_end_is_one_line() {
        let (container, detail) = (ContainerName::parse("web").unwrap(), "Destroyed");
        let (saved, review, compose_project) = Default::default();
        let mut gone = DestroyResponse { container, detail, already_gone: false, saved, review, compose_project };
        assert_eq!(coracle_context::document::rendered(&gone, "2026-11-21T12:30:00Z"), "web destroyed");
        gone.already_gone = true;
        assert_eq!(coracle_context::document::rendered(&gone, "2026-11-21T12:30:00Z"), "web was gone already");
    }
}
