//! The files of a container that tell it names: `hosts`, `resolv.conf` and `hostname`.

use coracle_runtime::Result;

use crate::container::config::{HostLine, NetworkConfig};
use crate::ids::Privileges;

/// What the files are made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkFilesRequest<'a> {
    pub(crate) config: &'a NetworkConfig,
    pub(crate) hostname: &'a str,
    pub(crate) hosts: &'a [HostLine],
    pub(crate) privileges: &'a Privileges,
}

/// The contents of these files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkFiles {
    pub(crate) hosts: String,
    pub(crate) resolv_conf: String,
    pub(crate) hostname: String,
}

/// The files as they are before the container has an address; `attach` completes `hosts` in place.
pub(crate) fn network_files(request: &NetworkFilesRequest<'_>) -> Result<NetworkFiles> {
    Ok(NetworkFiles {
        hosts: "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n".to_owned(),
        resolv_conf: String::new(),
        hostname: format!("{}\n", request.hostname),
    })
}
