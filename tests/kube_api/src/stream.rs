//! `exec` and `attach`: channels over a WebSocket.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::FromRequestParts as _;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::Response;
use axum::http::request::Parts;
use coracle_types::{Chunk, Command, Exec, ExecOutput, Exit, Input, Stream};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::sync::{broadcast, mpsc};

use crate::cluster::Cluster;
use crate::kinds::Target;
use crate::query::Query;
use crate::runs::ContainerRun;
use crate::scheduler;
use crate::status::Refusal;
use crate::store::Key;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// Closes the channel that the next byte names.
const CLOSE: u8 = 255;

const V4: &str = "v4.channel.k8s.io";
const V5: &str = "v5.channel.k8s.io";

/// A request to exec or attach.
#[derive(Debug)]
pub(crate) struct StreamRequest<'a> {
    pub(crate) query: Query,
    /// Bytes of output after which it is cut.
    pub(crate) cut: Option<usize>,
    pub(crate) parts: &'a mut Parts,
}

/// The work that a stream is for.
struct Work {
    cluster: Arc<Cluster>,
    node: String,
    run: Arc<ContainerRun>,
    /// The arguments of an exec; empty to attach.
    words: Vec<String>,
    has_stdin: bool,
    cut: Option<usize>,
}

pub(crate) async fn serve(
    cluster: &Arc<Cluster>,
    target: &Target,
    request: StreamRequest<'_>,
) -> Result<Response<Body>, Refusal> {
    let work = work_of(cluster, target, &request)?;
    let upgrade = WebSocketUpgrade::from_request_parts(request.parts, &()).await;
    let upgrade = upgrade.map_err(|_| Refusal::bad_request("Upgrade request required"))?;
    let known: &[&'static str] = if cluster.options.closes_streams { &[V5, V4] } else { &[V4] };
    let upgrade = upgrade.protocols(known.iter().copied()).max_message_size(4 << 20);
    Ok(upgrade.on_upgrade(move |socket| exchange(socket, work)))
}

fn work_of(cluster: &Arc<Cluster>, target: &Target, request: &StreamRequest<'_>) -> Result<Work, Refusal> {
    let (namespace, name) =
        (target.namespace.as_deref().unwrap_or_default(), target.name.as_deref().unwrap_or_default());
    let pod = cluster.store.get(&Key::pod(namespace, name)).ok_or_else(|| Refusal::not_found("pods", name))?;
    let container = container_of(&pod, request.query.get("container"))?;
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if ["Succeeded", "Failed"].contains(&phase) {
        let message = format!("cannot exec into a container in a completed pod; current phase is {phase}");
        return Err(Refusal::bad_request(message));
    }
    let Some(node) = pod["spec"]["nodeName"].as_str() else {
        return Err(Refusal::bad_request(format!("pod {name} does not have a host assigned")));
    };
    if !scheduler::is_ready(cluster, node) {
        let message = "error dialing backend: dial tcp 10.98.0.11:10250: connect: connection refused";
        return Err(Refusal::new(500, "InternalError", message));
    }
    let is_attach = target.subresource.as_deref() == Some("attach");
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let run = cluster.run_of(uid).and_then(|it| it.get(&container));
    let Some(run) = run.filter(|it| !it.has_ended() && (is_attach || !it.is_init)) else {
        let message = format!("unable to upgrade connection: container not found (\"{container}\")");
        return Err(Refusal::new(500, "InternalError", message));
    };
    let words = request.query.all("command");
    if words.is_empty() && !is_attach {
        return Err(Refusal::bad_request("you must specify at least one command for the container"));
    }
    let words = if is_attach { Vec::new() } else { words };
    let has_stdin = request.query.is_set("stdin");
    Ok(Work { cluster: Arc::clone(cluster), node: node.to_owned(), run, words, has_stdin, cut: request.cut })
}

/// The name of the target container.
pub(crate) fn container_of(pod: &Value, container: &str) -> Result<String, Refusal> {
    let all = |list: &str| -> Vec<String> {
        let specs = pod["spec"][list].as_array().into_iter().flatten();
        specs.filter_map(|it| it["name"].as_str().map(str::to_owned)).collect()
    };
    let (main, init) = (all("containers"), all("initContainers"));
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    match container {
        "" if main.len() == 1 => Ok(main.concat()),
        "" => Err(Refusal::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            main.join(" ")
        ))),
        container if main.iter().chain(&init).any(|it| it == container) => Ok(container.to_owned()),
        container => Err(Refusal::bad_request(format!("container {container} is not valid for pod {name}"))),
    }
}

async fn exchange(socket: WebSocket, work: Work) {
    let can_close = socket.protocol().is_some_and(|it| it.as_bytes() == V5.as_bytes());
    let (mut sink, source) = socket.split();
    // Like the kubelet, so that a client knows that it is connected.
    if sink.send(Message::binary(vec![STDOUT])).await.is_err() {
        return;
    }
    let (output, input) = if work.words.is_empty() { attached(&work) } else { executed(&work) };
    let reading = tokio::spawn(read_input(source, input, can_close));
    let lost = lost(&work);
    tokio::select! {
        () = lost => {}
        () = write_output(sink, output, work.cut) => {}
    }
    reading.abort();
}

/// Waits until the node is unreachable.
async fn lost(work: &Work) {
    let mut changed = work.cluster.store.subscribe();
    while scheduler::is_ready(&work.cluster, &work.node) {
        if changed.changed().await.is_err() {
            return;
        }
    }
}

/// Messages to the client.
#[derive(Debug)]
enum Output {
    Chunk(Chunk),
    /// The end, with the status.
    End(Value),
}

/// Starts the command of an exec. It continues if the client disconnects.
fn executed(work: &Work) -> (mpsc::Receiver<Output>, Option<DuplexStream>) {
    let mut exec = Exec::new(Command::Argv(work.words.clone()), work.run.user, work.run.workdir.clone());
    exec.keep_bytes = 4 << 10;
    let mut input = None;
    if work.has_stdin {
        let (ours, theirs) = tokio::io::duplex(256 << 10);
        exec.stdin = Some(Input::Stream(Box::new(theirs)));
        input = Some(ours);
    }
    let (live, mut chunks) = mpsc::channel(16);
    exec.live = Some(live);
    let (send, output) = mpsc::channel(16);
    let (backing, run, word) = (work.cluster.backing.clone(), Arc::clone(&work.run), work.words[0].clone());
    tokio::spawn(async move {
        let forwarding = async {
            while let Some(chunk) = chunks.recv().await {
                // Output is read even without a client, so that the command does not block.
                let _ = send.send(Output::Chunk(chunk)).await;
            }
        };
        let (ended, ()) = tokio::join!(backing.exec(&run.id, exec), forwarding);
        let status = match ended {
            Ok(output) => status_of(&output, &word),
            Err(err) => failure("InternalError", &format!("error executing command in container: {err}"), &json!({})),
        };
        let _ = send.send(Output::End(status)).await;
    });
    (output, input)
}

/// Attaches to a container's standard streams.
fn attached(work: &Work) -> (mpsc::Receiver<Output>, Option<DuplexStream>) {
    let input = if work.has_stdin { work.run.take_attached() } else { None };
    let (send, output) = mpsc::channel(16);
    let (mut live, mut exit) = (work.run.listen(), work.run.exit.subscribe());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                biased;
                chunk = live.recv() => match chunk {
                    Ok(chunk) => _ = send.send(Output::Chunk(chunk)).await,
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => break,
                },
                ended = async { exit.wait_for(Option::is_some).await.is_ok() } => {
                    if ended {
                        let _ = send.send(Output::End(json!({ "metadata": {}, "status": "Success" }))).await;
                    }
                    break;
                }
            }
        }
    });
    (output, input)
}

fn failure(reason: &str, message: &str, details: &Value) -> Value {
    json!({ "metadata": {}, "status": "Failure", "message": message, "reason": reason, "details": details })
}

fn status_of(output: &ExecOutput, word: &str) -> Value {
    let code = match output.exit {
        Exit::Code(0) => return json!({ "metadata": {}, "status": "Success" }),
        Exit::Code(code) => code,
        _ => 137,
    };
    // The engine's message is that of a shell.
    let is_missing = code == 127 && output.stderr.text() == format!("{word}: not found\n");
    if is_missing {
        let message = format!(
            "error executing command in container: failed to exec in container: failed to start exec: OCI runtime exec \
            failed: exec failed: unable to start container process: exec: \"{word}\": executable file not found in $PATH: unknown"
        );
        return failure("InternalError", &message, &json!({}));
    }
    let message = format!("command terminated with non-zero exit code: command terminated with exit code {code}");
    let causes = json!([{ "reason": "ExitCode", "message": code.to_string() }]);
    failure("NonZeroExitCode", &message, &json!({ "causes": causes }))
}

async fn write_output(mut sink: SplitSink<WebSocket, Message>, mut output: mpsc::Receiver<Output>, cut: Option<usize>) {
    let mut sent = 0;
    while let Some(next) = output.recv().await {
        let (channel, bytes) = match next {
            Output::Chunk(chunk) => {
                sent += chunk.bytes.len();
                (if chunk.stream == Stream::Stdout { STDOUT } else { STDERR }, chunk.bytes)
            }
            Output::End(status) => {
                let frame = [vec![STATUS], status.to_string().into_bytes()].concat();
                // The client may have disconnected.
                let _ = sink.send(Message::binary(frame)).await;
                let _ = sink.close().await;
                return;
            }
        };
        if sink.send(Message::binary([vec![channel], bytes].concat())).await.is_err() {
            return;
        }
        if cut.is_some_and(|it| sent >= it) {
            return;
        }
    }
}

async fn read_input(mut source: SplitStream<WebSocket>, mut input: Option<DuplexStream>, can_close: bool) {
    while let Some(Ok(message)) = source.next().await {
        let Message::Binary(frame) = message else {
            if matches!(message, Message::Close(_)) {
                return;
            }
            continue;
        };
        match frame.split_first() {
            Some((&STDIN, bytes)) => {
                if let Some(writer) = &mut input
                    && writer.write_all(bytes).await.is_err()
                {
                    // The command reads no more.
                    input = None;
                }
            }
            Some((&CLOSE, [STDIN])) if can_close => input = None,
            _ => {}
        }
    }
}
