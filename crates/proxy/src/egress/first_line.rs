//! Tells whether a connection begins with an HTTP request.
//!
//! A server with many hosts selects one by the `Host` header. So the proxy has to see requests without TLS, too, also in
//! a tunnel: otherwise an allowed host would open all others behind the same address. What a lenient server accepts as a
//! request counts as one here.

/// The result of parsing the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstLine {
    /// There are not enough bytes yet.
    More,
    Request,
    Other,
}

/// Maximum size of a first line.
const MAX: usize = 64 << 10;

/// Maximum length of a method.
const MAX_METHOD: usize = 32;

/// Parses the bytes received so far.
pub(crate) fn first_line(bytes: &[u8]) -> FirstLine {
    // Servers skip empty lines before a request.
    let bytes = bytes.trim_ascii_start();
    let is_token = |it: &u8| it.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(it);
    let method = bytes.iter().take_while(|it| is_token(it)).count();
    let Some(after) = bytes.get(method) else {
        return if method > MAX_METHOD { FirstLine::Other } else { FirstLine::More };
    };
    if !(1..=MAX_METHOD).contains(&method) || !matches!(after, b' ' | b'\t') {
        return FirstLine::Other;
    }
    let (method, rest) = bytes.split_at(method);
    let rest = &rest[rest.iter().take_while(|it| matches!(it, b' ' | b'\t')).count()..];
    // Lengths and numbers of other protocols.
    if rest.first().is_some_and(|it| !it.is_ascii_graphic() && it.is_ascii()) {
        return FirstLine::Other;
    }
    let Some(end) = rest.iter().position(|it| matches!(it, b'\n' | b'\0')) else {
        return if rest.len() > MAX { FirstLine::Request } else { FirstLine::More };
    };
    let line = rest[..end].to_ascii_lowercase();
    // The first version of HTTP has only `GET`, and no number at the end.
    let is_request = method == b"GET" || memchr::memmem::find(&line, b"http/").is_some();
    // No server accepts a zero byte, which other protocols have.
    if rest[end] == b'\n' && is_request { FirstLine::Request } else { FirstLine::Other }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_lenient_server_accepts_is_a_request() {
        for request in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\r\n\n  POST\t/x HTTP/1.0\n",
            b"GET  http://other.example/ HTTP/1.1\r\n",
            b"GET http://other.example/\r\n",
            b"GET /\xff\xfe HTTP/1.1\r\n",
            b"X-OWN /a b c http/1.1 \r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            assert_eq!(first_line(request), FirstLine::Request, "{}", request.escape_ascii());
            for end in 0..request.len() - 10 {
                assert_eq!(first_line(&request[..end]), FirstLine::More, "{}", request[..end].escape_ascii());
            }
        }
    }

    #[test]
    fn the_first_bytes_of_other_protocols_are_no_request() {
        for other in [
            &b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"[..],
            b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
            b"*1\r\n$4\r\nPING\r\n",
            b"EHLO me\r\n",
            b"get key\r\n",
            b"CONNECT {\"verbose\":false}\r\n",
            b"0033git-upload-pack /project.git\0host=example.com\0",
            b"0 \x02\x01\x01",
            b"AMQP\x00\x00\x09\x01",
            b"OPTIONS rtsp://example.com RTSP/1.0\r\n",
            &[b'x'; 40],
        ] {
            assert_eq!(first_line(other), FirstLine::Other, "{}", other.escape_ascii());
        }
        assert_eq!(first_line(&[&b"GET /"[..], &[b'x'; MAX]].concat()), FirstLine::Request, "a line without an end");
    }

    proptest! {
        #[test]
        fn a_request_that_a_parser_accepts_is_one(method in "[A-Z]{1,9}", path in "/[!-~]{0,20}", host in "[a-z]{1,9}") {
            let text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            prop_assert_eq!(first_line(text.as_bytes()), FirstLine::Request);
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            first_line(&bytes);
        }
    }
}
