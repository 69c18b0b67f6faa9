//! The printed answers.

use anyhow::Result;
use serde_json::{Value, json};

use crate::Done;
use crate::faults::Faults;
use crate::state::{Mount, State, StoredContainer};
use crate::words::Words;

const VERSION: &str = "1.1.0";

pub(crate) fn version(state: &State, words: Words) -> Result<Done> {
    words.listing(&[])?;
    let version = state.scenario.version.as_deref().unwrap_or(VERSION);
    let one = |app: &str| json!({ "appName": app, "version": version, "buildType": "release", "commit": "0000000" });
    let service = (!state.scenario.service_down).then(|| one("container-apiserver"));
    Ok(Done::text(Value::from_iter(std::iter::once(one("container")).chain(service)).to_string()))
}

pub(crate) fn status(state: &State, words: Words) -> Result<Done> {
    words.listing(&[])?;
    if state.scenario.service_down {
        return Ok(Done { text: Some(json!({ "status": "not running" }).to_string()), code: 1 });
    }
    let version = state.scenario.version.as_deref().unwrap_or(VERSION);
    Ok(Done::text(json!({ "status": "running", "apiServerVersion": version }).to_string()))
}

/// A container in the form that the scenario selects.
pub(crate) fn container(state: &State, stored: &StoredContainer, faults: &Faults) -> Value {
    let running = stored.pid().is_some();
    let reported_state = if running { "running" } else { faults.reported_state().unwrap_or("stopped") };
    let networks: Vec<_> = stored
        .networks
        .iter()
        .filter(|_| running)
        .map(|it| json!({ "network": it, "hostname": stored.id, "ipv4Address": "192.168.64.2/24" }))
        .collect();
    let configuration = json!({
        "id": stored.id,
        "image": { "reference": stored.image, "descriptor": { "digest": stored.digest, "size": 1 } },
        "labels": stored.labels,
        "mounts": stored.mounts.iter().map(mount).collect::<Vec<_>>(),
        "creationDate": stored.created,
        "initProcess": { "executable": stored.command[0], "arguments": stored.command[1..], "environment": stored.env,
            "workingDirectory": stored.workdir, "user": { "raw": { "userString": stored.user } } },
        "resources": { "cpus": stored.cpus, "memoryInBytes": stored.memory },
        "platform": { "os": "linux", "architecture": crate::images::arch() },
        "rosetta": false,
    });
    if state.scenario.old_form {
        return json!({ "configuration": configuration, "status": reported_state, "networks": networks,
            "startedDate": stored.started });
    }
    json!({ "id": stored.id, "configuration": configuration,
        "status": { "state": reported_state, "networks": networks, "startedDate": stored.started } })
}

fn mount(it: &Mount) -> Value {
    match it {
        Mount::Bind { source, target, read_only } => json!({ "type": { "virtiofs": {} }, "source": source,
            "destination": target, "options": if *read_only { vec!["ro"] } else { vec![] } }),
        Mount::Tmpfs { target, .. } => json!({ "type": { "tmpfs": {} }, "source": "tmpfs", "destination": target,
            "options": [] }),
    }
}
