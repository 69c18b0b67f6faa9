//! The server name in a TLS ClientHello.

/// The result of parsing the first bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    /// There are not enough bytes yet.
    More,
    /// It names the server, in lower case.
    Named(String),
    /// It has no server name, or is no ClientHello.
    Unnamed,
}

/// Maximum size of a ClientHello.
pub(crate) const MAX: usize = 32 << 10;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// Parses the bytes received so far.
pub(crate) fn server_name(bytes: &[u8]) -> Hello {
    let mut message = Vec::new();
    let mut rest = bytes;
    // Each record has type, version and length, and a ClientHello may span several records.
    while let Some((head, after)) = rest.split_first_chunk::<5>() {
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        if head[0] != HANDSHAKE || head[1] != 3 || length == 0 {
            return Hello::Unnamed;
        }
        let Some((record, after)) = after.split_at_checked(length) else { break };
        message.extend_from_slice(record);
        rest = after;
        match whole(&message) {
            Some(hello) => return hello.and_then(named).map_or(Hello::Unnamed, Hello::Named),
            None if message.len() > MAX => return Hello::Unnamed,
            None => {}
        }
    }
    let begins = bytes.first().is_none_or(|it| *it == HANDSHAKE);
    if begins && bytes.len() <= MAX { Hello::More } else { Hello::Unnamed }
}

/// Returns the body of a complete ClientHello; `Some(None)` for another message.
fn whole(message: &[u8]) -> Option<Option<&[u8]>> {
    let (head, body) = message.split_first_chunk::<4>()?;
    if head[0] != CLIENT_HELLO {
        return Some(None);
    }
    let length = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
    body.get(..length).map(Some)
}

fn named(hello: &[u8]) -> Option<String> {
    let mut at = Cursor(hello);
    at.take(2 + 32)?; // version, random
    at.list::<1>()?; // session
    at.list::<2>()?; // ciphers
    at.list::<1>()?; // compressions
    let mut extensions = Cursor(at.list::<2>()?);
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number::<2>()?;
        let body = extensions.list::<2>()?;
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
    Some(name.to_ascii_lowercase())
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
    fn x61_the_name_is_found_wherever_the_hello_is_split() {
        let message = with(&[entry("Example.COM"), vec![0, 16, 0, 3, 0, 1, 0]].concat());
        for size in [1, 2, 7, 60, 1000] {
            let bytes = records(&message, size);
            assert_eq!(server_name(&bytes), Hello::Named("example.com".into()), "{size}");
            assert_eq!(server_name(&[&bytes[..], b"more"].concat()), Hello::Named("example.com".into()));
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

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            server_name(&bytes);
            server_name(&records(&with(&bytes), 50));
            server_name(&records(&bytes, 50));
        }
    }
}
