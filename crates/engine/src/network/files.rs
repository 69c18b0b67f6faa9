//! The files of a container that tell it names: `hosts`, `resolv.conf` and `hostname`.

use super::hosts::HostsText;
use super::resolver;
use crate::config::{HostLine, NetworkConfig, NetworkMode};

/// What the files are made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkFilesRequest<'a> {
    pub(crate) config: &'a NetworkConfig,
    pub(crate) hostname: &'a str,
    pub(crate) hosts: &'a [HostLine],
}

/// The contents of these files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkFiles {
    pub(crate) hosts: String,
    pub(crate) resolv_conf: String,
    pub(crate) hostname: String,
}

/// The files before the container has an address; `attach` completes `hosts`, and `resolv.conf` where a user-mode stack
/// answers for name servers, in place.
pub(crate) fn network_files(request: &NetworkFilesRequest<'_>) -> NetworkFiles {
    let shares_host = request.config.mode == NetworkMode::Host;
    let host = shares_host.then_some([127, 0, 0, 1].into());
    let hosts = HostsText { hostname: request.hostname, address: None, host, lines: request.hosts };
    NetworkFiles {
        hosts: hosts.render(),
        resolv_conf: if shares_host { resolver::of_host() } else { resolver::for_container() },
        hostname: format!("{}\n", request.hostname),
    }
}
