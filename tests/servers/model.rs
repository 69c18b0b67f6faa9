//! A model's API like OpenAI's, with scripted replies.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The model's reaction to a request.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    /// Answers.
    Says(String),
    /// Answers with a text and tool calls.
    Calls(String, Vec<(String, Value)>),
    /// Answers, and is cut by its length.
    Cut(String),
    /// Refuses with a status, more headers, and a message with a code.
    Refuses(u16, Vec<(&'static str, String)>, &'static str, &'static str),
    /// Starts an answer and disconnects.
    Breaks,
    /// Waits for the signal, then takes the turn.
    Held(Arc<Notify>, Box<Turn>),
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct ModelRequest {
    pub(crate) path: String,
    /// Headers, by lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

impl ModelRequest {
    /// The contents of the messages of a role.
    pub(crate) fn texts_of(&self, role: &str) -> Vec<String> {
        let messages = self.body["messages"].as_array().into_iter().flatten();
        let of_role = messages.filter(|it| it["role"] == role);
        of_role.map(|it| it["content"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// A server of one test, which ends with it. Each reply reports 10 input and 5 output tokens.
#[derive(Debug)]
pub(crate) struct ModelServer {
    at: SocketAddr,
    script: Arc<Mutex<Script>>,
    listens: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Script {
    turns: VecDeque<Turn>,
    /// The turn after the last one.
    otherwise: Option<Turn>,
    requests: Vec<ModelRequest>,
    calls: u64,
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.listens.abort();
    }
}

impl ModelServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (at, script) = (listener.local_addr().unwrap(), Arc::<Mutex<Script>>::default());
        let shared = script.clone();
        let listens = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let script = shared.clone();
                // The client may disconnect before the answer.
                tokio::spawn(async move { answer(stream, &script).await.ok() });
            }
        });
        Self { at, script, listens }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/proxy/v1", self.at)
    }

    pub(crate) fn port(&self) -> u16 {
        self.at.port()
    }

    pub(crate) fn then(&self, turns: impl IntoIterator<Item = Turn>) {
        self.script.lock().unwrap().turns.extend(turns);
    }

    pub(crate) fn otherwise(&self, turn: Turn) {
        self.script.lock().unwrap().otherwise = Some(turn);
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<ModelRequest> {
        self.script.lock().unwrap().requests.clone()
    }
}

/// A call of a tool.
pub(crate) fn call(name: &str, arguments: Value) -> (String, Value) {
    (name.to_owned(), arguments)
}

/// A turn that waits for a signal.
pub(crate) fn held(turn: Turn) -> (Turn, Arc<Notify>) {
    let go = Arc::<Notify>::default();
    (Turn::Held(go.clone(), Box::new(turn)), go)
}

/// A turn that only calls tools.
pub(crate) fn calls(calls: impl IntoIterator<Item = (String, Value)>) -> Turn {
    Turn::Calls(String::new(), calls.into_iter().collect())
}

pub(crate) fn says(text: &str) -> Turn {
    Turn::Says(text.to_owned())
}

async fn answer(mut stream: TcpStream, script: &Mutex<Script>) -> std::io::Result<()> {
    let request = read(&mut stream).await?;
    let (turn, number) = {
        let mut script = script.lock().unwrap();
        script.requests.push(request.clone());
        script.calls += 1;
        let turn = script.turns.pop_front().or_else(|| script.otherwise.clone());
        (turn.unwrap_or(Turn::Refuses(500, vec![], "the script is over", "")), script.calls)
    };
    let streamed = request.body["stream"] == true;
    let turn = match turn {
        Turn::Held(go, turn) => {
            go.notified().await;
            *turn
        }
        turn => turn,
    };
    match turn {
        Turn::Held(..) => Ok(()),
        Turn::Refuses(status, headers, message, code) => refuse(&mut stream, status, &headers, (message, code)).await,
        Turn::Breaks => {
            stream.write_all(HEAD).await?;
            stream.write_all(event(&json!({ "content": "half a " }), None).as_bytes()).await
        }
        Turn::Says(text) => reply(&mut stream, streamed, (&text, &[], "stop"), number).await,
        Turn::Cut(text) => reply(&mut stream, streamed, (&text, &[], "length"), number).await,
        Turn::Calls(text, calls) => reply(&mut stream, streamed, (&text, &calls, "tool_calls"), number).await,
    }
}

pub(super) async fn read(stream: &mut TcpStream) -> std::io::Result<ModelRequest> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut headers) = (String::new(), BTreeMap::new());
    reader.read_line(&mut line).await?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    loop {
        line.clear();
        reader.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    Ok(ModelRequest { path, headers, body: serde_json::from_slice(&body).unwrap_or_default() })
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

fn event(delta: &Value, finish: Option<&str>) -> String {
    format!("data: {}\n\n", json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }))
}

fn usage() -> Value {
    json!({ "prompt_tokens": 10, "completion_tokens": 5 })
}

type TurnParts<'a> = (&'a str, &'a [(String, Value)], &'a str);

async fn reply(
    stream: &mut TcpStream,
    streamed: bool,
    (text, calls, finish): TurnParts<'_>,
    number: u64,
) -> std::io::Result<()> {
    let calls = calls.iter().enumerate().map(|(index, (name, arguments))| {
        let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
        let function = json!({ "name": name, "arguments": arguments });
        json!({ "index": index, "id": format!("call_{number}_{index}"), "type": "function", "function": function })
    });
    let calls: Vec<Value> = calls.collect();
    if !streamed {
        let message = json!({ "content": text, "tool_calls": calls });
        let body =
            json!({ "choices": [{ "message": message, "finish_reason": finish }], "usage": usage() }).to_string();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        return stream.write_all(format!("{head}{body}").as_bytes()).await;
    }
    let half = text.floor_char_boundary(text.len() / 2);
    let parts = [&text[..half], &text[half..]].map(|it| event(&json!({ "content": it }), None));
    let calls = calls.iter().map(|it| event(&json!({ "tool_calls": [it] }), None));
    let last = [
        event(&json!({}), Some(finish)),
        format!("data: {}\n\n", json!({ "choices": [], "usage": usage() })),
        "data: [DONE]\n\n".to_owned(),
    ];
    let body: String = parts.into_iter().chain(calls).chain(last).collect();
    stream.write_all(HEAD).await?;
    for piece in body.as_bytes().chunks(37) {
        stream.write_all(piece).await?;
    }
    stream.flush().await
}

async fn refuse(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(&str, String)],
    (message, code): (&str, &str),
) -> std::io::Result<()> {
    let body = json!({ "error": { "message": message, "code": code } }).to_string();
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{more}\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await
}
