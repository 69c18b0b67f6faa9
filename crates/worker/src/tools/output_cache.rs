//! A cache of tool output that is too long for a conversation.

use std::collections::VecDeque;

/// Maximum size of a tool result in a conversation, in bytes.
const INLINE: usize = 32 << 10;

/// Size of each end of a longer output that is sent to the model, in bytes.
const SHOWN_END: usize = 15 << 10;

/// Capacity of the cache of a run, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// Complete tool outputs of a run; the oldest are evicted first.
#[derive(Debug, Default)]
pub(crate) struct OutputCache {
    all: VecDeque<(String, String)>,
    bytes: usize,
    count: u64,
}

impl OutputCache {
    /// Returns a short text unchanged; of a longer one the two ends and the id of the complete output.
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
    fn long_output_is_shortened_and_cached_until_the_cache_is_full() {
        let mut cache = OutputCache::default();
        assert_eq!(cache.shortened("x".repeat(INLINE)).len(), INLINE);
        let long = format!("start{}end", "ä".repeat(INLINE));
        let short = cache.shortened(long.clone());
        assert!(short.len() <= INLINE && short.starts_with("start") && short.ends_with("end"));
        assert!(short.contains("all of it: shell_output output_id=kept1]"));
        assert_eq!(cache.find("kept1"), Some(long.as_str()));
        for _ in 0..65 {
            cache.shortened("x".repeat(1 << 20));
        }
        assert_eq!(cache.find("kept1"), None);
        assert!(cache.find("kept66").is_some() && cache.bytes <= MAX_BYTES);
    }
}
