//! Styled text.

use std::fmt::{self, Display};

use coracle_types::sanitize;
use serde::Serialize;

/// The style of a part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As it is.
    Plain,
    /// The name of the subject.
    Name,
    /// Less important.
    Dim,
    /// All is well.
    Good,
    /// A warning.
    Doubtful,
    /// Something failed.
    Bad,
}

/// A symbol before a line that shows a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// It worked.
    Success,
    /// There was nothing to do, or the line is information.
    Skipped,
    /// It worked in part, or is doubtful.
    Partial,
    /// It failed.
    Failed,
}

impl Symbol {
    /// Returns the symbol for the status of a step, an item or a check.
    #[must_use]
    pub fn of_status(status: &str) -> Self {
        match status {
            "success" | "pass" => Self::Success,
            "skipped" | "info" => Self::Skipped,
            "partial" | "warn" => Self::Partial,
            _ => Self::Failed,
        }
    }

    /// Returns the character for a terminal.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Success => "✓",
            Self::Skipped => "–",
            Self::Partial => "!",
            Self::Failed => "✗",
        }
    }
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Span {
    /// Words of one style.
    Words(Style, String),
    /// A symbol.
    Symbol(Symbol),
}

/// A styled text, usually one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StyledText {
    /// Its parts, joined without separators.
    pub spans: Vec<Span>,
}

/// Defines a method for each style.
macro_rules! styles {
    ($($(#[$doc:meta])* $name:ident: $style:ident,)*) => {
        impl StyledText {$(
            $(#[$doc])*
            #[must_use]
            pub fn $name(self, words: impl Display) -> Self {
                self.with(Style::$style, words)
            }
        )*}
    };
}

styles! {
    /// Adds words without emphasis.
    plain: Plain,
    /// Adds a name.
    name: Name,
    /// Adds less important words.
    dim: Dim,
    /// Adds words about a success.
    good: Good,
    /// Adds words of a warning.
    doubtful: Doubtful,
    /// Adds words about a failure.
    bad: Bad,
}

impl StyledText {
    /// An empty text.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn with(mut self, style: Style, words: impl Display) -> Self {
        let words = sanitize(&words.to_string());
        if !words.is_empty() {
            self.spans.push(Span::Words(style, words));
        }
        self
    }

    /// Adds a symbol.
    #[must_use]
    pub fn symbol(mut self, mark: Symbol) -> Self {
        self.spans.push(Span::Symbol(mark));
        self
    }

    /// Adds another text.
    #[must_use]
    pub fn text(mut self, other: Self) -> Self {
        self.spans.extend(other.spans);
        self
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

impl From<&str> for StyledText {
    fn from(words: &str) -> Self {
        Self::new().plain(words)
    }
}

impl From<String> for StyledText {
    fn from(words: String) -> Self {
        Self::new().plain(words)
    }
}

/// Without styles.
impl Display for StyledText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spans.iter().try_for_each(|it| match it {
            Span::Words(_, words) => f.write_str(words),
            Span::Symbol(mark) => f.write_str(mark.symbol()),
        })
    }
}

/// Joins items with commas.
pub fn joined<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|it| it.to_string()).collect::<Vec<_>>().join(", ")
}

/// Formats a value, or nothing.
pub fn optional(it: Option<impl Display>) -> String {
    it.map(|it| it.to_string()).unwrap_or_default()
}

/// Returns the word of an enumeration's value in JSON.
pub fn word(it: impl Serialize) -> String {
    serde_json::to_value(it).ok().and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::StyledText;

    #[test]
    fn a_text_cannot_control_a_terminal() {
        assert_eq!(StyledText::new().name("x\u{1b}[2J").plain("\n\ty\r").to_string(), "x\u{fffd}[2J\n\ty\u{fffd}");
        let turned = StyledText::new().bad("a\u{202e}b").dim("\u{200b}c\u{2066}").to_string();
        assert_eq!(turned, "a\u{fffd}b\u{fffd}c\u{fffd}", "what turns text around, or cannot be seen");
    }
}
