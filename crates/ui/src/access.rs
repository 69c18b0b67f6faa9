//! Access control: the token, the cookie, `Host` and `Origin`.

use std::net::SocketAddr;

use coracle_transport::Token;
use hyper::header::{COOKIE, HOST, HeaderMap, ORIGIN};
use hyper::http::request::Parts;

/// Names by which a browser on this host reaches the server, besides its own address.
const NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// The default port of browsers.
const HTTP_PORT: u16 = 80;

/// The rules of one server.
///
/// Browsers send a cookie of a loopback address to servers on all its ports, also to one that a container publishes. So
/// the cookie is restricted to a secret path, and everything is served below it.
pub(crate) struct PageAccess {
    token: Token,
    text: String,
    prefix: String,
    authorities: Vec<String>,
}

/// The decision on a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It has the token in its URL: it gets the cookie.
    SetCookie,
    /// It requests that path below the secret one.
    Path(String),
    /// Its `Host` or `Origin` is another server.
    Foreign,
    /// It has no token.
    NoToken,
}

impl PageAccess {
    /// Creates the rules of a server that listens on that address.
    pub(crate) fn new(token: Token, text: &str, address: SocketAddr) -> Self {
        let prefix = format!("/{}/", coracle_types::random_hex::<16>());
        Self { token, text: text.to_owned(), prefix, authorities: authorities(address) }
    }

    /// The secret path, with a slash at both ends.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The value of `Set-Cookie`.
    pub(crate) fn cookie(&self) -> String {
        format!("coracle_ui={}; Path={}; HttpOnly; SameSite=Strict", self.text, self.prefix)
    }

    /// Decides by the request's head.
    pub(crate) fn admit(&self, head: &Parts) -> Admission {
        if !self.is_own_host(&head.headers) || !self.is_own_origin(head) {
            return Admission::Foreign;
        }
        let path = head.uri.path();
        let token = head.uri.query().and_then(|it| it.strip_prefix("token="));
        if path == "/" && hyper::Method::GET == head.method && token.is_some_and(|it| self.token.matches(it.as_bytes()))
        {
            return Admission::SetCookie;
        }
        match path.strip_prefix(&self.prefix) {
            Some(below) if self.has_cookie(&head.headers) => Admission::Path(below.to_owned()),
            _ => Admission::NoToken,
        }
    }

    fn is_own_host(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let is_own = hosts.next().is_some_and(|it| self.authorities.iter().any(|own| it == own.as_str()));
        is_own && hosts.next().is_none()
    }

    /// Whether the origin is this server. A plain `GET` may have none.
    fn is_own_origin(&self, head: &Parts) -> bool {
        let is_own = |it: &hyper::header::HeaderValue| {
            let authority = it.to_str().ok().and_then(|it| it.strip_prefix("http://"));
            authority.is_some_and(|it| self.authorities.iter().any(|own| own == it))
        };
        let mut origins = head.headers.get_all(ORIGIN).iter().peekable();
        let is_plain = hyper::Method::GET == head.method && !head.headers.contains_key(hyper::header::UPGRADE);
        (is_plain || origins.peek().is_some()) && origins.all(is_own)
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(';'));
        let mut ours = cookies.filter_map(|it| it.trim().strip_prefix("coracle_ui="));
        ours.any(|it| self.token.matches(it.as_bytes()))
    }
}

/// Returns valid `Host` headers for that address.
fn authorities(address: SocketAddr) -> Vec<String> {
    let own = if address.is_ipv6() { format!("[{}]", address.ip()) } else { address.ip().to_string() };
    let names: Vec<String> = NAMES.map(str::to_owned).into_iter().chain([own]).collect();
    let with_port: Vec<String> = names.iter().map(|it| format!("{it}:{}", address.port())).collect();
    if address.port() == HTTP_PORT { [with_port, names].concat() } else { with_port }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn access() -> PageAccess {
        access_at("127.0.0.1:8000")
    }

    fn access_at(address: &str) -> PageAccess {
        let (token, text) = Token::generate();
        PageAccess::new(token, &text, address.parse().unwrap())
    }

    fn admitted(access: &PageAccess, method: &str, path: &str, headers: &[(&str, &str)]) -> Admission {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        access.admit(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn the_token_gives_a_cookie_for_the_secret_path_only() {
        let access = access();
        let host = ("host", "127.0.0.1:8000");
        let with_token = format!("/?token={}", access.text);
        assert_eq!(admitted(&access, "GET", &with_token, &[host]), Admission::SetCookie);
        for wrong in ["/", "/?token=", "/?token=no", &format!("{with_token}0"), &format!("/x?token={}", access.text)] {
            assert_eq!(admitted(&access, "GET", wrong, &[host]), Admission::NoToken, "{wrong}");
        }
        let cookie = format!("a=b; coracle_ui={}", access.text);
        let path = format!("{}static/app.js", access.prefix);
        let found = admitted(&access, "GET", &path, &[host, ("cookie", &cookie)]);
        assert_eq!(found, Admission::Path("static/app.js".into()));
        assert_eq!(admitted(&access, "GET", &path, &[host]), Admission::NoToken);
        assert_eq!(admitted(&access, "GET", &path, &[host, ("cookie", "coracle_ui=no")]), Admission::NoToken);
        assert_eq!(admitted(&access, "GET", "/static/app.js", &[host, ("cookie", &cookie)]), Admission::NoToken);
        assert!(access.cookie().contains(&format!("Path={}; HttpOnly; SameSite=Strict", access.prefix)));
    }

    #[test]
    fn another_host_or_origin_is_refused() {
        let access = access();
        let cookie = format!("coracle_ui={}", access.text);
        let check = |method: &str, host: &str, more: &[(&str, &str)]| {
            let headers = [&[("host", host), ("cookie", &cookie)], more].concat();
            admitted(&access, method, &access.prefix, &headers) != Admission::Foreign
        };
        let own = "127.0.0.1:8000";
        assert!(check("GET", own, &[]) && check("GET", "localhost:8000", &[]) && check("GET", "[::1]:8000", &[]));
        for host in
            ["127.0.0.1", "127.0.0.1:8001", "evil.example:8000", "localhost.evil.example:8000", "127.0.0.2:8000"]
        {
            assert!(!check("GET", host, &[]), "{host}");
        }
        assert!(check("POST", own, &[("origin", "http://127.0.0.1:8000")]));
        assert!(!check("POST", own, &[]) && !check("GET", own, &[("upgrade", "websocket")]));
        for origin in ["null", "http://127.0.0.1:8001", "https://127.0.0.1:8000", "http://evil.example", "file://"] {
            for (method, more) in [("POST", None), ("GET", None), ("GET", Some(("upgrade", "websocket")))] {
                let headers: Vec<_> = [("origin", origin)].into_iter().chain(more).collect();
                assert!(!check(method, own, &headers), "{method} {origin}");
            }
        }
        assert!(!check("GET", own, &[("host", own)]));
    }

    #[test]
    fn the_printed_address_is_accepted() {
        for (address, host, origin) in [
            ("127.0.0.2:8000", "127.0.0.2:8000", "http://127.0.0.2:8000"),
            ("[::1]:8000", "[::1]:8000", "http://[::1]:8000"),
            ("127.0.0.1:80", "127.0.0.1", "http://localhost"),
            ("[::1]:80", "[::1]", "http://[::1]"),
        ] {
            let found = admitted(&access_at(address), "GET", "/", &[("host", host), ("origin", origin)]);
            assert_eq!(found, Admission::NoToken, "{address}");
        }
        assert_eq!(admitted(&access(), "GET", "/", &[("host", "127.0.0.1")]), Admission::Foreign);
    }
}
