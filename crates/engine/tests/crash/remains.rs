//! Nothing is left but what the containers that are listed have.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use coracle_runtime::Container;
use sha2::{Digest as _, Sha256};

use crate::case::{eventually, names};
use crate::operation::VICTIM;
use crate::strace::processes_with;

/// What a killed process left, in words.
pub(crate) async fn check(data: &Path, listed: &[Container]) -> Result<(), String> {
    files(data, listed)?;
    control_groups(data, listed)?;
    mounts(data, listed)?;
    // A network namespace ends some time after its last process.
    eventually(|| devices(data, listed)).await?;
    eventually(|| processes(data)).await
}

fn files(data: &Path, listed: &[Container]) -> Result<(), String> {
    let ids: Vec<_> = listed.iter().map(|it| it.id.to_string()).collect();
    for dir in ["trash", "pending", "store/tmp", "store/holds"] {
        none(&format!("in {dir}"), names(&data.join(dir)))?;
    }
    let is_known = |it: &String| ids.contains(it) || it == "names" || it == "names.lock";
    none("containers", names(&data.join("containers")).into_iter().filter(|it| !is_known(it)))?;
    let named = names(&data.join("containers/names"));
    if named.len() != listed.len() {
        return Err(format!("names: {named:?} of {} containers", listed.len()));
    }
    for dir in ["networks", "volumes", "volumes/data", "volumes/crash-volume"] {
        none(dir, names(&data.join(dir)).into_iter().filter(|it| it.starts_with('.') || it.contains(".new")))?;
    }
    for members in names(&data.join("networks")).iter().filter(|it| it.ends_with(".members")) {
        let running = listed.iter().filter(|it| it.running()).map(|it| format!("{}.json", it.id)).collect::<Vec<_>>();
        none(members, names(&data.join("networks").join(members)).into_iter().filter(|it| !running.contains(it)))?;
    }
    for id in &ids {
        none(id, names(&data.join("containers").join(id)).into_iter().filter(|it| it.starts_with('.')))?;
    }
    Ok(())
}

/// The directories of an engine's groups, which are named after its data.
pub(crate) fn group_parents(data: &Path) -> Vec<PathBuf> {
    let parent = format!("coracle-{}", hex::encode(&Sha256::digest(data.as_os_str().as_encoded_bytes())[..4]));
    let root = Path::new("/sys/fs/cgroup");
    names(root).into_iter().chain([String::new()]).map(|it| root.join(it).join(&parent)).collect()
}

fn control_groups(data: &Path, listed: &[Container]) -> Result<(), String> {
    let with_group = |it: &String| listed.iter().any(|of| of.running() && of.id.to_string() == *it);
    for dir in group_parents(data) {
        let groups = names(&dir).into_iter().filter(|it| dir.join(it).is_dir() && !with_group(it));
        none(&format!("control groups in {}", dir.display()), groups)?;
    }
    Ok(())
}

/// Mounts of the data directory exist within containers alone.
fn mounts(data: &Path, listed: &[Container]) -> Result<(), String> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let of_containers: BTreeSet<_> = listed.iter().filter_map(|it| namespace(&it.pid?.to_string())).collect();
    let mut seen = BTreeSet::new();
    for pid in names(Path::new("/proc")).into_iter().filter(|it| it.parse::<u32>().is_ok()) {
        let Some(namespace) = namespace(&pid).filter(|it| !of_containers.contains(it)) else { continue };
        if seen.insert(namespace) {
            let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
            let ours = mounts.lines().filter(|it| it.contains(data.to_str().unwrap())).map(str::to_owned);
            none(&format!("mounts of process {pid}"), ours)?;
        }
    }
    Ok(())
}

/// Each container on a network has one device, named by the first digits of its id.
fn devices(data: &Path, listed: &[Container]) -> Result<(), String> {
    let running: Vec<_> = listed.iter().filter(|it| it.running()).map(|it| it.id.to_string()).collect();
    let known = std::fs::read_to_string(data.with_file_name("ids")).unwrap_or_default();
    let is_left = |it: &String| {
        // Behind the prefix and the letter of what it reaches.
        let digits = it.get(6..).unwrap_or_default();
        it.starts_with("crcl-")
            && known.lines().any(|id| id.starts_with(digits))
            && !running.iter().any(|id| id.starts_with(digits))
    };
    none("devices", names(Path::new("/sys/class/net")).into_iter().filter(is_left))
}

/// The victim and its children carry the variable; a container's processes do not.
fn processes(data: &Path) -> Result<(), String> {
    let left = processes_with(&format!("{VICTIM}="));
    let ours = left.into_iter().filter(|(pid, line)| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        // The tracer of a container that runs ends with it.
        String::from_utf8_lossy(&environment).contains(data.to_str().unwrap()) && !line.starts_with("strace ")
    });
    none("processes", ours.map(|(pid, line)| format!("{pid} {line}")))
}

fn none(what: &str, found: impl IntoIterator<Item = String>) -> Result<(), String> {
    let found: Vec<_> = found.into_iter().collect();
    if found.is_empty() { Ok(()) } else { Err(format!("{what}: left are {found:?}")) }
}
