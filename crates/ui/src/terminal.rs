//! A terminal of a container over a WebSocket.
//!
//! The page first sends a [`TerminalRequest`] as text. Then binary messages are keys, and text is a new size. It
//! receives output as binary messages, and text for everything else: the terminal's id, the end of earlier output, the
//! end of the command.

use std::collections::VecDeque;

use coracle::Effect;
use coracle::person_terminal::{enter, guest_link, may_join_root};
use coracle_client::{AttachOptions, Link, TerminalOutputPiece};
use coracle_context::{Code, Context, Failure, audit};
use coracle_lifecycle::{ManagedContainer, OnTerminal, exec_on_terminal};
use coracle_prepare::Process;
use coracle_protocol::ExecStatus;
use coracle_transport::{HttpResponse, refusal};
use coracle_types::{Handle, JobId, TerminalSize};
use futures_util::{SinkExt, Stream, StreamExt};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};
use tokio_util::task::TaskTracker;

/// Maximum size of earlier output that a page gets when it attaches again.
const REPLAY: u64 = 256 << 10;

/// Number of buffered chunks of input and output.
const PIECES: usize = 8;

/// Maximum size of a message of the page, for pasted text.
const MESSAGE: usize = 1 << 20;

/// Maximum size of keys that wait for the program inside.
const UNREAD: usize = 4 << 20;

/// The value of `TERM` inside.
const KIND: &str = "xterm-256color";

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The request of the page.
#[derive(Debug, Deserialize)]
struct TerminalRequest {
    container: String,
    /// The id of an open terminal; default: the newest one, or a new one.
    terminal: Option<String>,
    #[serde(default)]
    new: bool,
    #[serde(flatten)]
    size: PageSize,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct PageSize {
    cols: u16,
    rows: u16,
}

impl From<PageSize> for TerminalSize {
    fn from(size: PageSize) -> Self {
        Self { cols: size.cols.clamp(2, 1000), rows: size.rows.clamp(1, 1000) }
    }
}

/// Lists the independent terminals of a container, oldest first.
pub(crate) async fn list(process: &Process, container: &str) -> Map<String, Value> {
    listed(&process.context, container).await.unwrap_or_else(|failure| failure.answer(Some("terminals")))
}

async fn listed(cx: &Context, container: &str) -> Result<Map<String, Value>, Failure> {
    let handle = Handle::parse(container).map_err(|err| Failure::name("container", err))?;
    let mut found = enter(cx, &handle, false).await?;
    let open = guest_link(cx, &mut found).await?.terminals().await?;
    let own = open.iter().filter(|terminal| !terminal.job.foreground).map(|terminal| {
        json!({ "terminal": terminal.job.job, "command": terminal.job.command, "began_ms": terminal.job.began_ms })
    });
    Ok(Map::from_iter([("success".to_owned(), true.into()), ("terminals".to_owned(), own.collect())]))
}

/// Answers the handshake, and serves the terminal in a separate task.
pub(crate) fn upgrade(process: &Process, calls: &TaskTracker, mut request: Request<Incoming>) -> HttpResponse {
    let headers = request.headers();
    let is_websocket = headers.get(UPGRADE).is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let accept = headers.get(SEC_WEBSOCKET_KEY).map(|it| derive_accept_key(it.as_bytes()));
    let accept = accept.and_then(|it| HeaderValue::from_str(&it).ok()).filter(|_| is_websocket);
    let Some(accept) = accept else { return refusal(StatusCode::BAD_REQUEST, "this is no handshake of a WebSocket") };
    let (upgraded, cx) = (hyper::upgrade::on(&mut request), process.context.clone());
    calls.spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let config = WebSocketConfig::default().max_message_size(Some(MESSAGE)).max_frame_size(Some(MESSAGE));
        let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
        let last = match Box::pin(serve(&cx, &mut socket)).await {
            Ok(Some(end)) => json!({ "end": end.code }),
            Ok(None) => return,
            Err(failure) => json!({ "failure": failure.answer(Some("attach")) }),
        };
        // An error only means that the page was closed.
        let _ = socket.send(text(&last)).await;
        let _ = socket.close(None).await;
    });
    let mut response = refusal(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    response
}

fn text(value: &Value) -> Message {
    Message::text(value.to_string())
}

/// A terminal that the page attaches to.
struct ChosenTerminal {
    job: JobId,
    /// Bytes that it had printed.
    printed: u64,
    root: bool,
}

/// `None` if the page was closed; the terminal continues.
async fn serve(cx: &Context, socket: &mut Socket) -> Result<Option<ExecStatus>, Failure> {
    let Some(Ok(Message::Text(request))) = socket.next().await else { return Ok(None) };
    let request: TerminalRequest =
        serde_json::from_str(&request).map_err(|err| Failure::invalid("terminal", err.to_string()))?;
    let handle = Handle::parse(&request.container).map_err(|err| Failure::name("container", err))?;
    let mut found = enter(cx, &handle, false).await?;
    let link = guest_link(cx, &mut found).await?;
    let open = request.choose(&link).await?;
    if let Some(open) = open.as_ref().filter(|it| it.root) {
        may_join_root(cx, &found.record, open.job.as_str())?;
    }
    let args = json!({ "container": request.container, "terminal": open.as_ref().map(|it| it.job.as_str()) });
    let intent = audit::intent(cx, "attach", Effect::Mutating, args.as_object().unwrap_or(&Map::new())).await?;
    let done = async {
        let (sender, sizes) = watch::channel(request.size.into());
        let terminal = match open {
            Some(open) => open,
            None => start(cx, &found, &link, sizes.clone()).await?,
        };
        join(cx, socket, &link, &terminal, sender, sizes).await
    };
    let done = Box::pin(done).await;
    let result = done.as_ref().map(|end| Map::from_iter([("exit".to_owned(), json!(end.as_ref().map(|it| it.code)))]));
    intent.finish(result.as_ref().map_err(|failure| *failure)).await;
    done
}

impl TerminalRequest {
    /// Returns the requested terminal, else the newest independent one: an agent's shell is only attached by its id.
    async fn choose(&self, link: &Link) -> Result<Option<ChosenTerminal>, Failure> {
        if self.new {
            return Ok(None);
        }
        let open = link.terminals().await?;
        let info = match &self.terminal {
            Some(id) => open.iter().find(|it| it.job.job == *id),
            None => open.iter().rev().find(|it| !it.job.foreground),
        };
        let chosen = |info: &coracle_protocol::TerminalInfo| {
            let job = JobId::parse(&info.job.job).map_err(Failure::internal)?;
            Ok(ChosenTerminal { job, printed: info.job.end.stdout, root: info.job.root })
        };
        info.map(chosen).transpose()
    }
}

/// Starts a shell on a terminal that nothing is attached to yet.
async fn start(
    cx: &Context,
    found: &ManagedContainer,
    link: &Link,
    sizes: watch::Receiver<TerminalSize>,
) -> Result<ChosenTerminal, Failure> {
    let on = OnTerminal { as_root: false, words: &[], workdir: None, kind: Some(KIND) };
    let mut exec = exec_on_terminal(found, &on)?;
    exec.env.insert("TERM".into(), KIND.into());
    exec.terminal = Some(sizes);
    let id = link.start_on_terminal(exec, Some(cx.config.jobs.max_running)).await?.job;
    Ok(ChosenTerminal { job: JobId::parse(&id).map_err(Failure::internal)?, printed: 0, root: false })
}

/// Forwards keys and output until the command ends or the page is closed.
async fn join(
    cx: &Context,
    socket: &mut Socket,
    link: &Link,
    terminal: &ChosenTerminal,
    sizes: watch::Sender<TerminalSize>,
    size: watch::Receiver<TerminalSize>,
) -> Result<Option<ExecStatus>, Failure> {
    let ((keys, typed), (output, pieces)) = (mpsc::channel(PIECES), mpsc::channel(PIECES));
    let options = AttachOptions { job: terminal.job.clone(), sizes: size, replay: REPLAY, keys: typed, output };
    let (mut sink, mut messages) = socket.split();
    let greeting = json!({ "terminal": terminal.job.as_str() });
    let showing = async {
        sink.send(text(&greeting)).await?;
        show(&mut sink, pieces, terminal.printed).await
    };
    tokio::select! {
        // Output that arrived before the end is sent first.
        (end, _) = async { tokio::join!(link.attach(options), showing) } => Ok(end?),
        closed = typing(&mut messages, &keys, &sizes) => closed.map(|()| None),
        () = cx.call.cancel.cancelled() => Ok(None),
    }
}

/// Forwards keys and sizes until the page is closed. Keys that the program does not read yet wait here, so that a new
/// size and the end of the page are still noticed.
///
/// # Errors
/// `limit_reached` if more keys wait than [`UNREAD`].
async fn typing(
    messages: &mut (impl Stream<Item = Result<Message, SocketError>> + Unpin),
    keys: &mpsc::Sender<Vec<u8>>,
    sizes: &watch::Sender<TerminalSize>,
) -> Result<(), Failure> {
    let (mut waiting, mut unread) = (VecDeque::<Vec<u8>>::new(), 0);
    loop {
        tokio::select! {
            permit = keys.reserve(), if !waiting.is_empty() => {
                // The command has ended, which the other side of the terminal reports.
                let Ok(permit) = permit else { return std::future::pending().await };
                if let Some(bytes) = waiting.pop_front() {
                    unread -= bytes.len();
                    permit.send(bytes);
                }
            }
            message = messages.next() => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    unread += bytes.len();
                    if unread > UNREAD {
                        return Err(not_read());
                    }
                    waiting.push_back(bytes.to_vec());
                }
                Some(Ok(Message::Text(size))) => {
                    if let Ok(size) = serde_json::from_str::<PageSize>(&size) {
                        sizes.send_replace(size.into());
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Ok(()),
            },
        }
    }
}

fn not_read() -> Failure {
    let message = format!("the program in the terminal does not read its input: {} MiB wait", UNREAD >> 20);
    Failure::new(Code::LimitReached, message)
        .detail("limit", UNREAD)
        .hint("attach again; unread input is lost, and the program continues")
}

/// Sends output as it arrives, and reports once that all earlier output was sent.
async fn show(
    sink: &mut (impl SinkExt<Message, Error = SocketError> + Unpin),
    mut pieces: mpsc::Receiver<TerminalOutputPiece>,
    printed: u64,
) -> Result<(), SocketError> {
    let mut is_replayed = printed == 0;
    let replayed = || text(&json!({ "replayed": true }));
    if is_replayed {
        sink.send(replayed()).await?;
    }
    while let Some(TerminalOutputPiece { offset, bytes, .. }) = pieces.recv().await {
        let end = offset + bytes.len() as u64;
        sink.send(Message::binary(bytes)).await?;
        if !is_replayed && end >= printed {
            is_replayed = true;
            sink.send(replayed()).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn keys_that_the_program_does_not_read_delay_neither_a_new_size_nor_the_end_of_the_page() {
        let (keys, mut typed) = mpsc::channel(PIECES);
        let (sizes, size) = watch::channel(TerminalSize { cols: 80, rows: 24 });
        let key = |at: usize| Ok(Message::binary(vec![u8::try_from(at).unwrap()]));
        let pressed = 3 * PIECES;
        let mut messages: Vec<_> = (0..pressed).map(key).collect();
        messages.push(Ok(Message::text(r#"{"cols":120,"rows":40}"#)));
        let mut page = futures_util::stream::iter(messages);
        let ended = timeout(Duration::from_secs(60), typing(&mut page, &keys, &sizes)).await;
        ended.expect("the end of the page is seen").unwrap();
        assert_eq!(size.borrow().cols, 120);
        // A program that reads late gets all of them, in their order.
        let mut page = futures_util::stream::iter((0..pressed).map(key)).chain(futures_util::stream::once(pending()));
        let read = async {
            for _ in 0..PIECES {
                typed.recv().await.unwrap();
            }
            let mut late = Vec::new();
            while late.len() < pressed {
                late.extend(typed.recv().await.unwrap());
            }
            late
        };
        let expected: Vec<u8> = (0..pressed).map(|it| u8::try_from(it).unwrap()).collect();
        tokio::select! {
            ended = typing(&mut page, &keys, &sizes) => panic!("{ended:?}"),
            late = read => assert_eq!(late, expected),
        }
    }

    #[tokio::test]
    async fn more_keys_than_can_wait_are_an_error() {
        let (keys, _typed) = mpsc::channel(PIECES);
        let (sizes, _size) = watch::channel(TerminalSize { cols: 80, rows: 24 });
        let pastes = (0..=UNREAD / MESSAGE).map(|_| Ok(Message::binary(vec![b'x'; MESSAGE])));
        let mut page = futures_util::stream::iter(pastes);
        // One that has room takes up to `PIECES` of them.
        for _ in 0..PIECES {
            keys.send(Vec::new()).await.unwrap();
        }
        let failure = typing(&mut page, &keys, &sizes).await.unwrap_err();
        assert_eq!(failure.code, Code::LimitReached);
    }
}
