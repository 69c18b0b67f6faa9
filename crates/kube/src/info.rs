//! Reads the version of a cluster.

use coracle_runtime::EngineInfo;
use coracle_types::{EngineKind, Error, Result};

use crate::cluster::Cluster;
use crate::error::api_error;
use crate::retry::{READ, retry};

/// The oldest supported minor version of 1.
const OLDEST_MINOR: u32 = 20;

/// Requests the version, which every account may do. Nodes are not listed: an account of a namespace may not.
pub(crate) async fn info(cluster: &Cluster) -> Result<EngineInfo> {
    let client = cluster.client().await?;
    let version = retry("version", READ, || client.apiserver_version()).await?;
    let version = version.map_err(|err| api_error("version", err))?;
    let found = version.git_version.trim_start_matches('v').to_owned();
    // Some versions end in `+`.
    let digits = |text: &str| text.trim_end_matches(|it: char| !it.is_ascii_digit()).parse::<u32>().unwrap_or(0);
    if (digits(&version.major), digits(&version.minor)) < (1, OLDEST_MINOR) {
        return Err(Error::TooOld { engine: EngineKind::Kubernetes, found, needed: "1.20" });
    }
    let arch = version.platform.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(EngineInfo {
        kind: EngineKind::Kubernetes,
        version: found,
        endpoint: cluster.endpoint(),
        rootless: false,
        single_user: false,
        arch,
        cgroup: 2,
        data_root: "/".into(),
        storage_driver: None,
        compose_version: None,
        gpu: false,
        selinux: false,
        ignored_limits: vec!["pids".into()],
    })
}
