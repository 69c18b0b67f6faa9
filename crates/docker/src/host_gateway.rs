//! The host's address for `host-gateway`, where Podman does not know the word.

use std::net::IpAddr;

use coracle_runtime::{ContainerRuntime, NetworkAttachment, Placed};
use coracle_types::{Capability, Error, Result};

use super::CliRuntime;
use super::dialect::Dialect;

/// The first Podman whose `--add-host` takes `host-gateway` (its pull request 19152).
const FIRST_PODMAN: (u32, u32) = (4, 7);

/// Podman's default network, which a rootful container is on that names none.
const DEFAULT_NETWORK: &str = "podman";

impl CliRuntime {
    /// The address to write for `host-gateway`; `None` where the engine is given the word.
    ///
    /// Under rootful Podman the gateway of a bridge is the host. Elsewhere only Podman itself knows the address.
    pub(super) async fn host_gateway(&self, placed: &Placed) -> Result<Option<IpAddr>> {
        let is_wanted = placed.spec().add_hosts.iter().any(|it| it.address.is_none());
        if !is_wanted || self.dialect != Dialect::Podman {
            return Ok(None);
        }
        let bridge = match placed.network() {
            NetworkAttachment::Id(id) if !self.facts.rootless => Some(id.as_str()),
            NetworkAttachment::EngineDefault if !self.facts.rootless => Some(DEFAULT_NETWORK),
            _ => None,
        };
        if let Some(bridge) = bridge {
            let found = self.lookup.find_networks(&[bridge.to_owned()]).await?.pop();
            if let Some(gateway) = found.and_then(|it| it.gateways.first().copied()) {
                return Ok(Some(gateway));
            }
        }
        if knows_the_word(&self.info().await?.version) {
            return Ok(None);
        }
        Err(Error::Unsupported { engine: self.kind(), capability: Capability::HostEntries })
    }
}

fn knows_the_word(version: &str) -> bool {
    let mut parts = version.split(|it: char| !it.is_ascii_digit()).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= FIRST_PODMAN,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_the_word_are_known() {
        for (version, knows) in [("4.3.1", false), ("4.6.2", false), ("4.7.0", true), ("5.0.0-rc1", true), ("", false)]
        {
            assert_eq!(knows_the_word(version), knows, "{version}");
        }
    }
}
