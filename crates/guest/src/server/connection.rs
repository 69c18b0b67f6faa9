//! One connection: reads and writes frames, and runs a task for each channel.
//!
//! **Invariant:** received bytes are limited by reservations: a caller that sends more is disconnected, and a call that
//! needs more than the quota allows is refused.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::protocol::call::CallInfo;
use crate::protocol::calls::find_call;
use crate::protocol::mux::{Announcement, Delivery, Part, PushOutcome, Violation};
use crate::protocol::{
    ErrorCode, FirstMessage, GuestMessage, Hello, HostMessage, MAX_HEADER, RpcError, VERSION, WINDOW,
};
use crate::server::channel::{ChannelState, Channels, Direct, ReplySender, busy, inbox};
use crate::server::codec::{self, Frame};
use crate::server::dispatch::{CallContext, Caller, Channel, OpenCall, check_scope, handle};
use crate::server::quota::{Quota, Reservation};
use crate::server::services::Supervisor;

/// Queued outgoing frames. Each contains at most [`CHUNK`](crate::protocol::CHUNK) bytes of data.
const QUEUE: usize = 64;

/// Bytes that are written at once.
const BATCH: usize = 256 << 10;

/// Time to send the last message to a caller that is disconnected.
const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves one host until it disconnects.
///
/// # Errors
/// Fails if the host violates the protocol or the connection breaks.
pub async fn serve(
    supervisor: Arc<Supervisor>,
    from: impl AsyncRead + Send + Unpin,
    to: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), codec::Error> {
    serve_caller(supervisor, (from, to), Arc::default(), Caller::Host).await
}

/// As [`serve`], on a socket and for any caller. Threads write short replies directly.
pub(crate) async fn serve_socket(
    supervisor: Arc<Supervisor>,
    stream: UnixStream,
    caller: Caller,
) -> Result<(), codec::Error> {
    let direct = Arc::new(Direct::new(&stream));
    let (from, to) = stream.into_split();
    serve_caller(supervisor, (BufReader::new(from), to), direct, caller).await
}

async fn serve_caller(
    supervisor: Arc<Supervisor>,
    (mut from, mut to): (impl AsyncRead + Send + Unpin, impl AsyncWrite + Send + Unpin + 'static),
    direct: Arc<Direct>,
    caller: Caller,
) -> Result<(), codec::Error> {
    if !handshake(&supervisor, &mut from, &mut to, &caller).await? {
        return Ok(());
    }
    let (messages, queue) = mpsc::channel(QUEUE);
    let mut writing = tokio::spawn(write_all(queue, to, direct.clone()));
    let quota = match caller {
        Caller::Host => supervisor.quotas.host(),
        Caller::Root => supervisor.quotas.root(),
        Caller::Worker(_) => supervisor.quotas.worker(),
    };
    let cx = CallContext { supervisor, caller, pending_secrets: Arc::default() };
    let connection = Connection { cx, messages: messages.clone(), direct, quota, channels: Channels::new() };
    let result = connection.listen(&mut from).await;
    match &result {
        // Queued replies are still written, unless the peer has disconnected.
        Ok(()) => {
            drop(messages);
            let _ = writing.await;
        }
        Err(why) => {
            let last = Frame::new(0, GuestMessage::Failed(RpcError::new(ErrorCode::Invalid, why.to_string())));
            let send_last = async {
                let _ = messages.send(last).await;
                drop(messages);
                (&mut writing).await
            };
            if timeout(LAST_MESSAGE_TIMEOUT, send_last).await.is_err() {
                writing.abort();
            }
        }
    }
    result
}

/// Exchanges greetings with a caller. Returns `false` if it disconnected without one.
///
/// # Errors
/// Fails if the caller has another protocol version, or does not greet; the error is also sent to the caller.
async fn handshake(
    supervisor: &Supervisor,
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    caller: &Caller,
) -> Result<bool, codec::Error> {
    let mut bytes = Vec::new();
    let greeted = match codec::read::<FirstMessage>(from).await {
        Ok(None) => return Ok(false),
        Ok(Some(Frame { head: FirstMessage::Hello(hello), .. })) => {
            let ours = Hello::of_guest(hello.nonce, supervisor.run_id().to_owned());
            let ours = Hello { locked: supervisor.boot_id_if_locked(), ..ours };
            Frame::new(0, FirstMessage::Hello(ours)).write_to(&mut bytes);
            if hello.version == VERSION {
                let retention = hello.keep.filter(|_| matches!(caller, Caller::Host));
                if let Some(retention) = retention {
                    supervisor.jobs.set_retention(retention);
                }
                Ok(true)
            } else {
                let (theirs, hint) =
                    (hello.version, "create the container again, or use the version of Coracle that created it");
                Err(protocol_error(format!(
                    "the host speaks version {theirs} of the protocol, this guest {VERSION}: {hint}"
                )))
            }
        }
        Ok(Some(_)) => Err(protocol_error("the first message is not a greeting")),
        Err(err) => Err(err),
    };
    if let Err(why) = &greeted {
        let why = RpcError::new(ErrorCode::Invalid, why.to_string());
        Frame::new(0, FirstMessage::Failed(why)).write_to(&mut bytes);
    }
    let write = async {
        to.write_all(&bytes).await?;
        to.flush().await
    };
    match timeout(LAST_MESSAGE_TIMEOUT, write).await {
        Ok(Ok(())) => greeted,
        _ => greeted.and(Ok(false)),
    }
}

async fn write_all(
    mut queue: mpsc::Receiver<Frame<GuestMessage>>,
    mut to: impl AsyncWrite + Unpin,
    direct: Arc<Direct>,
) {
    let mut bytes = Vec::new();
    loop {
        let (next, over) = tokio::select! {
            next = queue.recv() => { let over = next.is_none(); (next, over) }
            () = direct.wait_for_rest() => (None, false),
        };
        let mut rest = direct.turn().await;
        bytes.append(&mut rest);
        if let Some(frame) = next {
            frame.write_or_fail(&mut bytes);
        }
        while let Some(frame) = (bytes.len() < BATCH).then(|| queue.try_recv().ok()).flatten() {
            frame.write_or_fail(&mut bytes);
        }
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() || over {
            return;
        }
        bytes.clear();
        bytes.shrink_to(BATCH);
    }
}

struct Connection {
    cx: CallContext,
    messages: mpsc::Sender<Frame<GuestMessage>>,
    direct: Arc<Direct>,
    quota: Quota,
    channels: Channels,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.channels.end_all();
        self.cx.end();
    }
}

/// The reserved bytes of a call.
struct CallReservation {
    info: &'static CallInfo,
    /// Held as long as its channel is open: its header, and a window if it takes data.
    channel: Reservation,
    /// Held for its request.
    request: Reservation,
}

impl Connection {
    async fn listen(self, from: &mut (impl AsyncRead + Unpin)) -> Result<(), codec::Error> {
        while let Some(Frame { channel, head, payload }) = codec::read::<HostMessage>(from).await? {
            let part = match head {
                HostMessage::Open { call, bytes } => {
                    self.open(channel, &call, bytes as usize, payload)?;
                    continue;
                }
                HostMessage::WindowUpdate(credit) => Part::WindowUpdate(credit),
                HostMessage::PayloadChunk => Part::Chunk,
                HostMessage::Data { last } => Part::Data { last },
                HostMessage::Cancel | HostMessage::Resize(_) | HostMessage::CloseChannel => Part::Message,
            };
            self.receive(channel, part, (head, payload))?;
        }
        Ok(())
    }

    /// Handles a message on an open channel.
    fn receive(&self, channel: u32, part: Part, message: (HostMessage, Vec<u8>)) -> Result<(), codec::Error> {
        let (head, payload) = message;
        match self.channels.lock().receive(channel, part, payload.len() as u64).map_err(violation)? {
            Delivery::Deliver(state) if state.inbox.push(head, payload) == PushOutcome::Full => {
                return Err(violation(Violation::Backlog(channel)));
            }
            Delivery::Credit(state) => state.writable.notify_one(),
            Delivery::Deliver(_) | Delivery::Discard => {}
        }
        Ok(())
    }

    fn open(&self, number: u32, call: &str, bytes: usize, first: Vec<u8>) -> Result<(), codec::Error> {
        let admitted = self.admit(call, bytes);
        let (sender, mut inbox) = inbox();
        let (writable, channels) = (Arc::default(), self.channels.clone());
        let takes_data = admitted.as_ref().is_ok_and(|it| it.info.streams.has_input());
        let opening = Announcement { announced: bytes as u64, first: first.len() as u64, takes_data };
        let state = ChannelState { inbox: sender, writable: Arc::clone(&writable) };
        channels.lock().accept(number, opening, state).map_err(violation)?;
        let out = ReplySender {
            channel: number,
            messages: self.messages.clone(),
            direct: self.direct.clone(),
            channels: channels.clone(),
            writable,
            quota: self.quota.clone(),
            ended: Arc::default(),
        };
        match admitted {
            Ok(CallReservation { info, channel, request }) => {
                inbox.hold_payload(request);
                let call = OpenCall { cx: self.cx.clone(), first, bytes, channel: Channel { inbox, out } };
                let handling = handle(info.name, call);
                tokio::spawn(async move {
                    handling.await;
                    channels.lock().end(number);
                    drop(channel);
                });
            }
            Err(failure) => {
                channels.lock().close(number);
                tokio::spawn(async move {
                    out.send_failure(failure).await;
                    channels.lock().end(number);
                });
            }
        }
        Ok(())
    }

    /// Checks that the guest knows the call and the caller may make it, and reserves the bytes that it sends.
    fn admit(&self, call: &str, bytes: usize) -> Result<CallReservation, RpcError> {
        let info = find_call(call)?;
        check_scope(&self.cx.caller, info)?;
        self.cx.supervisor.check_unlocked(info)?;
        if bytes > info.request_limit {
            let message = format!("the request has {bytes} bytes; the limit is {}", info.request_limit);
            return Err(RpcError::new(ErrorCode::TooLong, message));
        }
        let window = if info.streams.has_input() { WINDOW as usize } else { 0 };
        let reserve = |bytes| self.quota.reserve(bytes).ok_or_else(busy);
        Ok(CallReservation { info, channel: reserve(MAX_HEADER + window)?, request: reserve(bytes)? })
    }
}

fn violation(violation: Violation) -> codec::Error {
    protocol_error(violation.to_string())
}

fn protocol_error(what: impl Into<String>) -> codec::Error {
    codec::Error::Protocol(what.into())
}
