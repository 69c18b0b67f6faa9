//! Parser of event streams.

/// Maximum size of one event, in bytes.
const MAX_EVENT: usize = 8 << 20;

/// Splits bytes that arrive in pieces of any size into the data of complete events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    bytes: Vec<u8>,
}

/// An event was longer than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Events {
    /// Returns the data of all complete lines. Comments, names and ids are skipped.
    ///
    /// # Errors
    /// A line exceeds the limit.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<Vec<String>, TooLong> {
        self.bytes.extend_from_slice(piece);
        let mut events = Vec::new();
        let Some(last) = self.bytes.iter().rposition(|it| matches!(it, b'\n' | b'\r')) else {
            return if self.bytes.len() > MAX_EVENT { Err(TooLong) } else { Ok(events) };
        };
        let whole: Vec<u8> = self.bytes.drain(..=last).collect();
        for line in whole.split(|it| matches!(it, b'\n' | b'\r')) {
            if let Some(data) = line.strip_prefix(b"data:") {
                events.push(String::from_utf8_lossy(data).trim().to_owned());
            }
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_complete_for_any_split_of_the_bytes() {
        let text = ": remark\r\n\r\ndata: {\"a\":\"\u{e4}\"}\n\nevent: x\ndata:[DONE]\n\ndata: cut";
        for size in [1, 2, 3, 5, 7, 1000] {
            let (mut events, mut read) = (Events::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                read.extend(events.push(piece).unwrap());
            }
            assert_eq!(read, ["{\"a\":\"\u{e4}\"}", "[DONE]"], "{size}");
        }
        assert_eq!(Events::default().push(&vec![b'x'; MAX_EVENT + 1]), Err(TooLong));
    }
}
