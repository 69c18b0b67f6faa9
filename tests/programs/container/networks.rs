//! Networks and volumes: names with labels. Volumes are directories too.

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::Done;
use crate::state::{State, StoredContainer, now};
use crate::words::Words;

pub(crate) fn create(state: &State, words: Words) -> Result<Done> {
    let args = words.read(&["--label"], &["--internal"], usize::MAX)?;
    let name = args.name()?;
    let _lock = state.lock()?;
    if state.has("networks", name) {
        bail!("network \"{name}\" already exists");
    }
    let mode = if args.has("--internal") { "hostOnly" } else { "nat" };
    let configuration = json!({ "id": name, "name": name, "mode": mode, "labels": args.pairs("--label"),
        "creationDate": now() });
    let network = json!({ "id": name, "configuration": configuration, "status": { "ipv4Subnet": "192.168.65.0/24" } });
    state.write("networks", name, &network)?;
    Ok(Done::text(format!("{name}\n")))
}

pub(crate) fn list(state: &State, words: Words) -> Result<Done> {
    words.listing(&[])?;
    Ok(Done::text(Value::from(state.all::<Value>("networks")?).to_string()))
}

pub(crate) fn delete(state: &State, words: Words) -> Result<Done> {
    let _lock = state.lock()?;
    for name in words.names()? {
        let _: Value = state.read("networks", &name)?;
        let users: Vec<StoredContainer> = state.all("containers")?;
        if users.iter().any(|it| it.networks.contains(&name)) {
            bail!("network \"{name}\" can not be deleted: containers are attached to it");
        }
        state.forget("networks", &name)?;
    }
    Ok(Done::default())
}

pub(crate) fn create_volume(state: &State, words: Words) -> Result<Done> {
    let args = words.read(&["--label", "-s"], &[], usize::MAX)?;
    let name = args.name()?;
    let _lock = state.lock()?;
    if state.has("volumes", name) {
        bail!("volume \"{name}\" already exists");
    }
    let data = state.at("volumes").join(format!("{name}.data"));
    std::fs::create_dir(&data)?;
    let configuration = json!({ "name": name, "labels": args.pairs("--label"), "source": data, "size": args.one("-s"),
        "creationDate": now() });
    state.write("volumes", name, &json!({ "id": name, "configuration": configuration }))?;
    Ok(Done::text(format!("{name}\n")))
}

pub(crate) fn list_volumes(state: &State, words: Words) -> Result<Done> {
    words.listing(&[])?;
    Ok(Done::text(Value::from(state.all::<Value>("volumes")?).to_string()))
}

pub(crate) fn delete_volume(state: &State, words: Words) -> Result<Done> {
    let _lock = state.lock()?;
    for name in words.names()? {
        let volume: Value = state.read("volumes", &name)?;
        let data = volume["configuration"]["source"].as_str().unwrap_or_default().to_owned();
        let users: Vec<StoredContainer> = state.all("containers")?;
        let uses = |it: &crate::state::Mount| matches!(it, crate::state::Mount::Bind { source, .. } if source.as_os_str() == data.as_str());
        if users.iter().any(|it| it.mounts.iter().any(uses)) {
            bail!("volume \"{name}\" can not be deleted: it is in use");
        }
        std::fs::remove_dir_all(&data)?;
        state.forget("volumes", &name)?;
    }
    Ok(Done::default())
}
