//! Reads frames from a byte stream.

pub use coracle_protocol::codec::{Error, Frame};
use coracle_protocol::codec::{Head, PRELUDE, Prelude};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads the next frame; `None` if the stream ends between two frames.
///
/// Not cancel safe: a partly read frame is lost.
///
/// # Errors
/// [`Error`]; after it, no further frame can be read.
pub async fn read<T: Head>(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<Frame<T>>, Error> {
    let mut prelude = [0; PRELUDE];
    if from.read(&mut prelude[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut prelude[1..]).await?;
    let prelude = Prelude::parse(prelude)?;
    let mut head = vec![0; prelude.header];
    from.read_exact(&mut head).await?;
    let mut payload = vec![0; prelude.payload];
    from.read_exact(&mut payload).await?;
    prelude.frame(&head, payload).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::HostMessage;

    #[tokio::test]
    async fn a_truncated_frame_is_an_error() {
        let mut bytes = Vec::new();
        Frame { channel: 1, head: HostMessage::Data { last: true }, payload: b"input".to_vec() }.write_to(&mut bytes);
        for cut in 1..bytes.len() {
            assert!(matches!(read::<HostMessage>(&mut &bytes[..cut]).await, Err(Error::Io(_))), "{cut}");
        }
        let mut rest = bytes.as_slice();
        assert_eq!(read::<HostMessage>(&mut rest).await.unwrap().unwrap().payload, b"input");
        assert!(read::<HostMessage>(&mut rest).await.unwrap().is_none());
    }
}
