//! The network of a call, and entries of its hosts file.

use coracle_context::config::{Config, NetworkGrant, ProxyNetwork};
use coracle_context::context::Context;
use coracle_context::egress;
use coracle_context::failure::Failure;
use coracle_context::recorded;
use coracle_runtime::{HostEntry, NetworkRequest};
use coracle_types::NetworkName;

use crate::requests::Create;

/// Whether the only way out is a proxy, as is the default if the configuration allows no more.
pub(crate) fn is_proxied(requested: Option<&str>, config: &Config) -> bool {
    match requested {
        None => config.security.network == NetworkGrant::Proxy,
        Some(requested) => requested == PROXY,
    }
}

/// The default is `bridge`, or less if the configuration grants less.
pub(crate) fn resolve(requested: Option<&str>, config: &Config) -> Result<NetworkRequest, Failure> {
    match requested {
        None if config.security.network != NetworkGrant::Open => Ok(NetworkRequest::None),
        // The proxy is reached over the link of the guest.
        Some(PROXY) => Ok(NetworkRequest::None),
        None | Some("bridge") => Ok(NetworkRequest::Bridge),
        Some("none") => Ok(NetworkRequest::None),
        Some("host") => Ok(NetworkRequest::Host),
        Some("default" | "slirp4netns" | "pasta" | "private") => Err(refused(requested.unwrap_or_default())),
        Some(name) => NetworkName::parse(name).map(NetworkRequest::Named).map_err(|_| refused(name)),
    }
}

/// The network of a container whose way out is its proxy.
pub(crate) const PROXY: &str = "proxy";

/// The network of a call: the proxy, if it answers from a record.
pub(crate) fn replayed<'a>(args: &Create, requested: Option<&'a str>) -> Result<Option<&'a str>, Failure> {
    match requested {
        _ if args.replay.is_none() => Ok(requested),
        None | Some(PROXY) => Ok(Some(PROXY)),
        Some(_) => Err(no_replay("the proxy answers from the record, and `network` names another network")),
    }
}

/// The record that the proxy answers from, by its path. Without one, the rules of the proxy have to be valid.
pub(crate) fn replay(args: &Create, proxied: bool, cx: &Context) -> Result<Option<String>, Failure> {
    match &args.replay {
        None if proxied => egress::policy(cx, ProxyNetwork::Proxy, &cx.config.security.egress).map(|_| None),
        None => Ok(None),
        Some(_) if !proxied => Err(no_replay("with a stack, the container is on the stack's network")),
        Some(named) => Ok(Some(recorded::find(cx, named)?.path())),
    }
}

fn no_replay(why: &str) -> Failure {
    Failure::invalid("replay", why).hint("leave `network` out, or set it to `proxy`")
}

fn refused(name: &str) -> Failure {
    let message =
        format!("`{}` is neither `bridge`, `proxy`, `none`, `host` nor the name of a network", name.escape_debug());
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
        assert_eq!(code("proxy"), Ok(NetworkRequest::None));
        for bad in ["container:x", "ns:/proc/1/ns/net", "slirp4netns:port_handler=x", "", "-x", "default", "pasta"] {
            assert_eq!(code(bad), Err("invalid_input".into()), "{bad}");
        }
    }

    #[test]
    fn a_proxy_is_what_the_call_or_the_configuration_says() {
        let with = |network| {
            let mut config = Config::default();
            config.security.network = network;
            move |requested: Option<&str>| is_proxied(requested, &config)
        };
        let (open, proxy) = (with(NetworkGrant::Open), with(NetworkGrant::Proxy));
        assert!(open(Some("proxy")) && proxy(Some("proxy")) && proxy(None));
        assert!(!open(None) && !proxy(Some("none")) && !with(NetworkGrant::None)(None));
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
