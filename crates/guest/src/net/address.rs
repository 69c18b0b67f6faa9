//! Parses the addresses of callers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpStream;

use crate::protocol::{ErrorCode, RpcError};

/// The addresses of `localhost`: Node, for example, listens only on the second one.
const LOCALHOST: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The addresses of `8080`, `localhost:8080` or `address:8080`. The guest is a static program without a resolver, so it
/// supports no other names.
pub(crate) fn addresses(text: &str) -> Result<Vec<SocketAddr>, RpcError> {
    let invalid = || RpcError::new(ErrorCode::Invalid, format!("`{text}` is neither a port nor `address:port`"));
    let (host, port) = text.rsplit_once(':').unwrap_or(("localhost", text));
    let port: u16 = port.parse().ok().filter(|port| *port > 0).ok_or_else(invalid)?;
    let hosts = match host.trim_matches(['[', ']']) {
        "localhost" => LOCALHOST.to_vec(),
        host => vec![host.parse().map_err(|_| invalid())?],
    };
    Ok(hosts.into_iter().map(|host| SocketAddr::new(host, port)).collect())
}

/// Connects to the first address that accepts.
///
/// # Errors
/// Returns the error of the first address, with that address.
pub(crate) async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(err) => drop(failed.get_or_insert_with(|| io::Error::new(err.kind(), format!("{address}: {err}")))),
        }
    }
    Err(failed.unwrap_or_else(|| io::ErrorKind::InvalidInput.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_is_both_loopback_addresses() {
        let read = |text: &str| addresses(text).map(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>());
        for text in ["80", "localhost:80"] {
            assert_eq!(read(text).unwrap(), ["127.0.0.1:80", "[::1]:80"]);
        }
        assert_eq!(read("10.0.0.1:80").unwrap(), ["10.0.0.1:80"]);
        assert_eq!(read("[::1]:80").unwrap(), ["[::1]:80"]);
        for text in ["", "0", "db:80", "localhost:", "localhost:65536"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_server_on_the_ipv6_loopback_address_is_found() {
        let listener = tokio::net::TcpListener::bind("[::1]:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        connect(&addresses(&format!("localhost:{port}")).unwrap()).await.unwrap();
        drop(listener);
        let refused = connect(&addresses(&port.to_string()).unwrap()).await.unwrap_err();
        assert!(refused.to_string().starts_with("127.0.0.1:"), "{refused}");
    }
}
