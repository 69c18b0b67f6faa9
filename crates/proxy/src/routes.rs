//! The port for models and repositories: parses, checks, forwards and logs requests.

use std::convert::Infallible;

use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;

use crate::caller::Caller;
use crate::entry::{Accepted, Entry};
use crate::policy::Grants;
use crate::response::{Body, Rejection, json_answer};
use crate::token::Scope;
use crate::{git, llm};

/// Path prefix of all routes.
const PREFIX: &str = "/proxy/v1/";

/// Path prefix of models in Google's API, which its clients require.
const GOOGLE_PREFIX: &str = "/proxy/v1beta/models/";

/// The route of a request.
enum Route {
    Model(llm::ModelRequest),
    Health,
    Git(git::GitRequest),
    Credentials,
    Unknown,
}

impl Route {
    fn from_request(request: &Request<Incoming>) -> Self {
        let (method, uri) = (request.method(), request.uri());
        if let Some(path) = uri.path().strip_prefix(GOOGLE_PREFIX) {
            return llm::ModelRequest::parse_method(method, path).map_or(Self::Unknown, Self::Model);
        }
        let Some(path) = uri.path().strip_prefix(PREFIX) else { return Self::Unknown };
        if let Some(path) = path.strip_prefix("git/http/") {
            return git::GitRequest::parse(method, path, uri.query()).map_or(Self::Unknown, Self::Git);
        }
        match (method, path) {
            (&Method::GET, "health") => Self::Health,
            (&Method::POST, "git/credentials") => Self::Credentials,
            _ => llm::ModelRequest::parse(method, path).map_or(Self::Unknown, Self::Model),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Model(request) => request.route(),
            Self::Health => "health",
            Self::Git(request) => request.route(),
            Self::Credentials => "git/credentials",
            Self::Unknown => "unknown",
        }
    }
}

/// Answers one request.
pub(crate) async fn answer(caller: Caller, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let route = Route::from_request(&request);
    let mut entry = Entry::new(&caller.shared, route.name());
    Ok(match respond(&caller, route, request, &mut entry).await {
        Ok(Accepted::Whole(answer)) => {
            entry.line.status = answer.status().as_u16();
            answer
        }
        Ok(Accepted::Passing(passing)) => passing.through(entry),
        Err(no) => {
            if no == Rejection::Token {
                caller.shared.count_bad_token();
            }
            (entry.line.status, entry.line.code) = (no.status().as_u16(), Some(no.code()));
            no.answer()
        }
    })
}

/// Checks in this order: token, route, and only then the body.
async fn respond(
    caller: &Caller,
    route: Route,
    request: Request<Incoming>,
    entry: &mut Entry,
) -> Result<Accepted, Rejection> {
    let grants = caller.grants().ok_or(Rejection::Token)?;
    entry.line.policy_generation = grants.generation;
    entry.line.scope = Some("net");
    let token = request.headers().get("x-coracle-token");
    match (&route, token) {
        (Route::Model(_), Some(token)) if !caller.opens_models(token.as_bytes()) => return Err(Rejection::Token),
        (Route::Model(_), None) if !grants.llm_for_agent => return Err(Rejection::Token),
        (Route::Model(_), _) => entry.line.scope = Some("llm"),
        // A worker's first request, which checks whether its token is known.
        (Route::Health, Some(token)) if !caller.knows(|it| it.knows(Scope::Llm, token.as_bytes())) => {
            return Err(Rejection::Token);
        }
        _ => {}
    }
    let mut profiles = request.headers().get_all("x-coracle-profile").iter();
    if profiles.any(|it| it.as_bytes() != grants.profile.as_str().as_bytes()) {
        return Err(Rejection::Profile);
    }
    match route {
        Route::Model(wanted) => {
            let suits = grants.provider.as_ref().is_none_or(|it| wanted.suits(it.kind));
            if !suits {
                return Err(Rejection::Route);
            }
            llm::pass(&caller.shared, &grants, wanted, request, entry).await
        }
        Route::Health => {
            let state = json!({ "status": "ok", "profile": grants.profile.as_str() });
            Ok(Accepted::Whole(json_answer(StatusCode::OK, &state)))
        }
        Route::Git(wanted) => {
            entry.line.host = Some(crate::log::shown(&wanted.host));
            git::pass(&caller.shared, grants.git.as_ref(), &wanted, request, &entry.sent).await
        }
        Route::Credentials => git::credentials(grants.git.as_ref(), request).await,
        Route::Unknown => Err(Rejection::NotFound),
    }
}

impl Caller {
    fn opens_models(&self, token: &[u8]) -> bool {
        self.knows(|it| it.knows(Scope::Llm, token) || (it.llm_for_agent && it.knows(Scope::Net, token)))
    }

    fn knows(&self, knows: impl Fn(&Grants) -> bool) -> bool {
        self.shared.knowing(knows).is_some()
    }
}
