//! `coracle mcp --http`: one server for several clients on this machine.
//!
//! **Invariant:** only the head of a request is read before its token is checked.
//! **Invariant:** the server listens on loopback addresses, and accepts only requests with a loopback host: a web page
//! with a domain that resolves to this machine is refused.

use std::io::{self, Write as _};
use std::sync::Arc;

use coracle_context::{Code, Failure, Options};
use coracle_prepare::Process;
use coracle_transport::{Http, HttpResponse, HttpService, LEAVING, PATIENCE, Token, refusal, unauthorized};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming as Body};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use super::clients::{Clients, NAMED_SESSION};
use super::message::{IncomingMessage, MAX_MESSAGE, MessageError, MessageOutcome};
use super::named_session::{InvalidName, named_session};
use super::server::{Server, SessionSource};
use super::tools::Tools;

/// The path of the protocol.
const PATH: &str = "/mcp";

/// Maximum size of a request that is read. A request that is too long is still read to its end, so that its client
/// receives the error.
const READ: u64 = 64 << 20;

/// Checks the options before anything is opened.
///
/// # Errors
/// An address that other machines can reach, and options that are for a single client.
pub fn check(http: &Http, options: &Options) -> Result<(), Failure> {
    if options.session.is_some() {
        let message = "`--session` names one session, and over HTTP each client has its own";
        return Err(Failure::new(Code::ConflictingFields, message)
            .hint("leave `--session` out; a client names its session in the header `Coracle-Session`"));
    }
    http.address().map(drop)
}

/// Serves until a signal arrives. Waits for `upkeep` at the end.
pub(super) async fn serve(http: &Http, process: &Process, upkeep: impl Future<Output = ()>) -> Result<(), Failure> {
    let cx = &process.context;
    let default_file = cx.state()?.mcp_token();
    let (listener, token) = http.listen(cx, &default_file).await?;
    let clients = Clients::new(process);
    let front = Arc::new(Front { token, protocol: protocol(process, &clients) });
    if cx.host.session.is_some() {
        tracing::warn!("CORACLE_SESSION is not used: over HTTP each client has its own session");
    }
    note(&format!(
        "serving the Model Context Protocol at http://{}{PATH}; clients need the token in {}",
        listener.address,
        http.token_file(cx, &default_file).display()
    ));
    let open = listener.accept(&front, cx).await;
    let leave = async { tokio::join!(open.shutdown(), clients.end(), process.end(), upkeep) };
    if tokio::time::timeout(LEAVING, leave).await.is_err() {
        tracing::warn!("not all containers of the clients were removed in time; the next call continues");
    }
    Ok(())
}

type Protocol = StreamableHttpService<Server, Clients>;

fn protocol(process: &Process, clients: &Clients) -> Protocol {
    let server = Server::new(SessionSource::Each(clients.clone()), Arc::new(Tools::for_process(process)));
    // By default the library restricts hosts to loopback, but not origins.
    let local = ["localhost", "127.0.0.1", "[::1]"];
    let origins = local.iter().flat_map(|it| [format!("http://{it}:*"), format!("https://{it}:*")]);
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(origins)
        .with_max_request_body_bytes(MAX_MESSAGE)
        .with_cancellation_token(process.context.call.cancel.child_token());
    StreamableHttpService::new(move || Ok(server.clone()), Arc::new(clients.clone()), config)
}

/// Prints a line for the user. A closed standard error is ignored.
fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Checks requests before the protocol's service receives them.
struct Front {
    token: Token,
    protocol: Protocol,
}

impl HttpService for Front {
    fn refuse(&self, head: &Parts) -> Option<HttpResponse> {
        if head.uri.path() != PATH {
            return Some(refusal(StatusCode::NOT_FOUND, "the Model Context Protocol is at /mcp"));
        }
        if !self.token.opens(&head.headers) {
            return Some(unauthorized());
        }
        let grammar = "the header `Coracle-Session` is not a session name: it takes letters, digits, `.`, `_` and `-`";
        named_session(head).err().map(|InvalidName| refusal(StatusCode::BAD_REQUEST, grammar))
    }

    async fn respond(&self, request: Request<Body>) -> HttpResponse {
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
        let name = named_session(&head).ok().flatten();
        let handled = self.protocol.handle(Request::from_parts(head, Full::new(text)));
        let mut answer = NAMED_SESSION.scope(name, handled).await;
        // The session has ended, and its streams send nothing more.
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

#[cfg(test)]
mod tests {
    use coracle_context::Options;

    use super::{Http, check};

    #[test]
    fn a_session_option_is_refused_over_http() {
        let http = Http { flag: "http", address: "127.0.0.1:0".into(), token_file: None };
        let named = Options { session: Some("mine".into()), ..Options::default() };
        assert_eq!(check(&http, &named).unwrap_err().code.word(), "conflicting_fields");
        assert!(check(&http, &Options::default()).is_ok());
    }
}
