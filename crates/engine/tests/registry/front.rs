//! A server in front of a registry, which passes requests on and spoils what comes back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::server::request;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    /// The whole head, in lower case.
    pub(crate) head: String,
    /// How many requests for that path came before.
    pub(crate) before: usize,
}

impl Request {
    pub(crate) fn is_for(&self, part: &str) -> bool {
        self.path.contains(part)
    }
}

/// What is sent back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    /// `200 OK`.
    pub(crate) status: String,
    /// Lines of the head, without `Content-Length`.
    pub(crate) head: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// The announced length; that of the body if unset.
    pub(crate) length: Option<usize>,
    pub(crate) pace: Pace,
}

/// How a body is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Pace {
    #[default]
    Whole,
    /// That many bytes, and the connection ends.
    Cut(usize),
    /// A byte now and then.
    Drip,
}

impl Reply {
    pub(crate) fn new(status: &str, head: &[&str], body: impl Into<Vec<u8>>) -> Self {
        let head = head.iter().map(|it| (*it).to_owned()).collect();
        Self { status: status.into(), head, body: body.into(), ..Self::default() }
    }

    pub(crate) fn redirect(to: &str) -> Self {
        Self::new("307 Temporary Redirect", &[&format!("Location: {to}")], "")
    }

    fn parse(raw: &[u8]) -> Self {
        let end = raw.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&raw[..end]).into_owned();
        let mut lines = head.lines();
        let status = lines.next().unwrap().trim_start_matches("HTTP/1.1 ").to_owned();
        let headers = lines.filter(|it| !it.starts_with("Content-Length") && !it.starts_with("Connection"));
        Self { status, head: headers.map(str::to_owned).collect(), body: raw[end + 4..].to_vec(), ..Self::default() }
    }
}

type Fault = Box<dyn FnMut(&Request, Reply) -> Reply + Send>;

/// A running server. Each connection carries one request.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
}

struct State {
    requests: Vec<Request>,
    fault: Fault,
}

impl Front {
    /// Starts one before the registry at that port; without one, everything is absent.
    pub(crate) async fn start(registry: Option<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let front =
            Self { port, state: Arc::new(Mutex::new(State { requests: Vec::new(), fault: Box::new(|_, it| it) })) };
        let own = front.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let own = own.clone();
                tokio::spawn(async move { own.serve(stream, registry).await });
            }
        });
        front
    }

    /// Spoils replies from now on, and forgets the requests until now.
    pub(crate) fn spoil(&self, fault: impl FnMut(&Request, Reply) -> Reply + Send + 'static) {
        *self.state.lock().unwrap() = State { requests: Vec::new(), fault: Box::new(fault) };
    }

    /// Passes everything on from now on.
    pub(crate) fn behave(&self) {
        self.spoil(|_, it| it);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap().requests.clone()
    }

    /// Serves one request of a connection, which may be within TLS.
    pub(crate) async fn serve(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, registry: Option<u16>) {
        let Some(head) = read_head(&mut stream).await else { return };
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let upstream = match registry {
            Some(port) => Reply::parse(&request(port, &upstream_head(&head), b"").await),
            None => Reply::new("404 Not Found", &[], ""),
        };
        let reply = {
            let mut state = self.state.lock().unwrap();
            let before = state.requests.iter().filter(|it| it.path == path).count();
            let request = Request { path, head: head.to_ascii_lowercase(), before };
            state.requests.push(request.clone());
            (state.fault)(&request, upstream)
        };
        let _ = send(&mut stream, reply).await;
    }
}

pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// The request without what belongs to its connection.
fn upstream_head(head: &str) -> String {
    let headers = head.trim_end().lines().filter(|it| {
        let line = it.to_ascii_lowercase();
        !line.starts_with("host:") && !line.starts_with("connection:") && !line.starts_with("authorization:")
    });
    headers.map(|it| format!("{it}\r\n")).collect()
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), reply: Reply) -> std::io::Result<()> {
    let Reply { status, head, body, length, pace } = reply;
    let lines: String = head.iter().map(|it| format!("{it}\r\n")).collect();
    let length = length.unwrap_or(body.len());
    let head = format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    match pace {
        Pace::Whole => stream.write_all(&body).await?,
        Pace::Cut(bytes) => stream.write_all(&body[..bytes.min(body.len())]).await?,
        Pace::Drip => {
            for byte in &body {
                stream.write_all(&[*byte]).await?;
                stream.flush().await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    stream.shutdown().await
}
