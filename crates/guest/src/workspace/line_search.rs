//! Looking for lines in a file.
//!
//! A pattern is searched for in whole blocks, which is fast, and then held against the line alone, which is what it means.
//! For the former it is made so that it matches wherever the latter does, and never across a line's end.
//!
//! ripgrep's `grep-searcher` would do the first half and bring the tables of all text encodings, 276 kB of a compressed
//! guest of 2.2 MB; its lines may also match across a `\r`, so that the second half would stay.

use std::io::{self, Read};

use memchr::{memchr, memchr_iter, memrchr};
use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{
    self, Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look,
};

use crate::files::error::FsError;
use crate::files::error::OperationResult;
use crate::protocol::patterns::MAX_PATTERN;
use crate::protocol::workspace::{GrepMatch, WorkspaceErrorCode};

/// Bytes of a pattern when it is compiled, at most.
const COMPILED: usize = 4 << 20;

/// A file that has a NUL so near its beginning is no text.
const BINARY: usize = 8 << 10;

/// Bytes of a file in memory. A longer line is searched in parts.
const BLOCK: usize = 2 << 20;

/// Limit of a line in a match, in characters.
const MAX_SHOWN: usize = 2000;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct LineMatcher {
    /// Finds every line that matches, and maybe more.
    finds: Regex,
    /// Decides on a line alone.
    decides: Regex,
    context: usize,
}

impl LineMatcher {
    pub(super) fn new(pattern: &str, ignore_case: bool, context: usize) -> OperationResult<Self> {
        let bad = |why: String| FsError::with_detail(WorkspaceErrorCode::BadPattern, why);
        if pattern.len() > MAX_PATTERN {
            return Err(bad(format!("a pattern of {} bytes; at most {MAX_PATTERN} are taken", pattern.len())));
        }
        let parsed = ParserBuilder::new().utf8(false).case_insensitive(ignore_case).build().parse(pattern);
        // The error of a parser draws the pattern with an arrow below it; the reason is the last line.
        let last = |it: String| it.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let hir = parsed.map_err(|err| bad(last(err.to_string())))?;
        let compile = |hir: &Hir| {
            let limits = Regex::config().utf8_empty(false).nfa_size_limit(Some(COMPILED)).onepass(false);
            Regex::builder().configure(limits).build_from_hir(hir).map_err(|err| match err.size_limit() {
                Some(limit) => bad(format!("it would take more than {limit} bytes")),
                None => bad(err.to_string()),
            })
        };
        Ok(Self { finds: compile(&in_lines(&hir))?, decides: compile(&hir)?, context })
    }

    /// Looks through a file; `block` is used again for the next one. `hit` gets what matches until it wants no more, and
    /// then what follows is only counted. Gives the number of lines that match; `None` for what is no text.
    pub(super) fn search(
        &self,
        source: &mut impl Read,
        block: &mut Block,
        over: &dyn Fn() -> bool,
        hit: &mut dyn FnMut(GrepMatch) -> bool,
    ) -> io::Result<u64> {
        block.clear();
        let mut told = MatchSink { count: 0, last: 0, wants: true, hit };
        loop {
            let eof = block.fill(source)?;
            if block.base == 0 && memchr(0, &block.bytes()[..block.len.min(BINARY)]).is_some() {
                return Ok(0);
            }
            let limit = block.limit(eof, self.context);
            self.open_entry(block, limit, &mut told);
            if eof || over() {
                return Ok(told.count);
            }
            block.slide(limit, self.context);
        }
    }

    fn open_entry(&self, block: &mut Block, limit: usize, told: &mut MatchSink<'_>) {
        let mut at = block.at;
        while at < limit {
            let Some(found) = self.finds.search_half(&Input::new(&block.bytes()[..limit]).span(at..limit)) else {
                break;
            };
            // A match has no newline in it, so its end is in the line that it begins in.
            let (begin, end) = line_at(&block.bytes()[..limit], found.offset());
            let line = &block.bytes()[begin..end];
            if begin < limit && self.decides.is_match(Input::new(without_return(line)).anchored(Anchored::No)) {
                let number = block.number(begin);
                if number != told.last {
                    told.last = number;
                    told.count += 1;
                    if told.wants {
                        told.wants = (told.hit)(self.hit(block, (begin, end), number));
                    }
                }
            }
            at = end + 1;
        }
        block.at = limit;
    }

    fn hit(&self, block: &Block, (begin, end): (usize, usize), line: u64) -> GrepMatch {
        let bytes = block.bytes();
        let (text, cut) = shown(&bytes[begin..end]);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut at = begin;
        while at > 0 && before.len() < self.context {
            let (from, to) = line_at(bytes, at - 1);
            before.push(shown(&bytes[from..to]).0);
            at = from;
        }
        before.reverse();
        at = end + 1;
        while at < bytes.len() && after.len() < self.context {
            let (from, to) = line_at(bytes, at);
            after.push(shown(&bytes[from..to]).0);
            at = to + 1;
        }
        GrepMatch { path: String::new(), line, text, cut, before, after }
    }
}

struct MatchSink<'a> {
    count: u64,
    /// Number of the last line that was reported: of an overlong one each block may match.
    last: u64,
    wants: bool,
    hit: &'a mut dyn FnMut(GrepMatch) -> bool,
}

/// A part of a file: lines that were looked at, lines that are to be, and lines that come after them.
#[derive(Debug, Default)]
pub(super) struct Block {
    bytes: Vec<u8>,
    len: usize,
    /// Where the search continues.
    at: usize,
    /// Bytes of the file before this block.
    base: u64,
    /// Newlines of the file before `counted`.
    newlines: u64,
    counted: usize,
}

impl Block {
    fn clear(&mut self) {
        (self.len, self.at, self.base, self.newlines, self.counted) = (0, 0, 0, 0, 0);
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Reads as much as there is room for; whether the file ended.
    fn fill(&mut self, source: &mut impl Read) -> io::Result<bool> {
        loop {
            if self.len == self.bytes.len() {
                if self.len >= BLOCK {
                    return Ok(false);
                }
                self.bytes.resize((self.len * 2).clamp(64 << 10, BLOCK), 0);
            }
            match source.read(&mut self.bytes[self.len..]) {
                Ok(0) => return Ok(true),
                Ok(read) => self.len += read,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(err),
            }
        }
    }

    /// Up to where lines can be looked at: each with its context.
    fn limit(&self, eof: bool, context: usize) -> usize {
        if eof {
            return self.len;
        }
        let bytes = self.bytes();
        let Some(whole) = memrchr(b'\n', bytes).map(|it| it + 1).filter(|it| *it > self.at) else { return self.len };
        let mut limit = whole;
        for _ in 0..context {
            limit = memrchr(b'\n', &bytes[..limit - 1]).map_or(0, |it| it + 1);
            if limit <= self.at {
                return whole; // Lines so long have less context.
            }
        }
        limit
    }

    /// Makes room: what was looked at goes, but for what is context of what comes.
    fn slide(&mut self, limit: usize, context: usize) {
        let mut keep = limit;
        for _ in 0..context {
            if keep > 0 {
                keep = line_at(self.bytes(), keep - 1).0;
            }
        }
        if limit - keep > BLOCK / 4 {
            keep = limit;
        }
        self.number(keep);
        self.bytes.copy_within(keep..self.len, 0);
        self.len -= keep;
        self.at = limit - keep;
        self.base += keep as u64;
        self.counted = 0;
    }

    /// The number of the line that begins there. Asked for in order, but for a step back over context.
    fn number(&mut self, at: usize) -> u64 {
        let count = |from: usize, to: usize| memchr_iter(b'\n', &self.bytes[from..to]).count() as u64;
        if at >= self.counted {
            self.newlines += count(self.counted, at);
        } else {
            self.newlines -= count(at, self.counted);
        }
        self.counted = at;
        self.newlines + 1
    }
}

/// Begin and end of the line that has a byte, its end being part of it.
fn line_at(bytes: &[u8], at: usize) -> (usize, usize) {
    let begin = memrchr(b'\n', &bytes[..at]).map_or(0, |it| it + 1);
    let end = memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |it| at + it);
    (begin, end)
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A line as text, and whether it is longer.
fn shown(line: &[u8]) -> (String, bool) {
    let line = without_return(line);
    let enough = &line[..line.len().min(MAX_SHOWN * 4 + 4)];
    let text = String::from_utf8_lossy(enough);
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => (text[..end].to_owned(), true),
        None => (text.into_owned(), enough.len() < line.len()),
    }
}

/// A pattern that matches in a text wherever this one matches in a line of it alone: no newline is matched, and the ends
/// of a line are all ends.
fn in_lines(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) if literal.0.contains(&b'\n') => Hir::fail(),
        HirKind::Literal(literal) => Hir::literal(literal.0.clone()),
        HirKind::Class(Class::Unicode(class)) => {
            let mut class = class.clone();
            class.difference(&ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]));
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(Class::Bytes(class)) => {
            let mut class = class.clone();
            class.difference(&ClassBytes::new([ClassBytesRange::new(b'\n', b'\n')]));
            Hir::class(Class::Bytes(class))
        }
        HirKind::Look(look) => Hir::look(match look {
            Look::Start | Look::StartLF | Look::StartCRLF => Look::StartCRLF,
            Look::End | Look::EndLF | Look::EndCRLF => Look::EndCRLF,
            word => *word,
        }),
        HirKind::Repetition(it) => Hir::repetition(hir::Repetition {
            min: it.min,
            max: it.max,
            greedy: it.greedy,
            sub: Box::new(in_lines(&it.sub)),
        }),
        HirKind::Capture(it) => in_lines(&it.sub),
        HirKind::Concat(all) => Hir::concat(all.iter().map(in_lines).collect()),
        HirKind::Alternation(all) => Hir::alternation(all.iter().map(in_lines).collect()),
    }
}
