//! The output of a terminal as lines of text. Text that a program overwrites is removed, as on the screen.

use vte::{Params, Parser, Perform};

/// Maximum size of the stored text.
const MAX_TEXT: usize = 1 << 20;

/// The text of a terminal, and how far it was read.
pub(super) struct Transcript {
    parser: Parser,
    text: TerminalText,
    read: ReadPosition,
}

/// The position of the next reader.
#[derive(Default)]
struct ReadPosition {
    /// Offset in all printed text.
    at: u64,
    /// What was already read of its line. If the line has changed, the next reader gets the whole line again.
    of_line: String,
}

/// Text that was not read yet.
pub(super) struct UnreadText {
    pub(super) text: String,
    /// Number of unread bytes before it that were dropped.
    pub(super) lost: u64,
    /// What was already read of the first line.
    of_line: String,
    /// Offset of that line.
    begin: u64,
}

impl Transcript {
    pub(super) fn new(columns: u16) -> Self {
        let text = TerminalText { columns: columns.into(), ..TerminalText::default() };
        Self { parser: Parser::new(), text, read: ReadPosition::default() }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.parser.advance(&mut self.text, bytes);
    }

    pub(super) fn is_at_line_start(&self) -> bool {
        self.text.row.is_empty()
    }

    /// Returns the text since the last reading.
    pub(super) fn unread(&self) -> UnreadText {
        let ReadPosition { at, of_line } = &self.read;
        let begin = at.saturating_sub(of_line.len() as u64);
        let lost = self.text.dropped.saturating_sub(*at);
        if begin < self.text.dropped {
            return UnreadText { text: self.text.from(0), lost, of_line: String::new(), begin: self.text.dropped };
        }
        let from = usize::try_from(begin - self.text.dropped).unwrap_or(usize::MAX);
        let tail = self.text.from(from);
        match tail.strip_prefix(of_line.as_str()) {
            Some(rest) => UnreadText { text: rest.to_owned(), lost, of_line: of_line.clone(), begin },
            None => UnreadText { text: tail, lost, of_line: String::new(), begin },
        }
    }

    /// Marks that many bytes of the unread text as read.
    pub(super) fn mark_read(&mut self, unread: &UnreadText, bytes: usize) {
        let read = format!("{}{}", unread.of_line, &unread.text[..bytes]);
        let line = read.rfind('\n').map_or(0, |it| it + 1);
        self.read = ReadPosition { at: unread.begin + read.len() as u64, of_line: read[line..].to_owned() };
    }
}

/// The finished lines, and the current one.
#[derive(Default)]
struct TerminalText {
    lines: String,
    /// Number of bytes dropped from the start of `lines`.
    dropped: u64,
    row: Vec<char>,
    column: usize,
    columns: usize,
    /// Whether a program uses the alternate screen, whose content is not recorded.
    is_full_screen: bool,
}

impl TerminalText {
    fn from(&self, at: usize) -> String {
        let lines = self.lines.get(at..).unwrap_or_default();
        let skipped = at.saturating_sub(self.lines.len());
        let row: String = self.row.iter().collect();
        format!("{lines}{}", row.get(skipped..).unwrap_or_default())
    }

    fn end_row(&mut self, end: &str) {
        self.lines.extend(self.row.drain(..));
        self.lines.push_str(end);
        self.column = 0;
        if self.lines.len() > MAX_TEXT + MAX_TEXT / 4 {
            let cut = self.lines.ceil_char_boundary(self.lines.len() - MAX_TEXT);
            self.lines.drain(..cut);
            self.dropped += cut as u64;
        }
    }

    /// Changes the row at the cursor, after filling it with spaces up to there.
    fn edit(&mut self, edit: impl FnOnce(&mut Vec<char>, usize)) {
        if self.row.len() < self.column {
            self.row.resize(self.column, ' ');
        }
        edit(&mut self.row, self.column);
    }

    fn move_to(&mut self, column: usize) {
        self.column = column.min(self.columns.saturating_sub(1));
    }

    fn erase(&mut self, how: usize) {
        match how {
            0 => self.edit(Vec::truncate),
            1 => self.edit(|row, at| row.iter_mut().take(at + 1).for_each(|it| *it = ' ')),
            _ => self.row.clear(),
        }
    }

    fn mode(&mut self, params: &Params, is_on: bool) {
        if params.iter().any(|it| matches!(it, [47 | 1047 | 1049])) {
            self.is_full_screen = is_on;
        }
    }

    fn csi(&mut self, action: char, params: &Params) {
        let given = params.iter().next().and_then(|it| it.first()).copied().unwrap_or(0);
        let count = usize::from(given.max(1));
        match action {
            'K' => self.erase(given.into()),
            'D' => self.move_to(self.column.saturating_sub(count)),
            'C' => self.move_to(self.column + count),
            'G' | '`' => self.move_to(count - 1),
            'P' => self.edit(|row, at| drop(row.drain(at..row.len().min(at + count)))),
            '@' => self.edit(|row, at| drop(row.splice(at..at, std::iter::repeat_n(' ', count.min(1 << 12))))),
            'X' => self.edit(|row, at| row.iter_mut().skip(at).take(count).for_each(|it| *it = ' ')),
            // The cursor moves to another line, whose text was already recorded.
            'A' | 'B' | 'E' | 'F' | 'H' | 'f' | 'd' if !self.row.is_empty() => self.end_row("\n"),
            _ => {}
        }
    }
}

impl Perform for TerminalText {
    fn print(&mut self, it: char) {
        if self.is_full_screen {
            return;
        }
        // The terminal wraps to the next row, but it is still the same line.
        if self.column >= self.columns {
            self.end_row("");
        }
        self.edit(|row, at| match row.get_mut(at) {
            Some(before) => *before = it,
            None => row.push(it),
        });
        self.column += 1;
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            _ if self.is_full_screen => {}
            b'\n' | b'\x0b' | b'\x0c' => self.end_row("\n"),
            b'\r' => self.column = 0,
            b'\x08' => self.column = self.column.saturating_sub(1),
            b'\t' => self.print('\t'),
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], _: bool, action: char) {
        match (intermediates, action) {
            (b"?", 'h') => self.mode(params, true),
            (b"?", 'l') => self.mode(params, false),
            ([], action) if !self.is_full_screen => self.csi(action, params),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{MAX_TEXT, Transcript};

    fn read(transcript: &mut Transcript) -> String {
        let unread = transcript.unread();
        transcript.mark_read(&unread, unread.text.len());
        unread.text
    }

    fn text_of(bytes: &[u8]) -> String {
        let mut transcript = Transcript::new(20);
        transcript.feed(bytes);
        read(&mut transcript)
    }

    #[test]
    fn overwritten_text_is_removed() {
        for (bytes, expected) in [
            (&b"a\r\nb\r\n"[..], "a\nb\n"),
            (b"\x1b[1;31mred\x1b[0m\x1b]0;title\x07!", "red!"),
            (b" 10%\r 50%\r100%\r\n", "100%\n"),
            (b"ab\x08\x08xy\x1b[K", "xy"),
            (b"abcdef\x1b[3D\x1b[K!", "abc!"),
            (b"abcd\x1b[2D\x1b[P\x1b[@X", "abXd"),
            (b"long text\x1b[2K\rnew", "new"),
            // A line that continues behind the right margin, as line editors draw it.
            (b"12345678901234567890 \rab", "12345678901234567890ab"),
            (b"before\r\n\x1b[?1049hdrawn\x1b[5;5Hmore\x1b[?1049lafter", "before\nafter"),
            ("a\u{20ac}\u{1f600}".as_bytes(), "a\u{20ac}\u{1f600}"),
            (b"\xff\xfeok", "\u{fffd}\u{fffd}ok"),
        ] {
            assert_eq!(text_of(bytes), expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_reader_continues_within_a_line_and_gets_a_changed_line_again() {
        let mut transcript = Transcript::new(80);
        transcript.feed(b">>> ");
        assert_eq!(read(&mut transcript), ">>> ");
        transcript.feed(b"1+1\r\n2\r\n>>> ");
        assert_eq!(read(&mut transcript), "1+1\n2\n>>> ");
        assert_eq!(read(&mut transcript), "");
        transcript.feed(b"\r\x1b[K... ");
        assert_eq!(read(&mut transcript), "... ");
    }

    #[test]
    fn one_reader_takes_a_part_and_the_next_one_the_rest() {
        let mut transcript = Transcript::new(80);
        transcript.feed(b"one\r\ntwo\r\nthr");
        let unread = transcript.unread();
        transcript.mark_read(&unread, 5);
        assert_eq!(transcript.unread().text, "wo\nthr");
        transcript.feed(b"ee");
        assert_eq!(read(&mut transcript), "wo\nthree");
    }

    #[test]
    fn old_text_is_dropped_and_counted() {
        let mut transcript = Transcript::new(80);
        let line = [&b"x".repeat(79)[..], b"\n"].concat();
        for _ in 0..40_000 {
            transcript.feed(&line);
        }
        let unread = transcript.unread();
        assert!((MAX_TEXT..=MAX_TEXT + MAX_TEXT / 4).contains(&unread.text.len()), "{}", unread.text.len());
        assert_eq!(unread.lost + unread.text.len() as u64, 80 * 40_000);
        transcript.mark_read(&unread, unread.text.len());
        transcript.feed(b"new");
        assert_eq!((transcript.unread().text.as_str(), transcript.unread().lost), ("new", 0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted_and_readers_see_all_of_plain_text(
            pieces in prop::collection::vec("[a-z \u{e4}]{0,12}\n?", 0..20),
            noise in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut transcript = Transcript::new(7);
            let mut seen = String::new();
            for piece in &pieces {
                transcript.feed(piece.as_bytes());
                seen.push_str(&read(&mut transcript));
            }
            prop_assert_eq!(seen, pieces.concat());
            transcript.feed(&noise);
            read(&mut transcript);
            transcript.feed(b"\x1b[2K\x1b[99999@\x1b[99999P\x1b[99999C\x1b[99999D.");
            read(&mut transcript);
        }
    }
}
