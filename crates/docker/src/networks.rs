//! Networks of Docker and Podman.

use async_trait::async_trait;
use coracle_runtime::{ContainerRuntime, LabelFilter, Network, NetworkCreate, Networks};
use coracle_types::{Capability, Error, NetworkName, Result};

use super::dialect::Dialect;
use super::transient::{is_interface_gone, retry};
use super::{CliRuntime, args, deadline};

#[async_trait]
impl Networks for CliRuntime {
    async fn find_network(&self, name: &NetworkName) -> Result<Option<Network>> {
        Ok(self.lookup.find_networks(&[name.to_string()]).await?.into_iter().next())
    }

    async fn list_networks(&self, filter: &LabelFilter) -> Result<Vec<Network>> {
        self.lookup.list_networks(filter).await
    }

    async fn create_network(&self, network: &NetworkCreate) -> Result<Network> {
        if !network.reach && self.dialect == Dialect::Podman {
            return Err(Error::Unsupported { engine: self.kind(), capability: Capability::PartedNetwork });
        }
        let create =
            || self.client.query("network create", args::create_network(self.dialect, network), deadline::NETWORK);
        let is_transient =
            |it: &Result<_>| matches!(it, Err(Error::Engine { excerpt, .. }) if is_interface_gone(excerpt));
        let created = retry(create, is_transient).await;
        match (created, self.find_network(&network.name).await?) {
            (Ok(_), Some(network)) => Ok(network),
            (Ok(_), None) => Err(Error::Unreadable { verb: "network create", detail: "no network".into() }),
            (Err(_), Some(_)) => Err(Error::NetworkTaken(network.name.clone())),
            (Err(failure), None) => Err(failure),
        }
    }

    async fn remove_network(&self, handle: &str) -> Result<()> {
        let find = async || self.lookup.find_networks(&[handle.to_owned()]).await;
        // Podman removes a network in use when it is named by its id.
        let Some(Network { name, .. }) = find().await?.pop() else { return Ok(()) };
        let removed = self.client.query("network rm", args::on("network rm", [&name]), deadline::NETWORK).await;
        match removed {
            Err(failure) if !find().await?.is_empty() => Err(failure),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::scripted::podman;
    use coracle_runtime::{NetworkCreate, Networks as _};
    use coracle_types::{Error, NetworkName, Result};

    const FAILING: &str = r#"
echo "$1 $2" >> "$TMPDIR/calls"
case "$1 $2" in
"network create")
    tries=$(grep -c "network create" "$TMPDIR/calls")
    if [ "$tries" -lt FROM ]; then echo "Error: MESSAGE" >&2; exit 125; fi
    echo it ;;
"network inspect")
    [ "$(grep -c "network create" "$TMPDIR/calls")" -ge FROM ] && echo '[{"id":"1","name":"inner"}]' || echo "[]" ;;
esac"#;

    async fn create(message: &str, succeeds_at: usize) -> (Result<()>, usize) {
        let script = FAILING.replace("MESSAGE", message).replace("FROM", &succeeds_at.to_string());
        let (engine, temp) = podman(&script);
        let name = NetworkName::parse("inner").unwrap();
        let network = NetworkCreate { name, labels: Vec::new(), reach: true, internal: false };
        let created = engine.create_network(&network).await.map(drop);
        let calls = std::fs::read_to_string(temp.path().join("calls")).unwrap();
        (created, calls.lines().filter(|it| *it == "network create").count())
    }

    #[tokio::test]
    async fn a_network_is_requested_again_after_an_interface_of_the_host_disappears() {
        let gone = "route ip+net: no such network interface";
        assert!(matches!(create(gone, 3).await, (Ok(()), 3)));
        assert!(matches!(create(gone, 100).await, (Err(Error::Engine { .. }), 4)));
        assert!(matches!(create("no space left on device", 3).await, (Err(Error::Engine { .. }), 1)));
    }
}
