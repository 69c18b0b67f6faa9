//! The server name in a TLS ClientHello.
//!
//! A hello may contain an encrypted one for another server (ECH). Then the server name in it says nothing: who has the
//! key, such as a content delivery network, answers for the encrypted name. Browsers also send encrypted hellos that
//! mean nothing, which look the same.

/// The result of parsing the first bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    /// There are not enough bytes yet.
    More,
    /// It names the server, in lower case.
    Named(String),
    /// It names that server, and perhaps another one in an encrypted hello.
    Hidden(String),
    /// It has no server name, or is no ClientHello.
    Unnamed,
}

/// Maximum size of a ClientHello.
pub(crate) const MAX: usize = 32 << 10;

/// The type of the records of a handshake.
pub(crate) const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

const SERVER_HELLO: u8 = 2;

/// The extension `application_layer_protocol_negotiation`.
const PROTOCOLS: usize = 16;

/// The extension `encrypted_client_hello`.
const ENCRYPTED_HELLO: usize = 0xfe0d;

/// The random number of a ServerHello that requests another ClientHello.
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Types of records that may stand before a second ClientHello: a change of ciphers without a meaning, and early data.
const BETWEEN: [u8; 2] = [20, 23];

/// The first message of a handshake.
enum FirstMessage {
    More,
    /// Type and body. All bytes of the records up to its end are counted in `length`.
    Whole {
        kind: u8,
        body: Vec<u8>,
        length: usize,
    },
    /// It is no handshake, or continues behind the message.
    Other,
}

/// Parses the bytes that a client has sent so far.
pub(crate) fn server_name(bytes: &[u8]) -> Hello {
    match first_message(bytes) {
        FirstMessage::More => Hello::More,
        FirstMessage::Whole { kind: CLIENT_HELLO, body, .. } => named(&body).unwrap_or(Hello::Unnamed),
        FirstMessage::Whole { .. } | FirstMessage::Other => Hello::Unnamed,
    }
}

/// Returns the number of bytes of a ClientHello that was found.
pub(crate) fn hello_length(bytes: &[u8]) -> usize {
    if let FirstMessage::Whole { length, .. } = first_message(bytes) { length } else { bytes.len() }
}

/// Whether a server requests another ClientHello, which may have another name; `None` if there are not enough bytes.
pub(crate) fn is_retry(bytes: &[u8]) -> Option<bool> {
    match first_message(bytes) {
        FirstMessage::More => None,
        FirstMessage::Whole { kind, body, .. } => Some(kind == SERVER_HELLO && body.get(2..34) == Some(&RETRY[..])),
        FirstMessage::Other => Some(false),
    }
}

/// Parses the bytes that a client has sent after it was requested to send another ClientHello.
pub(crate) fn second_server_name(mut bytes: &[u8]) -> Hello {
    while let Some((head, after)) = bytes.split_first_chunk::<5>().filter(|it| BETWEEN.contains(&it.0[0])) {
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        let Some(after) = after.get(length..) else { return Hello::More };
        bytes = after;
    }
    match bytes.first() {
        Some(kind) if BETWEEN.contains(kind) => Hello::More,
        _ => server_name(bytes),
    }
}

fn first_message(bytes: &[u8]) -> FirstMessage {
    let mut message = Vec::new();
    let mut rest = bytes;
    // Each record has type, version and length, and a message may span several records.
    while let Some((head, after)) = rest.split_first_chunk::<5>() {
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        if head[0] != HANDSHAKE || head[1] != 3 || length == 0 {
            return FirstMessage::Other;
        }
        let Some((record, after)) = after.split_at_checked(length) else { break };
        message.extend_from_slice(record);
        rest = after;
        let Some((head, body)) = message.split_first_chunk::<4>() else { continue };
        let length = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
        let (kind, received) = (head[0], body.len());
        // A client has nothing to send behind its hello. A server's messages may share a record.
        if received > length && kind == CLIENT_HELLO {
            return FirstMessage::Other;
        }
        if let Some(body) = body.get(..length) {
            return FirstMessage::Whole { kind, body: body.to_vec(), length: bytes.len() - rest.len() };
        }
        if received > MAX {
            return FirstMessage::Other;
        }
    }
    let begins = bytes.first().is_none_or(|it| *it == HANDSHAKE);
    if begins && bytes.len() <= MAX { FirstMessage::More } else { FirstMessage::Other }
}

/// Whether a client offers to speak HTTP.
pub(crate) fn offers_http(bytes: &[u8]) -> bool {
    let FirstMessage::Whole { kind: CLIENT_HELLO, body, .. } = first_message(bytes) else { return false };
    protocols(&body).unwrap_or_default().iter().any(|it| [&b"h2"[..], b"http/1.1"].contains(it))
}

/// The protocols that a client offers.
fn protocols(hello: &[u8]) -> Option<Vec<&[u8]>> {
    let mut extensions = extensions(hello)?;
    while !extensions.0.is_empty() {
        let kind = extensions.number::<2>()?;
        let body = extensions.list::<2>()?;
        if kind == PROTOCOLS {
            let mut names = Cursor(Cursor(body).list::<2>()?);
            return Some(std::iter::from_fn(|| names.list::<1>()).collect());
        }
    }
    None
}

fn extensions(hello: &[u8]) -> Option<Cursor<'_>> {
    let mut at = Cursor(hello);
    at.take(2 + 32)?; // version, random
    at.list::<1>()?; // session
    at.list::<2>()?; // ciphers
    at.list::<1>()?; // compressions
    at.list::<2>().map(Cursor)
}

fn named(hello: &[u8]) -> Option<Hello> {
    let mut extensions = extensions(hello)?;
    let (mut name, mut is_hidden) = (None, false);
    while !extensions.0.is_empty() {
        let kind = extensions.number::<2>()?;
        let body = extensions.list::<2>()?;
        is_hidden |= kind == ENCRYPTED_HELLO;
        if kind == 0 {
            // Exactly one extension with one name: of two, the server may use the other one.
            let mut names = Cursor(Some(body).filter(|_| name.is_none())?);
            let mut one = Cursor(names.list::<2>()?);
            let kind = one.number::<1>()?;
            name = Some(one.list::<2>()?).filter(|_| kind == 0 && one.0.is_empty() && names.0.is_empty());
            name?;
        }
    }
    let name = std::str::from_utf8(name?).ok().filter(|it| it.is_ascii() && !it.is_empty())?;
    let name = name.to_ascii_lowercase();
    Some(if is_hidden { Hello::Hidden(name) } else { Hello::Named(name) })
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number<const N: usize>(&mut self) -> Option<usize> {
        Some(self.take(N)?.iter().fold(0, |number, it| number << 8 | usize::from(*it)))
    }

    /// Reads bytes that are preceded by their length.
    fn list<const N: usize>(&mut self) -> Option<&'a [u8]> {
        let count = self.number::<N>()?;
        self.take(count)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(width: usize, bytes: &[u8]) -> Vec<u8> {
        [&bytes.len().to_be_bytes()[8 - width..], bytes].concat()
    }

    fn entry(name: &str) -> Vec<u8> {
        let one = [&[0][..], &list(2, name.as_bytes())].concat();
        [&[0, 0][..], &list(2, &list(2, &one))].concat()
    }

    fn with(extensions: &[u8]) -> Vec<u8> {
        let body =
            [&[3, 3][..], &[7; 32], &list(1, &[9; 32]), &list(2, &[0x13, 1]), &list(1, &[0]), &list(2, extensions)];
        [&[CLIENT_HELLO][..], &list(3, &body.concat())].concat()
    }

    /// Splits a message into records of at most `size` bytes.
    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message.chunks(size).flat_map(|it| [&[HANDSHAKE, 3, 1][..], &list(2, it)].concat()).collect()
    }

    /// Builds a ClientHello for this server.
    pub(crate) fn hello(name: &str) -> Vec<u8> {
        records(&with(&[&[0, 23, 0, 0][..], &entry(name)].concat()), 1 << 14)
    }

    #[test]
    fn a_hello_with_an_encrypted_one_is_noticed() {
        let extensions = [entry("front.com"), vec![0xfe, 0x0d, 0, 2, 0, 1]];
        for order in [extensions.concat(), extensions.into_iter().rev().collect::<Vec<_>>().concat()] {
            assert_eq!(server_name(&records(&with(&order), 1000)), Hello::Hidden("front.com".into()));
        }
    }

    #[test]
    fn x61_the_name_is_found_wherever_the_hello_is_split() {
        let message = with(&[entry("Example.COM"), vec![0, 16, 0, 3, 0, 1, 0]].concat());
        for size in [1, 2, 7, 60, 1000] {
            let bytes = records(&message, size);
            assert_eq!(server_name(&bytes), Hello::Named("example.com".into()), "{size}");
            let longer = [&bytes[..], b"more"].concat();
            assert_eq!(server_name(&longer), Hello::Named("example.com".into()));
            assert_eq!(hello_length(&longer), bytes.len());
            for end in 0..bytes.len() {
                assert_eq!(server_name(&bytes[..end]), Hello::More, "{size}, {end}");
            }
        }
    }

    #[test]
    fn a_hello_without_a_name_or_with_two_is_unnamed() {
        let two = [entry("a.com"), entry("b.com")].concat();
        let inner = [&[0][..], &list(2, b"a.com"), &[0], &list(2, b"b.com")].concat();
        let two_names = [&[0, 0][..], &list(2, &list(2, &inner))].concat();
        for extensions in [vec![], two, two_names, entry(""), entry("ä.com"), vec![0, 0, 0, 9, 1]] {
            assert_eq!(server_name(&records(&with(&extensions), 1000)), Hello::Unnamed, "{extensions:?}");
        }
        for odd in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x02\x01\x00\x05hello", b"\x16\x03\x01\x00\x00", b"\x15"] {
            assert_eq!(server_name(odd), Hello::Unnamed, "{odd:?}");
        }
        assert_eq!(server_name(&records(&[&[1, 1, 0, 0][..], &[0; 40000]].concat(), 1 << 14)), Hello::Unnamed);
    }

    /// Builds a server's request for another ClientHello.
    pub(crate) fn retry() -> Vec<u8> {
        records(&[&[SERVER_HELLO][..], &list(3, &[&[3, 3][..], &RETRY, &[0; 20]].concat())].concat(), 1 << 14)
    }

    #[test]
    fn a_second_hello_is_found_behind_other_records() {
        let server_hello = [&[SERVER_HELLO][..], &list(3, &[3; 60]), &[11, 0, 0, 0]].concat();
        let alert = b"\x15\x03\x03\x00\x02\x02\x28";
        for (bytes, expected) in [(retry(), true), (records(&server_hello, 30), false), (alert.to_vec(), false)] {
            assert_eq!(is_retry(&bytes), Some(expected));
        }
        assert_eq!(is_retry(&retry()[..40]), None);
        let between = b"\x14\x03\x03\x00\x01\x01\x17\x03\x03\x00\x02xx";
        let again = [&between[..], &hello("second.com")].concat();
        for end in 0..again.len() {
            assert_eq!(second_server_name(&again[..end]), Hello::More, "{end}");
        }
        assert_eq!(second_server_name(&again), Hello::Named("second.com".into()));
        let joined = records(&[with(&entry("a.com")), with(&entry("b.com"))].concat(), 1 << 14);
        assert_eq!(server_name(&joined), Hello::Unnamed, "two in one record");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (server_name(&bytes), second_server_name(&bytes), is_retry(&bytes));
            server_name(&records(&with(&bytes), 50));
            server_name(&records(&bytes, 50));
        }
    }
}
