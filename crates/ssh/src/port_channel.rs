//! A port in the container as a channel: `ssh -L` and `-D`.

use std::net::IpAddr;

use coracle::PersonSession;
use coracle_client::join_address;
use russh::ChannelWriteHalf;
use russh::server::Msg;
use tokio_util::sync::CancellationToken;

use crate::channel_input::ChannelInput;
use crate::input_gate::ChannelWriter;

/// The client's target as an address in the container. There is no resolver: a host is an address or `localhost`.
pub(crate) fn address(host: &str, port: u32) -> Option<(String, u16)> {
    let port = u16::try_from(port).ok().filter(|it| *it > 0)?;
    let address = match host {
        "localhost" | "" => format!("localhost:{port}"),
        host => match host.parse::<IpAddr>().ok()? {
            IpAddr::V4(address) => format!("{address}:{port}"),
            IpAddr::V6(address) => format!("[{address}]:{port}"),
        },
    };
    Some((address, port))
}

/// Connects a channel to an address until one side ends it.
pub(crate) async fn run(
    session: PersonSession,
    address: String,
    input: ChannelInput,
    write: ChannelWriteHalf<Msg>,
    cancel: CancellationToken,
) {
    let to = ChannelWriter::new(Box::pin(write.make_writer()), input.gate());
    let joined = Box::pin(join_address(&session.link, input, to, session.user(), &address));
    if let Some(Err(err)) = cancel.run_until_cancelled(joined).await {
        tracing::warn!(%address, %err, "a connection to a port of a container failed");
    }
    // Errors are ignored, because the client may have disconnected.
    let _ = write.close().await;
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn a_host_is_an_address_or_this_container() {
        let known = |host, port| address(host, port).map(|it| it.0);
        assert_eq!(known("localhost", 80).as_deref(), Some("localhost:80"));
        assert_eq!(known("10.0.0.7", 80).as_deref(), Some("10.0.0.7:80"));
        assert_eq!(known("::1", 80).as_deref(), Some("[::1]:80"));
        assert_eq!((known("db", 80), known("localhost", 0), known("localhost", 70_000)), (None, None, None));
    }
}
