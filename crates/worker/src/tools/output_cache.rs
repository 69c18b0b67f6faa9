//! Tool output that is too long for a conversation.

use std::collections::VecDeque;

/// Bytes of one answer in a conversation.
const INLINE: usize = 32 << 10;

/// Bytes of each end of a longer output that the model receives.
const SHOWN_END: usize = 15 << 10;

/// Bytes that are kept for a run.
const MAX_BYTES: usize = 64 << 20;

/// Whole answers of a run, the oldest forgotten first.
#[derive(Debug, Default)]
pub(crate) struct OutputCache {
    all: VecDeque<(String, String)>,
    bytes: usize,
    count: u64,
}

impl OutputCache {
    /// A text as it is, or its two ends and where the rest is.
    pub(crate) fn shortened(&mut self, text: String) -> String {
        if text.len() <= INLINE {
            return text;
        }
        self.count += 1;
        let id = format!("kept{}", self.count);
        let (head, tail) =
            (&text[..text.floor_char_boundary(SHOWN_END)], &text[text.ceil_char_boundary(text.len() - SHOWN_END)..]);
        let left_out = text.len() - head.len() - tail.len();
        let short = format!("{head}\n[{left_out} bytes left out; all of it: shell_output output_id={id}]\n{tail}");
        self.bytes += text.len();
        self.all.push_back((id, text));
        while self.bytes > MAX_BYTES
            && let Some((_, oldest)) = self.all.pop_front()
        {
            self.bytes -= oldest.len();
        }
        short
    }

    pub(crate) fn find(&self, id: &str) -> Option<&str> {
        self.all.iter().find(|it| it.0 == id).map(|it| it.1.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_told_by_its_ends_and_kept_until_there_is_too_much() {
        let mut kept = OutputCache::default();
        assert_eq!(kept.shortened("x".repeat(INLINE)).len(), INLINE);
        let long = format!("start{}end", "ä".repeat(INLINE));
        let short = kept.shortened(long.clone());
        assert!(short.len() <= INLINE && short.starts_with("start") && short.ends_with("end"));
        assert!(short.contains("all of it: shell_output output_id=kept1]"));
        assert_eq!(kept.find("kept1"), Some(long.as_str()));
        for _ in 0..65 {
            kept.shortened("x".repeat(1 << 20));
        }
        assert_eq!(kept.find("kept1"), None);
        assert!(kept.find("kept66").is_some() && kept.bytes <= MAX_BYTES);
    }
}
