//! Handles a name that a managed container already has.

use std::collections::BTreeMap;

use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_lifecycle::{MadeFrom, Record, RecordState, Role, find};
use coracle_prepare::requests::{Create, IfExists};
use coracle_prepare::resolve::fingerprint;
use coracle_types::Handle;

use super::response::CreateResponse;
use crate::target::{Access, check_policy, check_session};

/// The container that is meant to be used again, if it is there and ready.
///
/// # Errors
/// `busy` while another call creates or removes it.
pub(super) async fn reused(
    args: &Create,
    snapshot: Option<&MadeFrom>,
    cx: &Context,
) -> Result<Option<CreateResponse>, Failure> {
    let (Some(IfExists::Reuse), Some(name)) = (args.if_exists, &args.name) else { return Ok(None) };
    let found = match find(cx.engines(), &cx.store()?, &Handle::Name(name.clone())).await {
        Ok(found) => found,
        Err(coracle_lifecycle::Error::NotFound { .. } | coracle_lifecycle::Error::NotManaged { .. }) => {
            return Ok(None);
        }
        Err(err) => return Err(err.into()),
    };
    check_session(cx, &found.record.session, name.as_str(), Access::Use)?;
    let busy = || Failure::from(coracle_lifecycle::Error::Busy { name: name.to_string() });
    if cx.store()?.is_being_removed(name).await? {
        return Err(busy());
    }
    // The record of a service is read from its labels, and has no state.
    if found.record.state != RecordState::Ready && found.record.role != Role::Service {
        // The call that creates or removes it holds its lock. What a dead process left is removed before the name is
        // reserved.
        return if cx.store()?.try_lock(name)?.is_some() { Ok(None) } else { Err(busy()) };
    }
    let Some(container) = found.container.as_ref() else { return Ok(None) };
    check_policy(cx, &found.record, Access::Use)?;
    let mut differs = differing(&found.record.request_digests, &fingerprint(args, cx)?);
    if found.record.snapshot.as_ref() != snapshot {
        differs.push("snapshot".to_owned());
    }
    let created = CreateResponse::from_record(&found.record, &container.ports);
    let Some(created) = created.filter(|_| differs.is_empty()) else {
        return Err(taken(&found.record, container.running()).detail("differs", differs));
    };
    if !container.running() && !found.record.persistent {
        return Err(taken(&found.record, false).hint("it has stopped: `destroy` it, and create it again"));
    }
    Ok(Some(created))
}

fn taken(record: &Record, running: bool) -> Failure {
    Failure::new(
        Code::NameTaken,
        format!("a container named `{}` exists and was created with other fields", record.name),
    )
    .detail("kind", "container")
    .detail("ours", true)
    .detail("running", running)
    .hint("`details.differs` names the fields; use it as it is, `destroy` it, or choose another name")
}

/// Names of the fields that are not the same.
fn differing(then: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    let mut differs: Vec<_> =
        then.iter().filter(|(name, it)| now.get(*name) != Some(it)).map(|it| it.0.clone()).collect();
    differs.extend(now.keys().filter(|it| !then.contains_key(*it)).cloned());
    differs.sort();
    differs
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coracle_context::{Context, Frontend, Host, Options};
    use coracle_prepare::process::Process;
    use coracle_runtime::FakeRuntime;
    use coracle_runtime::fake::{LOCAL_IMAGE, Verb};
    use coracle_types::ContainerName;
    use serde_json::{Map, Value, json};

    use super::differing;
    use crate::{CallInput, execute, operations};

    fn context(dir: &std::path::Path, fake: &FakeRuntime) -> Context {
        Context::open(Host::below(dir), &Options::default(), Frontend::Call).unwrap().with_fake(fake.clone())
    }

    async fn call(cx: &Context, call: Value) -> Map<String, Value> {
        execute(operations::ALL, &Process::new(cx.clone()), CallInput::Text(call.to_string().into())).await.json
    }

    async fn create(cx: &Context) -> Map<String, Value> {
        let create = json!({
            "operation": "create", "name": "web", "image": LOCAL_IMAGE, "mount_cwd": false, "if_exists": "reuse",
        });
        call(cx, create).await
    }

    #[tokio::test]
    async fn one_that_is_being_removed_is_not_given_again() {
        let (fake, dir) = (FakeRuntime::new(), tempfile::tempdir().unwrap());
        let cx = context(dir.path(), &fake);
        let first = create(&cx).await;
        assert_eq!(first["success"], true, "{first:#?}");
        // Its record is as before while its work is saved.
        let web = ContainerName::parse("web").unwrap();
        let removal = cx.store().unwrap().removal_lock(&web).await.unwrap();
        assert_eq!(create(&cx).await["code"], "busy");
        drop(removal);
        assert_eq!(create(&cx).await["reused"], true);
        fake.fail_next(Verb::Remove);
        let failed = call(&cx, json!({ "operation": "destroy", "container": "web" })).await;
        assert_eq!(failed["success"], false, "{failed:#?}");
        let held = cx.store().unwrap().lock(&web).await.unwrap();
        let busy = create(&cx).await;
        assert_eq!(busy["code"], "busy", "{busy:#?}");
        drop(held);
        let again = create(&cx).await;
        assert_eq!(again["success"], true, "{again:#?}");
        assert_eq!(again["reused"], false, "{again:#?}");
        assert_ne!(again["id"], first["id"]);
    }

    #[tokio::test]
    async fn of_two_that_ask_at_once_the_second_gets_what_the_first_made() {
        let (fake, dir) = (FakeRuntime::new(), tempfile::tempdir().unwrap());
        fake.slow(Verb::Create, Duration::from_millis(100));
        let cx = context(dir.path(), &fake);
        let ensure = async || {
            loop {
                let answer = create(&cx).await;
                if answer.get("code").is_none_or(|it| it != "busy") {
                    break answer;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let (one, other) = tokio::join!(Box::pin(ensure()), Box::pin(ensure()));
        for it in [&one, &other] {
            assert_eq!(it["success"], true, "{it:#?}");
        }
        assert_eq!(one["id"], other["id"]);
        assert_ne!(one["reused"], other["reused"]);
    }

    #[test]
    fn fields_that_changed_came_or_went_are_named() {
        let of = |fields: &[(&str, &str)]| fields.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let then = of(&[("a", "1"), ("b", "1"), ("c", "1")]);
        assert_eq!(differing(&then, &of(&[("a", "1"), ("b", "2"), ("d", "1")])), ["b", "c", "d"]);
        assert_eq!(differing(&then, &then), [""; 0]);
    }
}
