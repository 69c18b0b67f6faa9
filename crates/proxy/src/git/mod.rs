//! Git over HTTP, to allowed repositories. The proxy adds the credential to each request.

mod commands;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_types::Secret;
use futures_util::{StreamExt as _, stream};
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use url::Url;

use self::commands::{CommandScan, check_commands};
use crate::body::{self, ByteCounter};
use crate::caller::ProxyInner;
use crate::entry::{Accepted, UpstreamResponse};
use crate::policy::{GitHost, GitMode, GitRules, is_plain};
use crate::response::{Body, BodyError, Rejection, streamed, whole};
use crate::scrub::Scrub;

/// Headers that are forwarded to a git host.
const REQUEST: [&str; 5] = ["content-type", "accept", "accept-encoding", "content-encoding", "git-protocol"];
const RESPONSE: [&str; 5] = ["content-type", "content-encoding", "cache-control", "expires", "pragma"];

/// Some hosts recognise git by its user agent.
const AGENT: &str = "git/2 (coracle)";

/// Maximum size of a request to a git host.
const MAX_BODY: u64 = 1 << 30;

/// A body of a known length up to this size is sent in one piece.
const MAX_BUFFERED: u64 = 1 << 20;

/// Maximum size of git's description of a credential.
const MAX_DESCRIPTION: u64 = 4 << 10;

/// The operation on a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepositoryOperation {
    Refs { push: bool },
    Fetch,
    Push,
}

/// A request of git's HTTP protocol, by its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GitRequest {
    pub(crate) host: String,
    path: String,
    act: RepositoryOperation,
}

impl GitRequest {
    /// Parses the part of the path behind `…/git/http/`.
    pub(crate) fn parse(method: &Method, path: &str, query: Option<&str>) -> Option<Self> {
        let (host, path) = path.split_once('/')?;
        let (path, act) = match (method, query) {
            (&Method::GET, Some("service=git-upload-pack")) => {
                (path.strip_suffix("/info/refs")?, RepositoryOperation::Refs { push: false })
            }
            (&Method::GET, Some("service=git-receive-pack")) => {
                (path.strip_suffix("/info/refs")?, RepositoryOperation::Refs { push: true })
            }
            (&Method::POST, None) => match path.strip_suffix("/git-upload-pack") {
                Some(path) => (path, RepositoryOperation::Fetch),
                None => (path.strip_suffix("/git-receive-pack")?, RepositoryOperation::Push),
            },
            _ => return None,
        };
        Some(Self { host: host.to_owned(), path: path.to_owned(), act }).filter(|_| is_plain(path))
    }

    pub(crate) fn route(&self) -> &'static str {
        match self.act {
            RepositoryOperation::Refs { .. } => "git/info/refs",
            RepositoryOperation::Fetch => "git/upload-pack",
            RepositoryOperation::Push => "git/receive-pack",
        }
    }

    fn url(&self, host: &GitHost) -> String {
        let end = match self.act {
            RepositoryOperation::Refs { push: false } => "info/refs?service=git-upload-pack",
            RepositoryOperation::Refs { push: true } => "info/refs?service=git-receive-pack",
            RepositoryOperation::Fetch => "git-upload-pack",
            RepositoryOperation::Push => "git-receive-pack",
        };
        format!("{}://{}/{}/{end}", host.scheme, host.name, self.path)
    }
}

/// Forwards a request, if the rules allow it.
pub(crate) async fn pass(
    shared: &ProxyInner,
    rules: Option<&GitRules>,
    wanted: &GitRequest,
    request: Request<Incoming>,
    sent: &ByteCounter,
) -> Result<Accepted, Rejection> {
    let rules = rules.filter(|it| it.mode == GitMode::Proxy).ok_or(Rejection::Route)?;
    let host = rules.host(&wanted.host).ok_or(Rejection::GitHost)?;
    let outside = rules.allow_private || host.address.is_none_or(coracle_host::address::is_public);
    if !outside {
        return Err(Rejection::GitHost);
    }
    if !rules.has(host, &wanted.path) {
        return Err(Rejection::GitRepo);
    }
    if matches!(wanted.act, RepositoryOperation::Push | RepositoryOperation::Refs { push: true })
        && rules.push.is_empty()
    {
        return Err(Rejection::Push("this sandbox may only fetch"));
    }
    let (parts, incoming) = request.into_parts();
    let mut headers = body::only(&parts.headers, &REQUEST);
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    let declared = body::length(&parts.headers)?;
    if declared.is_some_and(|it| it > MAX_BODY) {
        return Err(Rejection::TooLarge);
    }
    let sends = match wanted.act {
        RepositoryOperation::Refs { .. } => whole(Bytes::new()),
        RepositoryOperation::Fetch => sends(incoming, Vec::new(), declared, sent).await?,
        RepositoryOperation::Push if parts.headers.contains_key(CONTENT_ENCODING) => {
            return Err(Rejection::Push("a push is not compressed twice"));
        }
        RepositoryOperation::Push => {
            let (begins, incoming) = command_list(incoming, rules).await?;
            sends(incoming, begins, declared, sent).await?
        }
    };
    let scrub = authorize(&mut headers, rules, host, &wanted.path).await;
    let client = if rules.allow_private { &shared.clients.any } else { &shared.clients.outside };
    let method = if matches!(wanted.act, RepositoryOperation::Refs { .. }) { Method::GET } else { Method::POST };
    let url = Url::parse(&wanted.url(host)).map_err(|_| Rejection::Failed)?;
    let response = body::sent(client, coracle_http::request(method, &url, headers, sends), shared.pace).await?;
    let (parts, body) = response.into_parts();
    match parts.status {
        StatusCode::UNAUTHORIZED => return Err(Rejection::GitLogin),
        status if status.is_redirection() => return Err(Rejection::Failed),
        _ => {}
    }
    if scrub.cannot_read(&parts.headers) {
        return Err(Rejection::Failed);
    }
    let mut headers = body::only(&parts.headers, &RESPONSE);
    for name in RESPONSE {
        if headers.get_all(name).iter().any(|value| scrub.is_in(value.as_bytes())) {
            headers.remove(name);
        }
    }
    let passing = UpstreamResponse { status: parts.status, headers, body, scrub, reader: None, place: None };
    Ok(Accepted::Passing(Box::new(passing)))
}

/// Adds the user's credential, and returns the filter that removes it from the response.
async fn authorize(headers: &mut HeaderMap, rules: &GitRules, host: &GitHost, path: &str) -> Scrub {
    let nothing = || Scrub::new(Secret::from(""));
    // Without TLS, the credential could be read on the network, except on loopback.
    if host.scheme != "https" && !host.address.is_some_and(|it| it.is_loopback()) {
        return nothing();
    }
    let Some(login) = rules.credentials.login(host.scheme, &host.name, path).await else { return nothing() };
    let mut plain = format!("{}:", login.username).into_bytes();
    plain.extend_from_slice(login.password.reveal());
    let plain = Secret::new(plain);
    let basic = Secret::from(format!("Basic {}", STANDARD.encode(plain.reveal())));
    if let Ok(mut value) = HeaderValue::from_bytes(basic.reveal()) {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
        // The filter cannot find the password in a compressed response.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    Scrub::new(login.password)
}

/// Reads and checks the commands of a push before any of it is forwarded.
async fn command_list(mut incoming: Incoming, rules: &GitRules) -> Result<(Vec<u8>, Incoming), Rejection> {
    let mut begins = Vec::new();
    loop {
        match check_commands(&begins, &rules.push) {
            CommandScan::Allowed => return Ok((begins, incoming)),
            CommandScan::Refused(why) => {
                body::drain(incoming).await;
                return Err(Rejection::Push(why));
            }
            CommandScan::More => {}
        }
        match incoming.frame().await {
            Some(Ok(frame)) => begins.extend_from_slice(frame.data_ref().map_or(&[][..], |it| it)),
            Some(Err(_)) => return Err(Rejection::Length),
            None => return Err(Rejection::Request("The list of commands is cut off.")),
        }
    }
}

/// Builds the body to forward from the bytes already read and the rest of the stream.
async fn sends(
    mut incoming: Incoming,
    begins: Vec<u8>,
    declared: Option<u64>,
    sent: &ByteCounter,
) -> Result<Body, Rejection> {
    sent.add(begins.len());
    if declared.is_some_and(|it| it <= MAX_BUFFERED) {
        let mut all = begins;
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|_| Rejection::Length)?;
            all.extend_from_slice(frame.data_ref().map_or(&[][..], |it| it));
        }
        return Ok(whole(all));
    }
    let counted = sent.clone();
    let rest = incoming.into_data_stream().map(move |piece| -> Result<Bytes, BodyError> {
        let piece = piece?;
        if counted.add(piece.len()) > MAX_BODY {
            return Err("the body is too large".into());
        }
        Ok(piece)
    });
    let first = stream::iter([Ok::<_, BodyError>(Bytes::from(begins))]);
    Ok(streamed(first.chain(rest)))
}

/// Answers git's request for a credential, in the mode that allows it.
pub(crate) async fn credentials(rules: Option<&GitRules>, request: Request<Incoming>) -> Result<Accepted, Rejection> {
    let rules = rules.filter(|it| it.mode == GitMode::Credential).ok_or(Rejection::Route)?;
    let described = body::read(request, MAX_DESCRIPTION).await?;
    let described =
        std::str::from_utf8(&described).map_err(|_| Rejection::Request("That is no description of git's."))?;
    let field = |name: &str| {
        let mut values = described.lines().filter_map(|it| it.split_once('=')).filter(|it| it.0 == name);
        values.next().map(|it| it.1).filter(|_| values.next().is_none())
    };
    let (Some("https"), Some(host), Some(path)) = (field("protocol"), field("host"), field("path")) else {
        return Err(Rejection::GitHost);
    };
    let host = rules.host(host).filter(|it| it.scheme == "https" && is_plain(path)).ok_or(Rejection::GitHost)?;
    if !rules.has(host, path) {
        return Err(Rejection::GitHost);
    }
    let login = rules.credentials.login(host.scheme, &host.name, path).await.ok_or(Rejection::GitHost)?;
    let mut text = format!("username={}\npassword=", login.username).into_bytes();
    text.extend_from_slice(login.password.reveal());
    text.push(b'\n');
    let mut answer: Response<Body> = Response::new(whole(text));
    answer.headers_mut().remove(CONTENT_LENGTH);
    Ok(Accepted::Whole(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_of_gits_protocol_are_parsed() {
        let read = |method: &Method, text: &str| {
            let (path, query) = text.split_once('?').map_or((text, None), |it| (it.0, Some(it.1)));
            GitRequest::parse(method, path, query)
        };
        let wanted = read(&Method::GET, "github.com/o/n.git/info/refs?service=git-upload-pack").unwrap();
        assert_eq!(
            (&*wanted.host, &*wanted.path, wanted.act),
            ("github.com", "o/n.git", RepositoryOperation::Refs { push: false })
        );
        assert_eq!(read(&Method::POST, "h/o/n/git-receive-pack").unwrap().act, RepositoryOperation::Push);
        for (method, odd) in [
            (Method::GET, "h/o/n/info/refs"),
            (Method::GET, "h/o/n/info/refs?service=git-upload-pack&x=y"),
            (Method::GET, "h/o/n/HEAD"),
            (Method::GET, "h/o/n/git-upload-pack"),
            (Method::POST, "h/o/../n/git-upload-pack"),
            (Method::POST, "h/o/%2e%2e/n/git-upload-pack"),
            (Method::POST, "h//git-upload-pack"),
            (Method::POST, "h/git-upload-pack"),
            (Method::POST, "h/o/n/git-upload-pack?x"),
            (Method::PUT, "h/o/n/git-upload-pack"),
        ] {
            assert_eq!(read(&method, odd), None, "{odd}");
        }
    }
}
