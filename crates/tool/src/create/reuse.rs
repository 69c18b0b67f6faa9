//! A name that a container of ours has already (containers.md 4.20).

use std::collections::BTreeMap;

use coracle_lifecycle::{MadeFrom, Record, RecordState, find};
use coracle_runtime::{Handle, PublishedPort};
use serde::Serialize;
use serde_json::{Map, Value};

use super::response::server_url;
use crate::context::Context;
use crate::failure::{Code, Failure};
use crate::requests::{Create, IfExists};
use crate::resolve::fingerprint;
use crate::target::{Access, check_policy, check_session};

/// The answer of an earlier `create`, given again.
#[derive(Debug, Serialize)]
pub(crate) struct ReusedContainer(Map<String, Value>);

/// The container that is meant to be used again, if it is there.
pub(super) async fn reused(
    args: &Create,
    snapshot: Option<&MadeFrom>,
    cx: &Context,
) -> Result<Option<ReusedContainer>, Failure> {
    let (Some(IfExists::Reuse), Some(name)) = (args.if_exists, &args.name) else { return Ok(None) };
    let found = match find(cx.engines(), &cx.store()?, &Handle::Name(name.clone())).await {
        Ok(found) => found,
        Err(coracle_lifecycle::Error::NotFound { .. } | coracle_lifecycle::Error::NotManaged { .. }) => {
            return Ok(None);
        }
        Err(err) => return Err(err.into()),
    };
    let Some(container) = found.container.as_ref() else { return Ok(None) };
    check_session(cx, &found.record.session, name.as_str(), Access::Use)?;
    check_policy(cx, &found.record, Access::Use)?;
    let mut differs = differing(&found.record.asked, &fingerprint(args, cx)?);
    if found.record.snapshot.as_ref() != snapshot {
        differs.push("snapshot".to_owned());
    }
    if differs.is_empty() && found.record.state != RecordState::Ready && found.record.maker.alive() {
        // Another call is just making it, and this one is to get the same.
        return Err(coracle_lifecycle::Error::Busy { name: name.to_string() }.into());
    }
    if !differs.is_empty() || found.record.answer.is_empty() {
        return Err(taken(&found.record, container.running()).detail("differs", differs));
    }
    if !container.running() && !found.record.persistent {
        return Err(taken(&found.record, false).hint("it has stopped: `destroy` it, and create it anew"));
    }
    Ok(Some(ReusedContainer(again(&found.record, &container.ports))))
}

/// What was answered then, with the ports of now.
fn again(record: &Record, ports: &[PublishedPort]) -> Map<String, Value> {
    let mut answer = record.answer.clone();
    answer.insert("provisioning_report".into(), record.provisioning_report.clone());
    answer.insert("reused".into(), true.into());
    answer.insert("duration_ms".into(), 0.into());
    if let Some(server) = answer.get_mut("server").and_then(Value::as_object_mut) {
        let port = server.get("port").and_then(Value::as_u64).and_then(|it| u16::try_from(it).ok()).unwrap_or_default();
        let path =
            server.get("url").and_then(Value::as_str).and_then(|it| it.splitn(4, '/').nth(3)).unwrap_or_default();
        let url = server_url(ports, port, &format!("/{path}"));
        server.insert("url".into(), url.into());
    }
    if let Ok(ports) = serde_json::to_value(ports) {
        answer.insert("ports".into(), ports);
    }
    answer
}

fn taken(record: &Record, running: bool) -> Failure {
    Failure::new(Code::NameTaken, format!("a container named `{}` exists and was asked for otherwise", record.name))
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
    use super::differing;

    #[test]
    fn fields_that_changed_came_or_went_are_named() {
        let of = |fields: &[(&str, &str)]| fields.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let then = of(&[("a", "1"), ("b", "1"), ("c", "1")]);
        assert_eq!(differing(&then, &of(&[("a", "1"), ("b", "2"), ("d", "1")])), ["b", "c", "d"]);
        assert_eq!(differing(&then, &then), [""; 0]);
    }
}
