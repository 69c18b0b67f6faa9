//! Documents as text: columns as wide as the terminal, colours, and symbols that a pipe gets as letters.

use std::time::Duration;

use anstyle::Style as Colour;
use coracle::document::{Block, Document, DurationPlace, Span, Style, StyledText, Symbol};
use coracle::humanize::{duration, millis};

use super::table::{self, View};
use super::{BAD, DIM, DOUBTFUL, GOOD, NAME};

/// How a document is laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    view: View,
    /// Symbols for marks; letters otherwise.
    symbols: bool,
}

impl Layout {
    /// For standard output, which is a terminal or not.
    pub(crate) fn of_stdout(is_terminal: bool) -> Self {
        Self { view: View::of_stdout(), symbols: is_terminal }
    }

    /// For lines that stay above what changes on a terminal.
    pub(crate) fn above_progress() -> Self {
        Self { view: View::of_stdout(), symbols: true }
    }

    /// A document, with the duration of its call where that is told. Steps of these names were shown already.
    pub(crate) fn document(&self, document: &Document, shown: &[String], took: Duration) -> String {
        let is_new = |it: &&Block| !matches!(it, Block::Step { name, .. } if shown.contains(name));
        let blocks: Vec<String> = document.blocks.iter().filter(is_new).map(|it| self.block(it)).collect();
        let text = blocks.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join("\n");
        let took = format!(" {DIM}({}){DIM:#}", duration(millis(took)));
        match (document.duration, text.find('\n')) {
            (DurationPlace::None, _) => text,
            (DurationPlace::FirstLine, Some(end)) => format!("{}{took}{}", &text[..end], &text[end..]),
            (DurationPlace::FirstLine, None) | (DurationPlace::LastLine, _) => text + &took,
        }
    }

    /// A part of a document.
    pub(crate) fn block(&self, block: &Block) -> String {
        match block {
            Block::Line(line) => self.text(line),
            Block::Step { lines, .. } => lines.iter().map(|it| self.text(it)).collect::<Vec<_>>().join("\n"),
            Block::Facts(facts) => {
                let facts: Vec<_> = facts.iter().map(|(name, value)| (*name, self.text(value))).collect();
                super::facts(&facts).join("\n")
            }
            Block::Table(table) => {
                let rows = table.rows.iter().map(|it| it.iter().map(|cell| self.text(cell)).collect()).collect();
                table::lines(&table.columns, rows, self.view).join("\n")
            }
        }
    }

    /// A text with its colours.
    pub(crate) fn text(&self, text: &StyledText) -> String {
        text.spans.iter().map(|it| self.span(it)).collect()
    }

    fn span(&self, span: &Span) -> String {
        let (colour, words) = match span {
            Span::Words(Style::Plain, words) => return words.clone(),
            Span::Words(style, words) => (colour(*style), words.as_str()),
            Span::Symbol(mark) => (symbol_colour(*mark), if self.symbols { mark.symbol() } else { letter(*mark) }),
        };
        format!("{colour}{words}{colour:#}")
    }
}

fn colour(style: Style) -> Colour {
    match style {
        Style::Plain => Colour::new(),
        Style::Name => NAME,
        Style::Dim => DIM,
        Style::Good => GOOD,
        Style::Doubtful => DOUBTFUL,
        Style::Bad => BAD,
    }
}

fn symbol_colour(mark: Symbol) -> Colour {
    match mark {
        Symbol::Success => GOOD,
        Symbol::Skipped => DIM,
        Symbol::Partial => DOUBTFUL,
        Symbol::Failed => BAD,
    }
}

fn letter(mark: Symbol) -> &'static str {
    match mark {
        Symbol::Success => "+",
        Symbol::Skipped => "-",
        Symbol::Partial => "!",
        Symbol::Failed => "x",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coracle::document::{Block, Document, StyledText, Symbol};

    use super::Layout;
    use crate::render::bare;
    use crate::render::table::View;

    fn layout(symbols: bool) -> Layout {
        Layout { view: View::whole(), symbols }
    }

    #[test]
    fn a_pipe_gets_letters_for_marks() {
        let marks = [Symbol::Success, Symbol::Skipped, Symbol::Partial, Symbol::Failed];
        let line = marks.iter().fold(StyledText::new(), |line, it| line.symbol(*it));
        assert_eq!(bare(&layout(true).text(&line)), "✓–!✗");
        assert_eq!(bare(&layout(false).text(&line)), "+-!x");
    }

    #[test]
    fn a_duration_is_told_once_and_a_step_that_was_shown_is_left_out() {
        let text = |document: &Document| {
            let text = layout(false).document(document, &["user".to_owned()], Duration::from_millis(1249));
            bare(&text)
        };
        let two = || Document::line("one").then("two");
        assert_eq!(text(&two()), "one\ntwo");
        assert_eq!(text(&two().timed()), "one (1.2 s)\ntwo");
        assert_eq!(text(&two().timed_at_the_end()), "one\ntwo (1.2 s)");
        let step = |name: &str| Block::Step { name: name.into(), lines: vec![name.into()] };
        let steps = Document { blocks: vec![step("image"), step("user")], ..Document::default() };
        assert_eq!(text(&steps.then("ready")), "image\nready");
    }

    #[test]
    fn facts_stand_in_two_columns_and_empty_ones_nowhere() {
        let facts = Document::line("web").facts([("id", "01".into()), ("image", "x".into()), ("user", "".into())]);
        assert_eq!(bare(&layout(false).document(&facts, &[], Duration::ZERO)), "web\n  id     01\n  image  x");
    }
}
