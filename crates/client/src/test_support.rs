//! A scripted guest for tests, and one that behaves like a real one.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::{fmt, io};

use async_trait::async_trait;
use coracle_protocol::body::{decode, encode};
use coracle_protocol::call::Call;
use coracle_protocol::relay::AcceptTunnel;
use coracle_protocol::{
    AttachRequest, CHUNK, ErrorCode, ExecRequest, ExecStarted, ExecState, ExecStatus, FileRef, FirstMessage, GetFile,
    GuestMessage, Hello, HostMessage, RpcError, StatFile, Stream, TerminalSize, WaitRequest,
};
use coracle_types::Result;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf, WriteHalf};

use crate::codec::{self, Frame};
use crate::dial::{Dial, GuestStream, Transport};
use crate::link::{Link, LinkSettings};

/// The guest's end of one connection.
pub(crate) struct Guest {
    reader: ReadHalf<DuplexStream>,
    pub(crate) writer: WriteHalf<DuplexStream>,
}

/// A message of the host, with the requests that scripts inspect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request {
    Exec(ExecRequest),
    Attach(AttachRequest),
    Stat(FileRef),
    Get,
    Wait(WaitRequest),
    AcceptTunnel(u16),
    Other,
    Data { last: bool },
    WindowUpdate(u64),
    Cancel,
    CloseChannel,
    Resize(TerminalSize),
}

impl Request {
    fn of(message: &HostMessage, payload: &[u8]) -> Self {
        let call = match message {
            HostMessage::Open { call, .. } => call.as_str(),
            HostMessage::Data { last } => return Self::Data { last: *last },
            HostMessage::WindowUpdate(credit) => return Self::WindowUpdate(*credit),
            HostMessage::Cancel => return Self::Cancel,
            HostMessage::CloseChannel => return Self::CloseChannel,
            HostMessage::Resize(size) => return Self::Resize(*size),
            HostMessage::PayloadChunk => return Self::Other,
        };
        match call {
            ExecRequest::NAME => Self::Exec(decode(payload).unwrap()),
            AttachRequest::NAME => Self::Attach(decode(payload).unwrap()),
            StatFile::NAME => Self::Stat(decode::<StatFile>(payload).unwrap().at),
            GetFile::NAME => Self::Get,
            WaitRequest::NAME => Self::Wait(decode(payload).unwrap()),
            AcceptTunnel::NAME => Self::AcceptTunnel(decode::<AcceptTunnel>(payload).unwrap().port),
            _ => Self::Other,
        }
    }
}

/// A received call with its complete request.
#[derive(Debug)]
pub(crate) struct ReceivedCall {
    pub(crate) channel: u32,
    pub(crate) call: String,
    body: Vec<u8>,
}

impl ReceivedCall {
    pub(crate) fn decode<C: Call>(&self) -> C {
        decode(&self.body).unwrap()
    }
}

impl Guest {
    /// The host's next message; `None` if it has disconnected.
    pub(crate) async fn receive(&mut self) -> Option<Frame<Request>> {
        let Frame { channel, head, payload } = codec::read::<HostMessage>(&mut self.reader).await.ok().flatten()?;
        Some(Frame { channel, head: Request::of(&head, &payload), payload })
    }

    /// As [`receive`](Self::receive), without window updates.
    pub(crate) async fn receive_request(&mut self) -> Option<Frame<Request>> {
        loop {
            let frame = self.receive().await?;
            if !matches!(frame.head, Request::WindowUpdate(_)) {
                return Some(frame);
            }
        }
    }

    /// The next call, once its request is complete.
    pub(crate) async fn request(&mut self) -> Option<ReceivedCall> {
        loop {
            let frame = codec::read::<HostMessage>(&mut self.reader).await.ok().flatten()?;
            let (HostMessage::Open { call, bytes }, channel, mut body) = (frame.head, frame.channel, frame.payload)
            else {
                continue;
            };
            while body.len() < bytes as usize {
                body.extend(codec::read::<HostMessage>(&mut self.reader).await.ok().flatten()?.payload);
            }
            return Some(ReceivedCall { channel, call, body });
        }
    }

    /// The host's greeting.
    pub(crate) async fn hello(&mut self) -> Option<Hello> {
        match codec::read::<FirstMessage>(&mut self.reader).await.ok().flatten()?.head {
            FirstMessage::Hello(hello) => Some(hello),
            FirstMessage::Failed(_) => None,
        }
    }

    pub(crate) async fn send(&mut self, channel: u32, head: GuestMessage, payload: &[u8]) {
        let mut bytes = Vec::new();
        Frame { channel, head, payload: payload.to_vec() }.write_to(&mut bytes);
        let _ = self.writer.write_all(&bytes).await;
    }

    pub(crate) async fn event(&mut self, channel: u32, event: &impl serde::Serialize) {
        self.send(channel, GuestMessage::Event, &encode(event)).await;
    }

    /// A reply of one frame.
    pub(crate) async fn reply(&mut self, channel: u32, reply: &impl serde::Serialize) {
        let (head, body) = whole(reply);
        assert!(body.len() <= CHUNK);
        self.send(channel, head, &body).await;
    }

    pub(crate) async fn greet_with(&mut self, greeting: FirstMessage) {
        let mut bytes = Vec::new();
        Frame::new(0, greeting).write_to(&mut bytes);
        let _ = self.writer.write_all(&bytes).await;
    }

    /// Sends a valid greeting.
    pub(crate) async fn greet(&mut self, run: &str) {
        let Some(hello) = self.hello().await else { return };
        self.greet_with(FirstMessage::Hello(Hello::of_guest(hello.nonce, run.into()))).await;
    }

    /// Reads until the host disconnects.
    pub(crate) async fn idle(&mut self) {
        while self.receive().await.is_some() {}
    }
}

/// A reply of one frame.
pub(crate) fn whole(reply: &impl serde::Serialize) -> (GuestMessage, Vec<u8>) {
    let body = encode(reply);
    (GuestMessage::Reply { bytes: u32::try_from(body.len()).unwrap() }, body)
}

pub(crate) fn started_event(job: &str) -> ExecStarted {
    ExecStarted { job: job.into(), pid: 7, at_ms: 0 }
}

pub(crate) fn out(stream: Stream, offset: u64) -> GuestMessage {
    GuestMessage::Output { stream, offset }
}

pub(crate) fn ended(code: u8, stdout: u64, stderr: u64) -> ExecStatus {
    ExecStatus {
        state: ExecState::Exited,
        code: Some(code),
        signal: None,
        stdout,
        stderr,
        dropped: 0,
        left: 0,
        tree_ended: None,
        oom: false,
        ms: 5,
        kept: true,
    }
}

/// Passes the n-th connection to a script.
struct Scripted<S> {
    script: S,
    count: AtomicUsize,
    cut: Mutex<Cut>,
}

/// Bytes after which the first connection breaks, in each direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) to_guest: usize,
    pub(crate) from_guest: usize,
}

impl Cut {
    pub(crate) const NEVER: Self = Self { to_guest: usize::MAX, from_guest: usize::MAX };
}

impl<S> fmt::Debug for Scripted<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

#[async_trait]
impl<S, F> Dial for Scripted<S>
where
    S: Fn(usize, Guest) -> F + Send + Sync,
    F: Future<Output = ()> + Send + 'static,
{
    async fn dial(&self) -> Result<GuestStream> {
        let (host, guest) = tokio::io::duplex(32 << 10);
        let (reader, writer) = tokio::io::split(guest);
        tokio::spawn((self.script)(self.count.fetch_add(1, Ordering::Relaxed), Guest { reader, writer }));
        let cut = std::mem::replace(&mut *self.cut.lock().unwrap(), Cut::NEVER);
        let (reader, writer) = tokio::io::split(host);
        let (reader, writer) =
            (Limited { inner: reader, left: cut.from_guest }, Limited { inner: writer, left: cut.to_guest });
        Ok(GuestStream::plain(reader, writer, Transport::InProcess))
    }
}

/// A link to a guest that runs a script, which gets the number of the connection.
pub(crate) fn link<F>(script: impl Fn(usize, Guest) -> F + Send + Sync + 'static) -> Link
where
    F: Future<Output = ()> + Send + 'static,
{
    cut_link(Cut::NEVER, script)
}

/// As [`link`], with a first connection that breaks.
pub(crate) fn cut_link<F>(cut: Cut, script: impl Fn(usize, Guest) -> F + Send + Sync + 'static) -> Link
where
    F: Future<Output = ()> + Send + 'static,
{
    let dial = Scripted { script, count: AtomicUsize::new(0), cut: Mutex::new(cut) };
    Link::new(Arc::new(dial), LinkSettings::default())
}

/// Ends after `left` bytes.
struct Limited<T> {
    inner: T,
    left: usize,
}

impl<T: AsyncRead + Unpin> AsyncRead for Limited<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut part = into.take(self.left);
        let before = part.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, &mut part);
        let count = part.filled().len() - before;
        // `take` returns the unfilled part, so copy what was read into it.
        let filled = part.filled().to_vec();
        if polled.is_ready() {
            into.put_slice(&filled);
            self.left -= count;
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Limited<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.left == 0 {
            let _ = Pin::new(&mut self.inner).poll_shutdown(cx);
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let part = bytes.len().min(self.left);
        let polled = Pin::new(&mut self.inner).poll_write(cx, &bytes[..part]);
        if let Poll::Ready(Ok(count)) = polled {
            self.left -= count;
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// The state of a simulated guest over all connections.
#[derive(Debug, Default)]
pub(crate) struct Fixture {
    /// How many commands were started.
    pub(crate) started: usize,
    jobs: HashMap<String, SimulatedCommand>,
}

/// A simulated command: it reads its input to the end, and prints.
#[derive(Debug, Default)]
struct SimulatedCommand {
    input: Vec<u8>,
    whole: bool,
}

/// Standard output of a simulated command without input, in pieces of three bytes; with input, it prints the input.
pub(crate) const PRINTED: &[u8] = b"one two three";
/// Its standard error.
pub(crate) const COMPLAINED: &[u8] = b"oh";

/// Simulates a guest on one connection. It knows one command, which reads all of its input and then prints. As in a real
/// guest, the input ends with its connection.
pub(crate) async fn simulate_guest(world: Arc<Mutex<Fixture>>, mut guest: Guest) {
    guest.greet("a run").await;
    let mut channels: HashMap<u32, String> = HashMap::new();
    while let Some(Frame { channel, head, payload }) = guest.receive().await {
        match head {
            Request::Exec(ExecRequest { job, stdin, .. }) => {
                let fresh = {
                    let mut world = world.lock().unwrap();
                    let fresh = !world.jobs.contains_key(&job);
                    if fresh {
                        world.started += 1;
                        world.jobs.insert(job.clone(), SimulatedCommand { input: Vec::new(), whole: !stdin });
                    }
                    fresh
                };
                if !fresh {
                    guest.send(channel, GuestMessage::Failed(RpcError::new(ErrorCode::JobTaken, "taken")), b"").await;
                    continue;
                }
                guest.event(channel, &started_event(&job)).await;
                channels.insert(channel, job.clone());
                if !stdin {
                    print(&world, &job, channel, [0; 2], &mut guest).await;
                }
            }
            Request::Data { last } => {
                let Some(job) = channels.get(&channel).cloned() else { continue };
                let size = payload.len() as u64;
                {
                    let mut world = world.lock().unwrap();
                    let simulated = world.jobs.get_mut(&job).unwrap();
                    simulated.input.extend(payload);
                    simulated.whole = last;
                }
                guest.send(channel, GuestMessage::WindowUpdate(size), b"").await;
                if last {
                    print(&world, &job, channel, [0; 2], &mut guest).await;
                }
            }
            Request::Attach(AttachRequest { job, stdout, stderr, .. }) => {
                if world.lock().unwrap().jobs.contains_key(&job) {
                    guest.event(channel, &started_event(&job)).await;
                    print(&world, &job, channel, [stdout, stderr], &mut guest).await;
                } else {
                    guest.send(channel, GuestMessage::Failed(RpcError::new(ErrorCode::NoJob, "none")), b"").await;
                }
            }
            _ => {}
        }
    }
}

/// Sends output from these offsets on, then the end.
async fn print(world: &Mutex<Fixture>, job: &str, channel: u32, from: [u64; 2], guest: &mut Guest) {
    let input = world.lock().unwrap().jobs[job].input.clone();
    let printed = if input.is_empty() { PRINTED.to_vec() } else { input };
    for (stream, bytes, from) in [(Stream::Stdout, printed.as_slice(), from[0]), (Stream::Stderr, COMPLAINED, from[1])]
    {
        let mut offset = usize::try_from(from).unwrap();
        for piece in bytes[offset..].chunks(3) {
            guest.send(channel, out(stream, offset as u64), piece).await;
            offset += piece.len();
        }
    }
    guest.reply(channel, &ended(3, printed.len() as u64, COMPLAINED.len() as u64)).await;
}
