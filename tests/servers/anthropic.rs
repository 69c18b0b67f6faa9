//! A model's API like Anthropic's. It lets an agent run one command, and then ends the conversation.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::model::{ModelRequest, read};

/// A server of one test, which ends with it.
#[derive(Debug)]
pub(crate) struct MessagesServer {
    at: SocketAddr,
    requests: Arc<Mutex<Vec<ModelRequest>>>,
    listens: JoinHandle<()>,
}

impl Drop for MessagesServer {
    fn drop(&mut self) {
        self.listens.abort();
    }
}

impl MessagesServer {
    /// A client that offers a shell gets the request to run this in it.
    pub(crate) async fn start(command: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (at, requests) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<ModelRequest>>>::default());
        let shared = requests.clone();
        let listens = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let requests = shared.clone();
                // The client may disconnect before the answer.
                tokio::spawn(async move { answer(stream, command, &requests).await.ok() });
            }
        });
        Self { at, requests, listens }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.at)
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap().clone()
    }
}

async fn answer(mut stream: TcpStream, command: &str, seen: &Mutex<Vec<ModelRequest>>) -> std::io::Result<()> {
    let request = read(&mut stream).await?;
    seen.lock().unwrap().push(request.clone());
    let has_run = request.body["messages"].to_string().contains("tool_result");
    let shell = request.body["tools"].as_array().into_iter().flatten().any(|it| it["name"] == "Bash");
    let (block, delta, stop) = match shell && !has_run {
        true => {
            let input = json!({ "command": command, "description": "Fix it" }).to_string();
            let block = json!({ "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {} });
            (block, json!({ "type": "input_json_delta", "partial_json": input }), "tool_use")
        }
        false => {
            let delta = json!({ "type": "text_delta", "text": "It adds now." });
            (json!({ "type": "text", "text": "" }), delta, "end_turn")
        }
    };
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": request.body["model"], "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": { "input_tokens": 10, "output_tokens": 1 },
    });
    let end = json!({ "stop_reason": stop, "stop_sequence": null });
    let body: String = [
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": end, "usage": { "output_tokens": 5 } }),
        json!({ "type": "message_stop" }),
    ]
    .iter()
    .map(event)
    .collect();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n").await?;
    stream.write_all(body.as_bytes()).await
}

fn event(it: &Value) -> String {
    format!("event: {}\ndata: {it}\n\n", it["type"].as_str().unwrap_or_default())
}
