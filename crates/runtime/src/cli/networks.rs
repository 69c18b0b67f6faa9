//! Networks of Docker and Podman.

use super::args;
use super::dialect::Dialect;
use super::{CliRuntime, deadline};
use crate::{Capability, ContainerRuntime, Error, Excerpt, Network, NetworkAct, Result};

const CREATE_TRIES: usize = 4;

impl CliRuntime {
    pub(super) async fn networks(&self, act: NetworkAct) -> Result<Vec<Network>> {
        match act {
            NetworkAct::Find(name) => self.lookup.find_networks(&[name.to_string()]).await,
            NetworkAct::Create { reach: false, .. } if self.dialect == Dialect::Podman => {
                Err(Error::Unsupported { engine: self.kind(), capability: Capability::PartedNetwork })
            }
            NetworkAct::Create { name, labels, reach, internal } => {
                let words = || args::create_network(self.dialect, name.as_str(), &labels, (reach, internal));
                let create = || self.client.ask("network create", words(), deadline::NETWORK);
                let is_transient =
                    |it: &Result<_>| matches!(it, Err(Error::Engine { excerpt, .. }) if is_interface_gone(excerpt));
                let created = retry(create, is_transient).await;
                match created {
                    Ok(_) => self.lookup.find_networks(&[name.to_string()]).await,
                    Err(_) if !self.lookup.find_networks(&[name.to_string()]).await?.is_empty() => {
                        Err(Error::NetworkTaken(name))
                    }
                    Err(failure) => Err(failure),
                }
            }
            NetworkAct::List(filter) => self.lookup.list_networks(&filter).await,
            NetworkAct::Remove(id) => {
                // Podman removes a network in use when it is named by its id.
                let Some(Network { name, .. }) = self.lookup.find_networks(std::slice::from_ref(&id)).await?.pop()
                else {
                    return Ok(Vec::new());
                };
                let removed = self.client.ask("network rm", args::on("network rm", [&name]), deadline::NETWORK).await;
                match removed {
                    Err(failure) if !self.lookup.find_networks(&[id]).await?.is_empty() => Err(failure),
                    _ => Ok(Vec::new()),
                }
            }
        }
    }
}

/// Podman walks the interfaces of the host for a free subnet, and fails if one of them goes meanwhile, as those of other containers do.
pub(super) fn is_interface_gone(message: &Excerpt) -> bool {
    message.as_str().contains("no such network interface")
}

/// Repeats what creates a network while it fails for such a reason.
pub(super) async fn retry<T, F: Future<Output = Result<T>>>(
    mut create: impl FnMut() -> F,
    is_transient: impl Fn(&Result<T>) -> bool,
) -> Result<T> {
    let mut created = create().await;
    for _ in 1..CREATE_TRIES {
        if !is_transient(&created) {
            break;
        }
        created = create().await;
    }
    created
}

#[cfg(test)]
mod tests {
    use crate::cli::scripted::podman;
    use crate::{ContainerRuntime as _, Error, NetworkAct, NetworkName, Result};

    const FAILING: &str = r#"
echo "$1 $2" >> "$TMPDIR/asked"
case "$1 $2" in
"network create")
    tries=$(grep -c "network create" "$TMPDIR/asked")
    if [ "$tries" -lt FROM ]; then echo "Error: MESSAGE" >&2; exit 125; fi
    echo it ;;
"network inspect") echo "[]" ;;
esac"#;

    async fn create(message: &str, succeeds_at: usize) -> (Result<()>, usize) {
        let script = FAILING.replace("MESSAGE", message).replace("FROM", &succeeds_at.to_string());
        let (engine, temp) = podman(&script);
        let name = NetworkName::parse("inner").unwrap();
        let act = NetworkAct::Create { name, labels: Vec::new(), reach: true, internal: false };
        let created = engine.network(act).await.map(drop);
        let asked = std::fs::read_to_string(temp.path().join("asked")).unwrap();
        (created, asked.lines().filter(|it| *it == "network create").count())
    }

    #[tokio::test]
    async fn a_network_is_asked_for_again_when_an_interface_of_the_host_went_meanwhile() {
        let gone = "route ip+net: no such network interface";
        assert!(matches!(create(gone, 3).await, (Ok(()), 3)));
        assert!(matches!(create(gone, 100).await, (Err(Error::Engine { .. }), 4)));
        assert!(matches!(create("no space left on device", 3).await, (Err(Error::Engine { .. }), 1)));
    }
}
