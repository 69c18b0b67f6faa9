//! The first line of each connection: `CORACLE/1 <token>\n`.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// Maximum size of the line, including its end.
pub(crate) const MAX: usize = 128;

/// How long the line may take to arrive.
const WITHIN: Duration = Duration::from_secs(2);

const WORD: &[u8] = b"CORACLE/1 ";

/// Reads the token and no byte behind it. `None` if it is not such a line.
///
/// # Errors
/// If the connection ends or sends nothing: then the client gets no answer.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    timeout(WITHIN, line(from)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Reads one byte at a time, since the next bytes belong to another reader. The guest sends the line in one piece, so
/// this is cheap.
async fn line(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::with_capacity(MAX);
    while line.len() < MAX {
        match from.read_u8().await? {
            b'\n' => return Ok(token(&line)),
            byte => line.push(byte),
        }
        let begins = line.len().min(WORD.len());
        if line[..begins] != WORD[..begins] {
            return Ok(None);
        }
    }
    Ok(None)
}

fn token(line: &[u8]) -> Option<Vec<u8>> {
    let token = line.strip_prefix(WORD)?;
    (!token.is_empty() && token.iter().all(u8::is_ascii_graphic)).then(|| token.to_vec())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn seen(bytes: &[u8]) -> (Option<Option<Vec<u8>>>, usize) {
        let mut rest = bytes;
        let seen = read(&mut rest).await.ok();
        (seen, rest.len())
    }

    #[tokio::test]
    async fn a_line_is_read_to_its_end_and_no_further() {
        assert_eq!(seen(b"CORACLE/1 abc\nGET /").await, (Some(Some(b"abc".to_vec())), 5));
        for odd in ["GET / HTTP/1.1\r\n", "CORACLE/2 abc\n", "CORACLE/1 \n", "CORACLE/1 a b\n", "CORACLE/1 a\r\n"] {
            assert_eq!(seen(odd.as_bytes()).await.0, Some(None), "{odd}");
        }
        assert_eq!(seen(b"CORACLE/1 abc").await.0, None, "it ended before its line did");
        let long = [WORD, &[b'x'; MAX]].concat();
        assert_eq!(seen(&long).await, (Some(None), WORD.len()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_disconnected() {
        let (_held, mut end) = tokio::io::duplex(64);
        let begun = tokio::time::Instant::now();
        assert_eq!(read(&mut end).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), WITHIN);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_token_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let (seen, left) = runtime.block_on(seen(&bytes));
            prop_assert!(bytes.len() - left <= MAX);
            if let Some(Some(token)) = seen {
                prop_assert!(bytes.starts_with(&[WORD, &token, b"\n"].concat()));
            }
        }
    }
}
