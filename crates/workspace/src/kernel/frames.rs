//! Replies of a kernel in what its code prints.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Bytes of one piece of a reply, which a pipe keeps together.
const MAX_PIECE: usize = 4096;

/// Bytes of a reply in base64. The driver's own limits are lower.
const MAX_REPLY: usize = 24 << 20;

/// Stands before the mark.
const BEGIN: u8 = 0x1e;

/// One stream of a kernel.
#[derive(Debug)]
pub(super) struct FrameReader {
    mark: Vec<u8>,
    pending: Vec<u8>,
    /// What came of a reply, in base64.
    reply: Vec<u8>,
}

/// What a stream has next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KernelFrame {
    /// What the code printed.
    Printed(Vec<u8>),
    /// A reply of the driver.
    Reply(Vec<u8>),
}

impl FrameReader {
    pub(super) fn new(mark: &str) -> Self {
        let mark = [&[BEGIN], mark.as_bytes()].concat();
        Self { mark, pending: Vec::new(), reply: Vec::new() }
    }

    /// Adds a piece. A possible start of a frame is held back until more comes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<KernelFrame> {
        self.pending.extend_from_slice(bytes);
        let mut frames = Vec::new();
        while let Some(at) = find(&self.pending, &self.mark) {
            let body = at + self.mark.len();
            let Some(length) = self.pending[body..].iter().take(MAX_PIECE).position(|it| *it == b'\n') else {
                if self.pending.len() - body < MAX_PIECE {
                    take_printed(&mut self.pending, at, &mut frames);
                    return frames;
                }
                // The code printed the mark: that is output like any other.
                take_printed(&mut self.pending, body, &mut frames);
                continue;
            };
            take_printed(&mut self.pending, at, &mut frames);
            let frame: Vec<u8> = self.pending.drain(..=self.mark.len() + length).collect();
            frames.extend(self.piece(&frame[self.mark.len()..frame.len() - 1]));
        }
        let held_back = (1..self.mark.len()).rev().find(|it| self.pending.ends_with(&self.mark[..*it])).unwrap_or(0);
        let printed = self.pending.len() - held_back;
        take_printed(&mut self.pending, printed, &mut frames);
        frames
    }

    /// The part that was held back, at the end of the stream.
    pub(super) fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    fn piece(&mut self, piece: &[u8]) -> Option<KernelFrame> {
        let (is_last, data) = piece.split_first()?;
        if self.reply.len() + data.len() > MAX_REPLY {
            self.reply.clear();
            return Some(KernelFrame::Reply(Vec::new()));
        }
        self.reply.extend_from_slice(data);
        if *is_last != b'.' {
            return None;
        }
        let data = std::mem::take(&mut self.reply);
        Some(KernelFrame::Reply(STANDARD.decode(data).unwrap_or_default()))
    }
}

fn take_printed(pending: &mut Vec<u8>, to: usize, frames: &mut Vec<KernelFrame>) {
    if to > 0 {
        frames.push(KernelFrame::Printed(pending.drain(..to).collect()));
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|it| it == needle)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::{FrameReader, KernelFrame};

    fn read(pieces: &[&[u8]]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut reader = FrameReader::new("mark");
        let (mut printed, mut replies) = (Vec::new(), Vec::new());
        for piece in pieces {
            for frame in reader.push(piece) {
                match frame {
                    KernelFrame::Printed(bytes) => printed.extend(bytes),
                    KernelFrame::Reply(bytes) => replies.push(bytes),
                }
            }
        }
        printed.extend(reader.end());
        (printed, replies)
    }

    #[test]
    fn replies_stand_between_what_is_printed() {
        let bytes = b"no end\x1emark+aGVs\n\x1emark.bG8=\nmore\n\x1emark.\n";
        let (printed, replies) = read(&[bytes]);
        assert_eq!((printed.as_slice(), replies), (&b"no endmore\n"[..], vec![b"hello".to_vec(), vec![]]));
    }

    #[test]
    fn a_mark_that_the_code_printed_is_output() {
        let long = [b"\x1emark+".to_vec(), vec![b'x'; 5000]].concat();
        assert_eq!(read(&[&long]), (long, vec![]));
        assert_eq!(read(&[b"\x1emar", b"x"]), (b"\x1emarx".to_vec(), vec![]));
        assert_eq!(read(&[b"\x1emark.not base64\n"]), (vec![], vec![vec![]]));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            parts in prop::collection::vec(("[a-z\u{1e}\n]{0,20}", "[a-z]{0,20}"), 0..5),
            cuts in prop::collection::vec(1_usize..9, 0..60),
        ) {
            let (mut all, mut printed, mut replies) = (Vec::new(), String::new(), Vec::new());
            for (text, reply) in &parts {
                let text = text.replace("\u{1e}m", "");
                all.extend(format!("{text}\u{1e}mark.{}\n", STANDARD.encode(reply)).bytes());
                printed.push_str(&text);
                replies.push(reply.clone().into_bytes());
            }
            let mut pieces: Vec<&[u8]> = Vec::new();
            let mut rest = all.as_slice();
            for cut in cuts {
                let (piece, more) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = more;
            }
            pieces.push(rest);
            let (seen, sent) = read(&pieces);
            prop_assert_eq!(String::from_utf8(seen).unwrap(), printed);
            prop_assert_eq!(sent, replies);
        }
    }
}
