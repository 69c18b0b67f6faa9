//! Memory of the cluster's processes and of this one, in KiB.

use std::fs;

use serde_json::{Map, Value};

const CONTROL_PLANE: [&str; 3] = ["kube-apiserver", "etcd", "kube-scheduler"];

pub(crate) fn of_cluster() -> Map<String, Value> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|it| it.path());
    let named = processes.filter_map(|dir| {
        let program = fs::read_link(dir.join("exe")).ok()?;
        let name = program.file_name()?.to_str()?.to_owned();
        CONTROL_PLANE.contains(&name.as_str()).then_some((name, resident(&dir.join("status"))?))
    });
    let own = resident("/proc/self/status".as_ref()).map(|it| ("this engine's process".to_owned(), it));
    named.chain(own).map(|(name, kib)| (name, kib.into())).collect()
}

fn resident(status: &std::path::Path) -> Option<u64> {
    let status = fs::read_to_string(status).ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
