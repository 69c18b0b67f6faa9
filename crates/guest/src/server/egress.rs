//! The ways to the host's proxy, as the host asks for them.

use std::sync::Arc;

use tokio::io::AsyncReadExt as _;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::Notify;

use crate::net::proxy_ports::Leads;
use crate::os::blocking::apart;
use crate::protocol::relay::{API_PORT, EGRESS_PORT, MAX_TOKEN, OpenProxyPorts};
use crate::protocol::{CHUNK, CallReply, ErrorCode, GuestMessage, Request, RpcError};
use crate::server::channel::{Inbox, ReplySender, Sender, inbox as queue};
use crate::server::payload::{pump, within};
use crate::server::services::Supervisor;

/// Takes token and text, and says that it is done.
pub(crate) async fn relay(
    supervisor: &Arc<Supervisor>,
    ask: &OpenProxyPorts,
    (payload, mut inbox): (Vec<u8>, Inbox),
    out: &ReplySender,
) {
    let set = async {
        let bytes = within(payload, ask.bytes, &mut inbox).await?;
        let fits = |it: &usize| (1..=MAX_TOKEN).contains(it) && *it <= bytes.len();
        let Some(token) = Some(ask.token as usize).filter(fits) else { return Err(no_token()) };
        let (token, text) = bytes.split_at(token);
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(no_token());
        }
        if !text.is_empty() {
            let (supervisor, text) = (supervisor.clone(), text.to_vec());
            apart(move || supervisor.secrets.put_git_config(&text)).await??;
        }
        let leads = match ask.at {
            Some(at) => Leads::At(at),
            None if ask.by_link => Leads::Link,
            None => Leads::Sockets,
        };
        let set = supervisor.relays.take(token, leads).await;
        set.map_err(|err| RpcError::new(ErrorCode::Io, format!("cannot listen for the proxy: {err}")))?;
        Ok((GuestMessage::Answer(CallReply::Done), Vec::new()))
    };
    out.say_result(set.await).await;
}

fn no_token() -> RpcError {
    RpcError::new(ErrorCode::Invalid, format!("a token has 1 to {MAX_TOKEN} visible characters"))
}

/// A channel that waits for a connection, and then is one.
pub(crate) async fn outlet(supervisor: &Arc<Supervisor>, port: u16, mut inbox: Inbox, out: &ReplySender) {
    if ![API_PORT, EGRESS_PORT].contains(&port) {
        return out.say_result(Err(RpcError::new(ErrorCode::Invalid, "that is no port of a relay"))).await;
    }
    let line = supervisor.relays.outlets.of(port);
    let waiting = line.wait();
    let handed = tokio::select! {
        handed = waiting => handed.ok(),
        // Nothing is said to it before: the host wants it no more, or is gone.
        _ = inbox.recv() => None,
    };
    let Some((stream, preamble, _place)) = handed else {
        return out.say_result(Err(RpcError::new(ErrorCode::Invalid, "the channel was left"))).await;
    };
    let _taken = line.taken.clone();
    out.say(GuestMessage::Answer(CallReply::Done)).await;
    let (from, to) = stream.into_split();
    let (data, pieces) = queue();
    let all = Notify::new();
    let sending = async {
        if send(from, preamble, out).await {
            all.notified().await;
        }
    };
    let writing = async {
        pump(Box::new(to), pieces, out).await;
        all.notify_one();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = sending => {}
        () = writing => {}
        () = hear(inbox, data) => {}
    }
    out.say(GuestMessage::Answer(CallReply::Done)).await;
}

/// What the program says, to its end. Whether all of it was heard.
async fn send(mut from: OwnedReadHalf, preamble: Vec<u8>, out: &ReplySender) -> bool {
    let mut heard = out.say_data(GuestMessage::Data { last: false }, preamble).await;
    let (mut piece, mut last) = (vec![0; CHUNK], false);
    while heard && !last {
        let read = from.read(&mut piece).await.unwrap_or(0);
        last = read == 0;
        heard = out.say_data(GuestMessage::Data { last }, piece[..read].to_vec()).await;
    }
    heard
}

/// A program that does not read must not keep the end of the channel from being heard, so what it is sent goes another way:
/// never more than a window of it.
async fn hear(mut inbox: Inbox, data: Sender) {
    while let Some((head @ Request::Data { .. }, piece)) = inbox.recv().await {
        data.push(head, piece);
    }
}
