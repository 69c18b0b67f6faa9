//! The terminal of a program in a container.

use std::panic::{AssertUnwindSafe, catch_unwind};

use coracle_types::TerminalSize;
use vt100::{Callbacks, Parser, Screen};

use super::transcript::{Transcript, UnreadText};

/// The output of a program, as text and as a screen.
pub(super) struct Terminal {
    size: TerminalSize,
    screen: Parser<Replies>,
    pub(super) transcript: Transcript,
}

/// The terminal's replies to queries of the program.
#[derive(Default)]
struct Replies(Vec<u8>);

impl Callbacks for Replies {
    fn unhandled_csi(
        &mut self,
        screen: &mut Screen,
        first: Option<u8>,
        _: Option<u8>,
        params: &[&[u16]],
        action: char,
    ) {
        let (row, column) = screen.cursor_position();
        match (first, params, action) {
            (None, [[5]], 'n') => self.0.extend(b"\x1b[0n"),
            (None, [[6]], 'n') => self.0.extend(format!("\x1b[{};{}R", row + 1, column + 1).bytes()),
            (None, [] | [[0]], 'c') => self.0.extend(b"\x1b[?1;2c"),
            _ => {}
        }
    }
}

impl Terminal {
    pub(super) fn new(size: TerminalSize) -> Self {
        Self { size, screen: screen_of(size), transcript: Transcript::new(size.cols) }
    }

    /// Processes output, and returns the replies to the program's queries.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.transcript.feed(bytes);
        let screen = &mut self.screen;
        // The output is untrusted and the parser is third-party: a panic in it only resets the screen.
        if catch_unwind(AssertUnwindSafe(|| screen.process(bytes))).is_err() {
            tracing::error!("reset the screen of a shell after its parser failed");
            self.screen = screen_of(self.size);
        }
        std::mem::take(&mut self.screen.callbacks_mut().0)
    }

    /// Whether a program uses the whole screen, so that its output is not text.
    pub(super) fn is_full_screen(&self) -> bool {
        self.screen.screen().alternate_screen()
    }

    /// Whether the current line is empty.
    pub(super) fn is_at_line_start(&self) -> bool {
        !self.is_full_screen() && self.transcript.is_at_line_start()
    }

    /// Whether the program selected the application form of arrow keys.
    pub(super) fn has_application_keys(&self) -> bool {
        self.screen.screen().application_cursor()
    }

    /// Returns the screen as text.
    pub(super) fn screen(&self) -> String {
        self.screen.screen().rows(0, self.size.cols).map(|it| it.trim_end().to_owned() + "\n").collect::<String>()
    }

    /// Returns row and column of the cursor, from 1.
    pub(super) fn cursor(&self) -> [u16; 2] {
        let (row, column) = self.screen.screen().cursor_position();
        [row + 1, column + 1]
    }

    /// Returns the text to search for a pattern.
    pub(super) fn unread(&self) -> UnreadText {
        self.transcript.unread()
    }
}

fn screen_of(size: TerminalSize) -> Parser<Replies> {
    let at_least_one = |it: u16| std::num::NonZeroU16::new(it).unwrap_or(std::num::NonZeroU16::MIN);
    Parser::new_with_callbacks(at_least_one(size.rows), at_least_one(size.cols), 0, Replies::default())
}

#[cfg(test)]
mod tests {
    use coracle_types::TerminalSize;
    use proptest::prelude::*;

    use super::Terminal;

    fn terminal() -> Terminal {
        Terminal::new(TerminalSize { cols: 10, rows: 3 })
    }

    #[test]
    fn a_screen_is_drawn_and_queries_are_answered() {
        let mut terminal = terminal();
        assert_eq!(terminal.feed(b"one\r\n\x1b[2;5Htwo\x1b[6n\x1b[5n\x1b[c"), b"\x1b[2;8R\x1b[0n\x1b[?1;2c");
        assert_eq!((terminal.screen().as_str(), terminal.cursor()), ("one\n    two\n\n", [2, 8]));
        assert!(!terminal.is_full_screen() && !terminal.has_application_keys());
        terminal.feed(b"\x1b[?1049h\x1b[?1h\x1b[Hfull");
        assert!(terminal.is_full_screen() && terminal.has_application_keys());
        assert_eq!(terminal.screen(), "       \n\n\n".replace("       ", "full"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted(pieces in prop::collection::vec("\u{1b}\\[\\??[0-9;]{0,6}[@-~]|[\u{0}-\u{ff}\u{4e00}]{0,9}", 0..60)) {
            let mut terminal = terminal();
            for piece in pieces {
                terminal.feed(piece.as_bytes());
                let [row, column] = terminal.cursor();
                prop_assert!(row <= 3 && column <= 11);
            }
            terminal.screen();
        }
    }
}
