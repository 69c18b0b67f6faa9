//! Networks in the JSON of Docker and Podman.

use std::collections::BTreeMap;

use coracle_runtime::Network;
use coracle_types::Result;
use serde::Deserialize;

use super::array;

pub(crate) fn networks(json: &[u8]) -> Result<Vec<Network>> {
    Ok(array::<NetworkJson>("network inspect", json)?.into_iter().map(NetworkJson::read).collect())
}

/// Docker writes `Name`, Podman `name`.
#[derive(Deserialize)]
struct NetworkJson {
    #[serde(alias = "Id")]
    id: String,
    #[serde(alias = "Name")]
    name: String,
    #[serde(alias = "Labels")]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default, alias = "Internal")]
    internal: bool,
    /// Docker's.
    #[serde(default, rename = "IPAM")]
    ipam: Option<IpamJson>,
    /// Podman's.
    #[serde(default)]
    subnets: Option<Vec<SubnetJson>>,
}

#[derive(Deserialize)]
struct IpamJson {
    #[serde(rename = "Config")]
    config: Option<Vec<SubnetJson>>,
}

#[derive(Deserialize)]
struct SubnetJson {
    #[serde(default, alias = "Gateway")]
    gateway: Option<String>,
    #[serde(default, alias = "Subnet")]
    subnet: Option<String>,
}

impl NetworkJson {
    fn read(self) -> Network {
        let pools = || self.subnets.iter().chain(self.ipam.iter().filter_map(|it| it.config.as_ref())).flatten();
        Network {
            // Some versions of Docker write it with the length of its subnet.
            gateways: pools().filter_map(|it| it.gateway.as_ref()?.split('/').next()?.parse().ok()).collect(),
            subnets: pools().filter_map(|it| it.subnet.as_ref()?.parse().ok()).collect(),
            id: self.id,
            name: self.name,
            labels: self.labels.unwrap_or_default(),
            internal: self.internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_engines_tell_the_same_addresses_of_a_network() {
        let docker = br#"[{"Id":"a","Name":"n","Labels":{},"Internal":true,
            "IPAM":{"Driver":"default","Config":[{"Subnet":"172.18.0.0/16","Gateway":"172.18.0.1/16"}]}}]"#;
        let podman = br#"[{"id":"a","name":"n","labels":{},"internal":true,
            "subnets":[{"subnet":"172.18.0.0/16","gateway":"172.18.0.1"}]}]"#;
        let [docker, podman] = [&docker[..], podman].map(|it| networks(it).unwrap().remove(0));
        assert_eq!(docker, podman);
        assert!(docker.subnets[0].contains(&docker.gateways[0]));
        assert_eq!(docker.subnets[0].prefix_len(), 16);
        let none = networks(br#"[{"Id":"a","Name":"none","IPAM":{"Config":[{"Subnet":"odd"}]}}]"#).unwrap();
        assert!(none[0].subnets.is_empty() && none[0].gateways.is_empty());
    }
}
