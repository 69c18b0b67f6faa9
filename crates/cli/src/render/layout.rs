//! Lays out documents as text: columns as wide as the terminal, colours, and symbols (letters in a pipe).

use std::time::Duration;

use anstyle::Style as Colour;
use coracle_context::document::{Block, Document, DurationPlace, Span, Style, StyledText, Symbol};
use coracle_context::humanize::{duration, millis};
use textwrap::WordSplitter::NoHyphenation;

use super::table::{self, View};
use super::{BAD, DIM, DOUBTFUL, GOOD, NAME};

/// Text further to the right is not a column of a document.
const MAX_INDENT: usize = 24;

/// The layout of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    view: View,
    /// Use symbols for marks, else letters.
    symbols: bool,
}

impl Layout {
    /// For standard output, with or without a terminal.
    pub(crate) fn of_stdout(is_terminal: bool) -> Self {
        Self { view: View::of_stdout(), symbols: is_terminal }
    }

    /// For permanent lines above the progress line of a terminal.
    pub(crate) fn above_progress() -> Self {
        Self { view: View::of_stdout(), symbols: true }
    }

    /// A document, with the duration of its call if given. Steps with these names were already shown.
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
            Block::Line(line) => self.wrapped(line),
            Block::Step { lines, .. } => lines.iter().map(|line| self.wrapped(line)).collect::<Vec<_>>().join("\n"),
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

    /// Wraps a text at words, with continuation lines below its last column.
    fn wrapped(&self, text: &StyledText) -> String {
        let styled = self.text(text);
        let Some(width) = self.view.width() else { return styled };
        let indent = " ".repeat(last_column(anstream::adapter::strip_str(&styled).to_string().lines().next()));
        let options = textwrap::Options::new(width).subsequent_indent(&indent).word_splitter(NoHyphenation);
        textwrap::fill(&styled, options)
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

/// The start of the last column of a line, or of the text after its indent.
fn last_column(line: Option<&str>) -> usize {
    let characters: Vec<char> = line.unwrap_or_default().chars().take(MAX_INDENT).collect();
    let behind_gap = |at: &usize| characters[at - 2..*at] == [' ', ' '] && characters[*at] != ' ';
    let column = (2..characters.len()).rfind(behind_gap).unwrap_or(0);
    match characters.get(column) {
        // A branch of a tree and its mark.
        Some('└' | '├') => column + 4,
        _ => column,
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

    use coracle_context::document::{Block, Document, StyledText, Symbol};

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
    fn a_duration_is_shown_once_and_a_step_that_was_shown_is_omitted() {
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
    fn long_lines_go_on_between_words_below_their_column() {
        let narrow = Layout { view: View::wide(36), symbols: true };
        let text = |line: &str| bare(&narrow.wrapped(&StyledText::new().symbol(Symbol::Success).plain(line)));
        let (step, item) = (" user               commands run as agent", " read-only: `.git/config` and more files");
        assert_eq!(text(step), "✓ user               commands run as\n                     agent");
        let item =
            StyledText::from("  ").dim("└").plain(" ").text(StyledText::new().symbol(Symbol::Success).plain(item));
        assert_eq!(bare(&narrow.wrapped(&item)), "  └ ✓ read-only: `.git/config` and\n      more files");
        assert_eq!(
            bare(&narrow.wrapped(&"one two three four five six seven".into())),
            "one two three four five six seven"
        );
        let coloured = narrow.wrapped(&StyledText::new().dim("a".repeat(32)).plain(" bb cc"));
        assert_eq!(bare(&coloured), format!("{} bb\ncc", "a".repeat(32)), "colours have no width");
        assert_eq!(layout(false).wrapped(&step.into()), step, "a pipe gets whole lines");
    }

    #[test]
    fn facts_stand_in_two_columns_and_empty_ones_nowhere() {
        let facts = Document::line("web").facts([("id", "01".into()), ("image", "x".into()), ("user", "".into())]);
        assert_eq!(bare(&layout(false).document(&facts, &[], Duration::ZERO)), "web\n  id     01\n  image  x");
    }
}
