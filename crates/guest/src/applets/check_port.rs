//! Tries a port once, as a separate command, so that the attempt has a command's time limit and user.

use std::io;

use crate::net::address::{addresses, connect};

/// Connects to a port, given as `8080` or `address:port`, and disconnects. It has no timeout of its own.
///
/// # Errors
/// Fails if the text is not a port, or if the connection is refused.
pub async fn port(text: &str) -> io::Result<()> {
    let addresses = addresses(text).map_err(|fault| io::Error::other(fault.message))?;
    connect(&addresses).await.map(drop)
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn a_port_is_open_only_while_a_program_listens() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        super::port(&port).await.unwrap();
        drop(listener);
        assert!(super::port(&port).await.unwrap_err().to_string().starts_with("127.0.0.1:"));
        assert!(super::port("db:80").await.is_err());
    }
}
