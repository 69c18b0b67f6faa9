//! As much of a WebSocket client as a test of a served page needs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const TEXT: u8 = 1;
const BINARY: u8 = 2;

/// A connection to a server of the host's loopback.
pub(crate) struct WebSocket {
    stream: TcpStream,
    calls: u64,
}

impl WebSocket {
    /// Opens a connection, with additional header lines.
    pub(crate) async fn open(address: &str, path: &str, more: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let key = STANDARD.encode([7; 16]);
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: {key}\r\n{more}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
        Self { stream, calls: 0 }
    }

    async fn send(&mut self, kind: u8, payload: &[u8]) {
        // A mask of zeroes leaves the payload as it is.
        let mut frame = vec![0x80 | kind];
        match payload.len() {
            short @ ..126 => frame.push(0x80 | u8::try_from(short).unwrap()),
            long => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(long).unwrap().to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(payload);
        self.stream.write_all(&frame).await.unwrap();
    }

    async fn receive(&mut self) -> Vec<u8> {
        let mut message = Vec::new();
        loop {
            let head = self.stream.read_u8().await.unwrap();
            let length = match self.stream.read_u8().await.unwrap() {
                126 => u64::from(self.stream.read_u16().await.unwrap()),
                127 => self.stream.read_u64().await.unwrap(),
                short => u64::from(short),
            };
            let begin = message.len();
            message.resize(begin + usize::try_from(length).unwrap(), 0);
            self.stream.read_exact(&mut message[begin..]).await.unwrap();
            if head & 0x80 != 0 {
                return message;
            }
        }
    }

    /// Bytes of a protocol that is carried in binary messages.
    pub(crate) async fn bytes(&mut self, send: &[u8]) -> Vec<u8> {
        if !send.is_empty() {
            self.send(BINARY, send).await;
        }
        self.receive().await
    }

    /// A call of the Chrome DevTools Protocol, and its result.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let call = json!({ "id": self.calls, "method": method, "params": params });
        self.send(TEXT, call.to_string().as_bytes()).await;
        loop {
            let answer: Value = serde_json::from_slice(&self.receive().await).unwrap();
            if answer["id"] == self.calls {
                return answer["result"].clone();
            }
        }
    }
}
