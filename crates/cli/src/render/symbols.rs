//! Marks before a line that say how it went.

use anstyle::Style;

use super::{BAD, DIM, DOUBTFUL, GOOD};

/// Signs for terminals, letters for everything else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    terminal: bool,
}

impl Marks {
    /// The marks for a stream that is, or is not, a terminal.
    pub(crate) fn of(terminal: bool) -> Self {
        Self { terminal }
    }

    /// The mark of a status word: that of a step, an item or a check.
    pub(super) fn of_status(self, status: &str) -> String {
        let (style, sign, plain): (Style, _, _) = match status {
            "success" | "pass" => (GOOD, "✓", "+"),
            "skipped" | "info" => (DIM, "–", "-"),
            "partial" | "warn" => (DOUBTFUL, "!", "!"),
            _ => (BAD, "✗", "x"),
        };
        format!("{style}{}{style:#}", if self.terminal { sign } else { plain })
    }
}

#[cfg(test)]
mod tests {
    use super::Marks;
    use crate::render::bare;

    #[test]
    fn a_pipe_gets_plain_marks() {
        let all = |terminal| {
            ["pass", "skipped", "partial", "failed"].map(|it| bare(&Marks::of(terminal).of_status(it))).join(" ")
        };
        assert_eq!((all(true).as_str(), all(false).as_str()), ("✓ – ! ✗", "+ - ! x"));
    }
}
