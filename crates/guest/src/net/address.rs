//! Addresses that callers write.

use crate::protocol::{ErrorCode, RpcError};

/// A static program has no resolver, so the host is an address, or `localhost`.
pub(crate) fn address(text: &str) -> Result<(String, u16), RpcError> {
    let invalid = || RpcError::new(ErrorCode::Invalid, format!("`{text}` is no port and no `address:port`"));
    let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
    let host = match host.trim_matches(['[', ']']) {
        "localhost" => "127.0.0.1",
        host => host,
    };
    let address: std::net::IpAddr = host.parse().map_err(|_| invalid())?;
    Ok((address.to_string(), port.parse().ok().filter(|it| *it > 0).ok_or_else(invalid)?))
}
