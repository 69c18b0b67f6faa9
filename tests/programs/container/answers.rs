//! The printed answers.

use anyhow::Result;
use serde_json::{Value, json};

use crate::Done;
use crate::faults::Faults;
use crate::state::{Kept, Mount, State};
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

/// A container in the form that the scenario asks for.
pub(crate) fn container(state: &State, kept: &Kept, faults: &Faults) -> Value {
    let running = kept.pid().is_some();
    let told = if running { "running" } else { faults.told().unwrap_or("stopped") };
    let networks: Vec<_> = kept
        .networks
        .iter()
        .filter(|_| running)
        .map(|it| json!({ "network": it, "hostname": kept.id, "ipv4Address": "192.168.64.2/24" }))
        .collect();
    let configuration = json!({
        "id": kept.id,
        "image": { "reference": kept.image, "descriptor": { "digest": kept.digest, "size": 1 } },
        "labels": kept.labels,
        "mounts": kept.mounts.iter().map(mount).collect::<Vec<_>>(),
        "creationDate": kept.created,
        "initProcess": { "executable": kept.command[0], "arguments": kept.command[1..], "environment": kept.env,
            "workingDirectory": kept.workdir, "user": { "raw": { "userString": kept.user } } },
        "resources": { "cpus": kept.cpus, "memoryInBytes": kept.memory },
        "platform": { "os": "linux", "architecture": crate::images::arch() },
        "rosetta": false,
    });
    if state.scenario.old_form {
        return json!({ "configuration": configuration, "status": told, "networks": networks,
            "startedDate": kept.started });
    }
    json!({ "id": kept.id, "configuration": configuration,
        "status": { "state": told, "networks": networks, "startedDate": kept.started } })
}

fn mount(it: &Mount) -> Value {
    match it {
        Mount::Bind { source, target, read_only } => json!({ "type": { "virtiofs": {} }, "source": source,
            "destination": target, "options": if *read_only { vec!["ro"] } else { vec![] } }),
        Mount::Tmpfs { target, .. } => json!({ "type": { "tmpfs": {} }, "source": "tmpfs", "destination": target,
            "options": [] }),
    }
}
