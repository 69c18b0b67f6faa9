//! The network of a call, and entries of its hosts file.

use coracle_context::config::{Config, NetworkGrant};
use coracle_context::failure::Failure;
use coracle_runtime::{HostEntry, NetworkRequest};
use coracle_types::NetworkName;

/// The default is `bridge`, or `none` if the configuration grants no outbound access.
pub(crate) fn resolve(requested: Option<&str>, config: &Config) -> Result<NetworkRequest, Failure> {
    match requested {
        None if config.security.network != NetworkGrant::Open => Ok(NetworkRequest::None),
        None | Some("bridge") => Ok(NetworkRequest::Bridge),
        Some("none") => Ok(NetworkRequest::None),
        Some("host") => Ok(NetworkRequest::Host),
        Some("default" | "slirp4netns" | "pasta" | "private") => Err(refused(requested.unwrap_or_default())),
        Some(name) => NetworkName::parse(name).map(NetworkRequest::Named).map_err(|_| refused(name)),
    }
}

fn refused(name: &str) -> Failure {
    let message = format!("`{}` is neither `bridge`, `none`, `host` nor the name of a network", name.escape_debug());
    Failure::invalid("network", message).hint("leave it out for a private network with outbound access")
}

/// `name:ip` or `name:host-gateway`.
pub(crate) fn host_entry(text: &str) -> Result<HostEntry, Failure> {
    let invalid =
        || Failure::invalid("add_hosts", format!("`{}` is not `name:ip` or `name:host-gateway`", text.escape_debug()));
    let (name, address) = text.split_once(':').ok_or_else(invalid)?;
    let part = |it: &str| {
        (1..=63).contains(&it.len())
            && it.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
            && !it.starts_with('-')
    };
    if name.len() > 253 || !name.split('.').all(part) {
        return Err(invalid());
    }
    let address = match address {
        "host-gateway" => None,
        literal => Some(literal.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| invalid())?),
    };
    Ok(HostEntry { name: name.to_owned(), address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_one_engine_are_refused() {
        let config = Config::default();
        let code = |text: &str| resolve(Some(text), &config).map_err(|it| it.code.word());
        assert_eq!(code("bridge"), Ok(NetworkRequest::Bridge));
        assert_eq!(code("host"), Ok(NetworkRequest::Host));
        assert!(matches!(code("team"), Ok(NetworkRequest::Named(_))));
        for bad in ["container:x", "ns:/proc/1/ns/net", "slirp4netns:port_handler=x", "", "-x", "default", "pasta"] {
            assert_eq!(code(bad), Err("invalid_input".into()), "{bad}");
        }
    }

    #[test]
    fn hosts_are_a_name_and_an_address() {
        let read = |text: &str| host_entry(text).ok().map(|entry| (entry.name, entry.address.map(|it| it.to_string())));
        assert_eq!(read("db.local:10.0.0.1"), Some(("db.local".into(), Some("10.0.0.1".into()))));
        assert_eq!(read("v6:::1"), Some(("v6".into(), Some("::1".into()))));
        assert_eq!(read("up:host-gateway"), Some(("up".into(), None)));
        for bad in ["db", "db:", ":1.1.1.1", "d b:1.1.1.1", "-a:1.1.1.1", "a:b"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
