//! Connects the container to the host's proxy.

use tokio::io::AsyncReadExt as _;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::Notify;

use crate::net::proxy_ports::Upstream;
use crate::os::blocking::run_blocking;
use crate::protocol::body::encode;
use crate::protocol::relay::{API_PORT, AcceptTunnel, EGRESS_PORT, MAX_TOKEN, OpenProxyPorts};
use crate::protocol::{CHUNK, ErrorCode, GuestMessage, HostMessage, RpcError};
use crate::server::channel::{ReplySender, RequestReceiver, Sender, closed, inbox as queue};
use crate::server::dispatch::{CallContext, Channel, StreamHandler, UnaryHandler, UnaryReply};
use crate::server::exec::pump;
use crate::server::session_env::check_size;

impl UnaryHandler for OpenProxyPorts {
    const IS_FINISHED: bool = true;

    /// Stores the token and git's configuration, and starts to listen.
    async fn execute(self, cx: &CallContext, _: &ReplySender) -> Result<UnaryReply<()>, RpcError> {
        let Self { token, git_config, by_link, at } = self;
        check_size(token.len() + git_config.len())?;
        if !(1..=MAX_TOKEN).contains(&token.len()) || !token.iter().all(u8::is_ascii_graphic) {
            return Err(no_token());
        }
        if !git_config.is_empty() {
            let supervisor = cx.supervisor.clone();
            run_blocking(move || supervisor.secrets.put_git_config(&git_config)).await??;
        }
        let upstream = match at {
            Some(at) => Upstream::At(at),
            None if by_link => Upstream::Link,
            None => Upstream::Sockets,
        };
        let set = cx.supervisor.proxy_ports.open(&token, upstream).await;
        set.map_err(|err| RpcError::new(ErrorCode::Io, format!("cannot listen for the proxy: {err}")))?;
        Ok(UnaryReply::Reply(()))
    }
}

fn no_token() -> RpcError {
    RpcError::new(ErrorCode::Invalid, format!("a token must have 1 to {MAX_TOKEN} visible characters"))
}

impl StreamHandler for AcceptTunnel {
    /// Waits for a connection, and then forwards it.
    async fn serve(self, cx: &CallContext, Channel { mut inbox, out }: Channel) {
        if ![API_PORT, EGRESS_PORT].contains(&self.port) {
            return out.send_failure(RpcError::new(ErrorCode::Invalid, "not a port of the proxy")).await;
        }
        let tunnels = cx.supervisor.proxy_ports.tunnels.queue(self.port);
        let connection = tunnels.wait();
        let connection = tokio::select! {
            accepted = connection => accepted.ok(),
            // The host sends no message before that, except to close the channel.
            _ = inbox.recv() => None,
        };
        let Some((stream, preamble, _permit)) = connection else { return out.send_failure(closed()).await };
        let _taken = tunnels.taken.clone();
        out.send_event(&()).await;
        let (from, to) = stream.into_split();
        let (data, pieces) = queue();
        let all_written = Notify::new();
        let sending = async {
            if send(from, preamble, &out).await {
                all_written.notified().await;
            }
        };
        let writing = async {
            pump(&mut Some(Box::new(to)), pieces, &out).await;
            all_written.notify_one();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = sending => {}
            () = writing => {}
            () = forward_data(inbox, data) => {}
        }
        out.send_reply(&encode(&())).await;
    }
}

/// Sends the data of the program until its end. Returns whether all of it was sent.
async fn send(mut from: OwnedReadHalf, preamble: Vec<u8>, out: &ReplySender) -> bool {
    let mut sent = out.send_data(GuestMessage::Data { last: false }, preamble).await;
    let (mut piece, mut last) = (vec![0; CHUNK], false);
    while sent && !last {
        let read = from.read(&mut piece).await.unwrap_or(0);
        last = read == 0;
        sent = out.send_data(GuestMessage::Data { last }, piece[..read].to_vec()).await;
    }
    sent
}

/// If a program does not read, the end of the channel must still be received, so its data is queued separately: at most
/// one window.
async fn forward_data(mut inbox: RequestReceiver, data: Sender) {
    while let Some((head @ HostMessage::Data { .. }, piece)) = inbox.recv().await {
        data.push(head, piece);
    }
}
