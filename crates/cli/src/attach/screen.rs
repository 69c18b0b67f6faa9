//! The screen of a terminal, computed from its output.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};

use coracle_types::TerminalSize;
use vt100::Parser;

/// Resets what a program may have changed: colours, cursor, mouse, paste and key modes.
const PLAIN: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>";

/// Enters and leaves the alternate screen of full-screen programs.
const ENTER: &[u8] = b"\x1b[?1049h";
const LEAVE: &[u8] = b"\x1b[?1049l";

/// The screen of a terminal.
pub(super) struct TerminalScreen(Parser);

fn parser(size: TerminalSize) -> Parser {
    Parser::new(at_least_one(size.rows), at_least_one(size.cols), 0)
}

fn at_least_one(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap_or(NonZero::<u16>::MIN)
}

impl TerminalScreen {
    pub(super) fn new(size: TerminalSize) -> Self {
        Self(parser(size))
    }

    pub(super) fn resize(&mut self, size: TerminalSize) {
        let (rows, columns) = (at_least_one(size.rows), at_least_one(size.cols));
        if self.0.screen().size() != (rows, columns) {
            self.0.screen_mut().set_size(rows, columns);
        }
    }

    /// Processes output. The parser is third-party code: a panic in it loses the screen and nothing else.
    pub(super) fn take(&mut self, printed: &[u8]) {
        let parser = &mut self.0;
        if catch_unwind(AssertUnwindSafe(|| parser.process(printed))).is_err() {
            let (rows, columns) = self.0.screen().size();
            self.0 = Parser::new(rows, columns, 0);
        }
    }

    /// The escape sequences that redraw the screen. Lines of a shell follow the current content; a full-screen program
    /// gets the alternate screen.
    pub(super) fn repaint(&self) -> Vec<u8> {
        let screen = self.0.screen();
        if screen.alternate_screen() {
            return [ENTER, screen.state_formatted().as_bytes()].concat();
        }
        let (row, column) = screen.cursor_position();
        let (_, width) = screen.size();
        let rows = screen.rows_formatted(0, width.get()).take(usize::from(row) + 1);
        let rows: Vec<String> = rows.skip_while(String::is_empty).collect();
        let rows = rows.join("\x1b[0m\r\n");
        format!("{rows}\x1b[0m\x1b[{}G{}", column + 1, screen.input_mode_formatted()).into_bytes()
    }

    /// The escape sequences that reset the terminal of a user who detaches.
    pub(super) fn reset(&self) -> Vec<u8> {
        let is_whole = self.0.screen().alternate_screen();
        [PLAIN, if is_whole { LEAVE } else { b"" }, b"\r\n"].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(printed: &str) -> TerminalScreen {
        let mut screen = TerminalScreen::new(TerminalSize { cols: 20, rows: 5 });
        screen.take(printed.as_bytes());
        screen
    }

    /// The content of a new terminal after the screen was redrawn on it.
    fn drawn(of: &TerminalScreen) -> (String, (u16, u16), bool) {
        let mut other = parser(TerminalSize { cols: 20, rows: 5 });
        other.process(&of.repaint());
        let screen = other.screen();
        (screen.contents(), screen.cursor_position(), screen.alternate_screen())
    }

    #[test]
    fn a_shells_lines_are_drawn_up_to_its_cursor() {
        let shell = screen("one\r\ntwo\r\nthree\r\nfour\r\nfive\r\nsix\r\n$ ls\x1b[1D");
        assert_eq!(drawn(&shell), ("three\nfour\nfive\nsix\n$ ls".to_owned(), (4, 3), false));
        assert_eq!(shell.reset(), [PLAIN, b"\r\n"].concat());
    }

    #[test]
    fn a_whole_screen_is_drawn_as_it_is() {
        let editor = screen("$ vi\r\n\x1b[?1049h\x1b[2J\x1b[3;5Htext\x1b[?1h");
        assert_eq!(drawn(&editor), ("\n\n    text".to_owned(), (2, 8), true));
        assert!(editor.reset().ends_with(b"\x1b[?1049l\r\n"));
    }
}
