//! `coracle mcp --http`: several clients at one server, on this machine only.
//!
//! **Invariant:** nothing of a request but its head is read before the token was seen.
//! **Invariant:** the server listens on loopback addresses, and answers only requests that mean one: a page in a browser
//! sessions name was turned to this machine is refused.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use coracle::{Code, Context, Failure, Options, Process};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming as Body};
use hyper::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::clients::Clients;
use super::message::{IncomingMessage, MAX_MESSAGE, MessageError, MessageOutcome};
use super::server::{Server, SessionSource};
use super::session::LEAVING;
use super::token::Token;
use super::tools::Tools;

/// Where the protocol is spoken.
const PATH: &str = "/mcp";

/// Bytes of a request that are read at all: one that is too long is read to its end, or its client would not hear why.
const READ: u64 = 64 << 20;

/// Bytes and number of its headers.
const HEAD: (usize, usize) = (32 * 1024, 64);

/// A head and a body have this long to come. Answers have all the time that the call takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connections at once: each client has a few, and one without a token is refused soon.
const CONNECTIONS: usize = 256;

/// How the person wants it served.
#[derive(Clone, Debug)]
pub struct Http {
    /// `--http`
    pub address: String,
    /// `--token-file`
    pub token_file: Option<PathBuf>,
}

impl Http {
    /// What can be said before anything is opened.
    ///
    /// # Errors
    /// An address that others reach, and options that mean one client.
    pub fn check(&self, options: &Options) -> Result<(), Failure> {
        if options.session.is_some() {
            let message = "`--session` names one session, and over HTTP each client has its own";
            return Err(Failure::new(Code::ConflictingFields, message)
                .hint("leave `--session` out; a client on standard input can be given one"));
        }
        self.address().map(drop)
    }

    /// Serves until a signal comes. `upkeep` is waited for at the end.
    pub(super) async fn serve(&self, process: &Process, upkeep: impl Future<Output = ()>) -> Result<(), Failure> {
        let cx = &process.context;
        let path = match &self.token_file {
            Some(path) => cx.host.path(path),
            None => cx.state()?.mcp_token(),
        };
        let token = Token::at(&path, cx.host.uid)?;
        let address = self.address()?;
        let listener = TcpListener::bind(address).await.map_err(|err| unbound(address, &err))?;
        let address = listener.local_addr().map_err(Failure::internal)?;
        let clients = Clients::new(process);
        let front = Arc::new(Front { token, protocol: protocol(process, &clients) });
        if cx.host.session.is_some() {
            tracing::warn!("CORACLE_SESSION is not used: over HTTP each client has its own session");
        }
        note(&format!(
            "serving the Model Context Protocol at http://{address}{PATH}; clients need the token in {}",
            path.display()
        ));
        let open = accept(&listener, &front, cx).await;
        drop(listener);
        let leave = async { tokio::join!(open.shutdown(), clients.end(), process.end(), upkeep) };
        if tokio::time::timeout(LEAVING, leave).await.is_err() {
            tracing::warn!("not all containers of the clients were removed in time; the next call goes on with it");
        }
        Ok(())
    }

    fn address(&self) -> Result<SocketAddr, Failure> {
        let text = &self.address;
        let local = text.strip_prefix("localhost:").and_then(|it| it.parse().ok());
        let address = local.map(|port| (Ipv4Addr::LOCALHOST, port).into()).or_else(|| text.parse::<SocketAddr>().ok());
        let address = address.ok_or_else(|| {
            Failure::new(Code::InvalidInput, format!("`{}` is not ADDRESS:PORT", text.escape_debug()))
                .hint("write `--http 127.0.0.1:8765`; port 0 takes one that is free")
        })?;
        if address.ip().is_loopback() {
            return Ok(address);
        }
        let message = format!("{} can be reached from other machines", address.ip());
        Err(Failure::new(Code::PolicyDenied, message).detail("field", "http").hint(format!(
            "serve on `127.0.0.1:{0}` or `[::1]:{0}`; from another machine `ssh -L {0}:127.0.0.1:{0} HOST` leads there",
            address.port()
        )))
    }
}

fn unbound(address: SocketAddr, err: &std::io::Error) -> Failure {
    if err.kind() == std::io::ErrorKind::AddrInUse {
        let message = format!("port {} is taken by another program", address.port());
        return Failure::new(Code::PortTaken, message).hint("name another port; 0 takes one that is free");
    }
    Failure::new(Code::InvalidInput, format!("{address} cannot be listened on: {err}"))
        .hint("write `--http 127.0.0.1:8765`, with a port of 1024 or more")
}

type Protocol = StreamableHttpService<Server, Clients>;

fn protocol(process: &Process, clients: &Clients) -> Protocol {
    let server = Server::new(SessionSource::Each(clients.clone()), Arc::new(Tools::for_process(process)));
    // Hosts are held to loopback by default; origins are not.
    let local = ["localhost", "127.0.0.1", "[::1]"];
    let origins = local.iter().flat_map(|it| [format!("http://{it}:*"), format!("https://{it}:*")]);
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(origins)
        .with_max_request_body_bytes(MAX_MESSAGE)
        .with_cancellation_token(process.context.call.cancel.child_token());
    StreamableHttpService::new(move || Ok(server.clone()), Arc::new(clients.clone()), config)
}

/// Tells the person. One who has closed that stream needs no telling.
fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Takes connections until the process is to end; those that are still open then.
async fn accept(listener: &TcpListener, front: &Arc<Front>, cx: &Context) -> GracefulShutdown {
    let (open, places) = (GracefulShutdown::new(), Arc::new(Semaphore::new(CONNECTIONS)));
    while let Some(accepted) = cx.call.cancel.run_until_cancelled(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(err) => {
                tracing::warn!("no connection could be taken: {err}");
                // Too many open files, most likely: some close in time.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Closed at once: who holds all places holds no new ones up.
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let connection = open.watch(connection(stream, front.clone()));
        tokio::spawn(async move {
            if let Err(err) = connection.await {
                tracing::debug!("a connection broke: {err}");
            }
            drop(place);
        });
    }
    open
}

fn connection(
    stream: TcpStream,
    front: Arc<Front>,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error> {
    // An answer is small and waited for.
    let _ = stream.set_nodelay(true);
    let answer = move |request| {
        let front = front.clone();
        async move { Ok::<_, Infallible>(front.answer(request).await) }
    };
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD.0)
        .max_headers(HEAD.1)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
}

/// What stands between a connection and the protocol.
struct Front {
    token: Token,
    protocol: Protocol,
}

type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

impl Front {
    async fn answer(&self, request: Request<Body>) -> HttpResponse {
        if request.uri().path() != PATH {
            return refusal(StatusCode::NOT_FOUND, "the Model Context Protocol is at /mcp");
        }
        if !self.token.opens(request.headers()) {
            let mut answer = refusal(StatusCode::UNAUTHORIZED, "send `Authorization: Bearer` with the server's token");
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"coracle\""));
            return answer;
        }
        let (head, body) = request.into_parts();
        let body = match tokio::time::timeout(PATIENCE, collected(body)).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => return refusal(StatusCode::BAD_REQUEST, "the request's body did not come whole"),
            Err(_) => return refusal(StatusCode::REQUEST_TIMEOUT, "the request's body took too long"),
        };
        let method = head.method.clone();
        if let (&Method::POST, MessageOutcome::Refused(fault)) = (&method, body.read()) {
            return refused(&fault);
        }
        let text = Bytes::from(body.into_text());
        let mut answer = self.protocol.handle(Request::from_parts(head, Full::new(text))).await;
        // Nothing comes after the end of a session, and it has ended.
        if method == Method::DELETE && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        answer
    }
}

async fn collected(mut body: Body) -> hyper::Result<IncomingMessage> {
    let mut incoming = IncomingMessage::default();
    while let Some(frame) = body.frame().await {
        if let Some(bytes) = frame?.data_ref() {
            incoming.push(bytes);
        }
        if incoming.bytes() > READ {
            break;
        }
    }
    Ok(incoming)
}

fn refused(fault: &MessageError) -> HttpResponse {
    let text = fault.answer().to_string();
    let mut answer = Response::new(Full::new(Bytes::from(text)).boxed());
    *answer.status_mut() = fault.status();
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn refusal(status: StatusCode, why: &'static str) -> HttpResponse {
    let mut answer = Response::new(Full::new(Bytes::from_static(why.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

#[cfg(test)]
mod tests {
    use coracle::Options;
    use insta::assert_snapshot;

    use super::Http;

    fn check(address: &str) -> String {
        match (Http { address: address.to_owned(), token_file: None }).address() {
            Ok(address) => address.to_string(),
            Err(failure) => {
                format!("{}: {}\n{}", failure.code.word(), failure.message, failure.hint.as_deref().unwrap())
            }
        }
    }

    #[test]
    fn it_is_served_to_this_machine_only() {
        assert_eq!(check("127.0.0.1:0"), "127.0.0.1:0");
        assert_eq!(check("127.8.8.8:80"), "127.8.8.8:80");
        assert_eq!(check("[::1]:8765"), "[::1]:8765");
        assert_eq!(check("localhost:8765"), "127.0.0.1:8765");
        assert_snapshot!(check("0.0.0.0:8765"), @r"
        policy_denied: 0.0.0.0 can be reached from other machines
        serve on `127.0.0.1:8765` or `[::1]:8765`; from another machine `ssh -L 8765:127.0.0.1:8765 HOST` leads there
        ");
        for other in ["[::]:1", "192.168.0.1:1", "[::ffff:10.0.0.1]:1", "169.254.169.254:80"] {
            assert!(check(other).starts_with("policy_denied"), "{other}");
        }
        for wrong in ["", "8765", "127.0.0.1", "localhost", "localhost:x", "example.org:80", "127.0.0.1:65536"] {
            assert!(check(wrong).starts_with("invalid_input"), "{wrong}");
        }
    }

    #[test]
    fn one_session_for_all_is_refused() {
        let http = Http { address: "127.0.0.1:0".into(), token_file: None };
        let named = Options { session: Some("mine".into()), ..Options::default() };
        assert_eq!(http.check(&named).unwrap_err().code.word(), "conflicting_fields");
        assert!(http.check(&Options::default()).is_ok());
    }
}
