//! Output of a program in a sandbox, as a stream.

use coracle_types::{Exit, LimitKind};
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::frame::Frame;
use crate::{Code, Failure, Result};

/// Bytes of a piece of a line that is longer.
pub const MAX_PIECE: usize = 1 << 20;

/// Bytes of standard error that are retained, from its end.
pub const MAX_STDERR: usize = 64 << 10;

/// What a program says. To drop it ends the program's tree.
#[derive(Debug)]
pub struct ExecStream {
    frames: mpsc::Receiver<Result<Frame>>,
    cancel: CancellationToken,
    /// Fires `cancel` when the receiver is dropped.
    _guard: DropGuard,
    over: bool,
}

impl ExecStream {
    /// A stream of received frames. The sender ends the program when `cancel` fires.
    #[must_use]
    pub fn new(frames: mpsc::Receiver<Result<Frame>>, cancel: CancellationToken) -> Self {
        Self { frames, _guard: cancel.clone().drop_guard(), cancel, over: false }
    }

    /// Raw bytes, then the exit.
    pub fn frames(self) -> impl Stream<Item = Result<Frame>> + Send + Unpin {
        Box::pin(unfold(self, |mut it| async { it.next().await.map(|frame| (frame, it)) }))
    }

    /// Standard output by lines, in pieces of [`MAX_PIECE`] where one is longer. An exit that is not 0 is an error.
    pub fn lines(self) -> impl Stream<Item = Result<String>> + Send + Unpin {
        let state = (self, Text::default());
        Box::pin(unfold(state, |(mut stream, mut text)| async {
            loop {
                if let Some(line) = text.next_line() {
                    return Some((Ok(line), (stream, text)));
                }
                if let Some(failure) = text.failure.take() {
                    return Some((Err(failure), (stream, text)));
                }
                match stream.next().await? {
                    Ok(Frame::Stdout(bytes)) => text.push(&bytes),
                    Ok(Frame::Stderr(bytes)) => text.push_stderr(&bytes),
                    Ok(Frame::Exit(exit)) => {
                        // A failed end is reported after the last line.
                        text.failure = ended(exit, &text.stderr).err();
                        if let Some(line) = text.rest() {
                            return Some((Ok(line), (stream, text)));
                        }
                    }
                    Err(failure) => return Some((Err(failure), (stream, text))),
                }
            }
        }))
    }

    /// The first bytes of standard output, all of it read.
    ///
    /// # Errors
    /// As [`lines`](Self::lines).
    pub async fn collect(mut self, limit: usize) -> Result<Vec<u8>> {
        let (mut bytes, mut text) = (Vec::new(), Text::default());
        while let Some(frame) = self.next().await {
            match frame? {
                Frame::Stdout(more) => bytes.extend(&more[..more.len().min(limit - bytes.len())]),
                Frame::Stderr(more) => text.push_stderr(&more),
                Frame::Exit(exit) => ended(exit, &text.stderr)?,
            }
        }
        Ok(bytes)
    }

    /// Ends the program's tree; the exit follows.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    async fn next(&mut self) -> Option<Result<Frame>> {
        if self.over {
            return None;
        }
        let lost = || Failure::new(Code::SandboxLost, "The sandbox was lost before the command ended.");
        let frame = self.frames.recv().await.unwrap_or_else(|| Err(lost()));
        self.over = matches!(frame, Err(_) | Ok(Frame::Exit(_)));
        Some(frame)
    }
}

fn ended(exit: Exit, stderr: &[u8]) -> Result<()> {
    let failed = |code, message: String| {
        let stderr = String::from_utf8_lossy(stderr).into_owned();
        Err(Failure::new(code, message).detail("stderr", stderr))
    };
    match exit {
        Exit::Code(0) => Ok(()),
        Exit::Code(code) => {
            let message = format!("Command exited with code {code}: {}", String::from_utf8_lossy(stderr).trim_end());
            failed(Code::CommandFailed, message).map_err(|it| it.detail("exit_code", code))
        }
        Exit::TimedOut(LimitKind::Total) => failed(Code::CommandTimedOut, "The command took too long.".into()),
        Exit::TimedOut(LimitKind::Silence) => {
            failed(Code::CommandTimedOut, "The command was silent for too long.".into())
        }
        Exit::Cancelled => failed(Code::Cancelled, "The command was cancelled.".into()),
        Exit::Running(_) => failed(Code::CommandTimedOut, "The command goes on.".into()),
    }
}

#[derive(Debug, Default)]
struct Text {
    bytes: Vec<u8>,
    stderr: Vec<u8>,
    failure: Option<Failure>,
}

impl Text {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn push_stderr(&mut self, bytes: &[u8]) {
        self.stderr.extend_from_slice(bytes);
        self.stderr.drain(..self.stderr.len().saturating_sub(MAX_STDERR));
    }

    fn next_line(&mut self) -> Option<String> {
        let end = self.bytes.iter().take(MAX_PIECE).position(|it| *it == b'\n');
        match end {
            Some(end) => {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                Some(String::from_utf8_lossy(&line[..end]).into_owned())
            }
            None if self.bytes.len() > MAX_PIECE => {
                let piece: Vec<u8> = self.bytes.drain(..MAX_PIECE).collect();
                Some(String::from_utf8_lossy(&piece).into_owned())
            }
            None => None,
        }
    }

    fn rest(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.bytes);
        (!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    fn stream(frames: Vec<Frame>) -> ExecStream {
        let (send, receive) = mpsc::channel(frames.len().max(1));
        frames.into_iter().for_each(|it| send.try_send(Ok(it)).unwrap());
        ExecStream::new(receive, CancellationToken::new())
    }

    async fn lines(frames: Vec<Frame>) -> Vec<Result<String, (Code, String)>> {
        stream(frames).lines().map(|it| it.map_err(|it| (it.code, it.message))).collect().await
    }

    fn out(bytes: &[u8]) -> Frame {
        Frame::Stdout(bytes.to_vec())
    }

    #[tokio::test]
    async fn x12_lines_lose_their_end_only() {
        let received = lines(vec![out(b"a\r\n\nb\xff"), out(b"c"), Frame::Exit(Exit::Code(0))]).await;
        assert_eq!(received, [Ok("a\r".into()), Ok(String::new()), Ok("b\u{fffd}c".into())]);
        let received = lines(vec![out(&vec![b'x'; 3 << 20]), out(b"\n"), Frame::Exit(Exit::Code(0))]).await;
        let lengths: Vec<usize> = received.iter().map(|it| it.as_ref().unwrap().len()).collect();
        assert_eq!((lengths.iter().sum::<usize>(), lengths[0]), (3 << 20, 1 << 20));
    }

    #[tokio::test]
    async fn x14_a_bad_end_comes_after_the_lines() {
        for (printed, count) in [(&b"one\n"[..], 2), (b"one\ntwo", 3)] {
            let frames = vec![out(printed), Frame::Stderr(b"why\n".to_vec()), Frame::Exit(Exit::Code(3))];
            let received = lines(frames).await;
            assert_eq!(received[0], Ok("one".into()));
            assert_eq!(received.len(), count);
            let message = "Command exited with code 3: why".to_owned();
            assert_eq!(received.last().unwrap(), &Err((Code::CommandFailed, message)));
        }
    }

    #[tokio::test]
    async fn x15_a_stream_that_breaks_is_no_end() {
        let received = lines(vec![out(b"one\n")]).await;
        assert!(matches!(&received[1], Err((Code::SandboxLost, _))) && received.len() == 2, "{received:?}");
        assert_eq!(stream(vec![out(b"x")]).collect(10).await.unwrap_err().code, Code::SandboxLost);
        let (frames, cancel) = (stream(vec![]), CancellationToken::new());
        drop(ExecStream { _guard: cancel.clone().drop_guard(), ..frames });
        assert!(cancel.is_cancelled(), "to drop it ends the program");
    }
}
