//! The ways to the host's proxy, as the host asks for them.

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

    /// Takes token and text, and listens.
    async fn answer(self, cx: &CallContext, _: &ReplySender) -> Result<UnaryReply<()>, RpcError> {
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
    RpcError::new(ErrorCode::Invalid, format!("a token has 1 to {MAX_TOKEN} visible characters"))
}

impl StreamHandler for AcceptTunnel {
    /// A channel that waits for a connection, and then is one.
    async fn serve(self, cx: &CallContext, Channel { mut inbox, out }: Channel) {
        if ![API_PORT, EGRESS_PORT].contains(&self.port) {
            return out.send_failure(RpcError::new(ErrorCode::Invalid, "that is no port of a relay")).await;
        }
        let line = cx.supervisor.proxy_ports.tunnels.queue(self.port);
        let waiting = line.wait();
        let handed = tokio::select! {
            handed = waiting => handed.ok(),
            // Nothing is said to it before: the host wants it no more, or is gone.
            _ = inbox.recv() => None,
        };
        let Some((stream, preamble, _place)) = handed else { return out.send_failure(closed()).await };
        let _taken = line.taken.clone();
        out.send_event(&()).await;
        let (from, to) = stream.into_split();
        let (data, pieces) = queue();
        let all = Notify::new();
        let sending = async {
            if send(from, preamble, &out).await {
                all.notified().await;
            }
        };
        let writing = async {
            pump(&mut Some(Box::new(to)), pieces, &out).await;
            all.notify_one();
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

/// What the program says, to its end. Whether all of it was heard.
async fn send(mut from: OwnedReadHalf, preamble: Vec<u8>, out: &ReplySender) -> bool {
    let mut heard = out.send_data(GuestMessage::Data { last: false }, preamble).await;
    let (mut piece, mut last) = (vec![0; CHUNK], false);
    while heard && !last {
        let read = from.read(&mut piece).await.unwrap_or(0);
        last = read == 0;
        heard = out.send_data(GuestMessage::Data { last }, piece[..read].to_vec()).await;
    }
    heard
}

/// A program that does not read must not keep the end of the channel from being heard, so what it is sent goes another way:
/// never more than a window of it.
async fn forward_data(mut inbox: RequestReceiver, data: Sender) {
    while let Some((head @ HostMessage::Data { .. }, piece)) = inbox.recv().await {
        data.push(head, piece);
    }
}
