//! Input of a terminal, up to the keys that detach.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::keyboard::Keyboard;

/// Ctrl-P, then Ctrl-Q.
const FIRST: u8 = 0x10;
const SECOND: u8 = 0x11;

/// Time that the first key waits for the second one: alone, it is the shell's "previous line".
const HOLD: Duration = Duration::from_millis(400);

/// Recognises the two keys; the first one waits for the second.
#[derive(Debug, Default)]
struct DetachKeys {
    held: bool,
}

/// What to do with typed bytes.
#[derive(Debug, PartialEq, Eq)]
struct KeyOutcome {
    bytes: Vec<u8>,
    detach: bool,
}

impl DetachKeys {
    fn push(&mut self, typed: &[u8]) -> KeyOutcome {
        let mut bytes = Vec::with_capacity(typed.len() + 1);
        for &byte in typed {
            if self.held && byte == SECOND {
                return KeyOutcome { bytes, detach: true };
            }
            bytes.extend(self.flush());
            self.held = byte == FIRST;
            bytes.extend((!self.held).then_some(byte));
        }
        KeyOutcome { bytes, detach: false }
    }

    /// Returns the waiting key, because no second one came.
    fn flush(&mut self) -> Option<u8> {
        std::mem::take(&mut self.held).then_some(FIRST)
    }
}

/// Passes input on until the user detaches or the terminal is closed.
pub(super) async fn pass_on(keyboard: &mut Keyboard, to: mpsc::Sender<Vec<u8>>) {
    let mut keys = DetachKeys::default();
    loop {
        let typed = match keys.held {
            true => keyboard.next_within(HOLD).await,
            false => keyboard.next().await.map(Some),
        };
        let typed = match typed {
            Ok(Some(bytes)) if !bytes.is_empty() => keys.push(&bytes),
            Ok(None) => KeyOutcome { bytes: keys.flush().into_iter().collect(), detach: false },
            _ => return,
        };
        let is_sent = typed.bytes.is_empty() || to.send(typed.bytes).await.is_ok();
        if typed.detach || !is_sent {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DetachKeys, KeyOutcome};

    #[test]
    fn only_both_keys_in_a_row_detach() {
        let passed = |bytes: &[u8]| KeyOutcome { bytes: bytes.to_vec(), detach: false };
        let mut keys = DetachKeys::default();
        assert_eq!(keys.push(b"ls\r\x11"), passed(b"ls\r\x11"));
        assert_eq!(keys.push(b"\x10"), passed(b""));
        assert_eq!(keys.push(b"\x10x"), passed(b"\x10\x10x"));
        assert_eq!(keys.push(b"a\x10"), passed(b"a"));
        assert_eq!((keys.flush(), keys.flush()), (Some(0x10), None));
        assert_eq!(keys.push(b"\x11"), passed(b"\x11"));
        assert_eq!(keys.push(b"a\x10"), passed(b"a"));
        assert_eq!(keys.push(b"\x11b"), KeyOutcome { bytes: Vec::new(), detach: true });
    }
}
