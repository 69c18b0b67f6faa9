//! Searches a file for lines that match a pattern.
//!
//! The pattern is first searched for in whole blocks, which is fast, and then matched against the single line, which
//! decides. For the first step it is changed so that it matches wherever the second step does, and never across the end
//! of a line.
//!
//! ripgrep's `grep-searcher` could replace the first step, but it adds the tables of all text encodings, 276 kB to a
//! compressed guest of 2.2 MB; its lines may also match across a `\r`, so the second step would remain necessary.

use std::io::{self, Read};

use memchr::{memchr, memchr_iter, memrchr};
use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{
    self, Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look,
};

use crate::files::error::{FsError, OperationResult};
use crate::protocol::patterns::MAX_PATTERN;
use crate::protocol::workspace::{GrepMatch, WorkspaceErrorCode};

/// Largest compiled pattern in bytes.
const COMPILED: usize = 4 << 20;

/// A file with a NUL in its first bytes counts as binary.
const BINARY: usize = 8 << 10;

/// Bytes of a file in memory. A longer line is searched in parts.
const BLOCK: usize = 2 << 20;

/// Limit of a line in a match, in characters.
const MAX_SHOWN: usize = 2000;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct LineMatcher {
    /// Finds every line that matches, and possibly more.
    finds: Regex,
    /// Decides whether a single line matches.
    decides: Regex,
    context: usize,
}

impl LineMatcher {
    pub(super) fn new(pattern: &str, ignore_case: bool, context: usize) -> OperationResult<Self> {
        let bad = |why: String| FsError::with_detail(WorkspaceErrorCode::BadPattern, why);
        if pattern.len() > MAX_PATTERN {
            return Err(bad(format!("the pattern has {} bytes; the limit is {MAX_PATTERN}", pattern.len())));
        }
        let parsed = ParserBuilder::new().utf8(false).case_insensitive(ignore_case).build().parse(pattern);
        // The parser's error shows the pattern with an arrow below it; the reason is in the last line.
        let last = |error: String| error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let hir = parsed.map_err(|err| bad(last(err.to_string())))?;
        let compile = |hir: &Hir| {
            let limits = Regex::config().utf8_empty(false).nfa_size_limit(Some(COMPILED)).onepass(false);
            Regex::builder().configure(limits).build_from_hir(hir).map_err(|err| match err.size_limit() {
                Some(limit) => bad(format!("the compiled pattern exceeds {limit} bytes")),
                None => bad(err.to_string()),
            })
        };
        Ok(Self { finds: compile(&in_lines(&hir))?, decides: compile(&hir)?, context })
    }

    /// Searches a file; `block` can be reused for the next one. `hit` receives matches until it returns `false`; after that,
    /// matches are only counted. Returns the number of matching lines, 0 for a binary file.
    pub(super) fn search(
        &self,
        source: &mut impl Read,
        block: &mut Block,
        over: &dyn Fn() -> bool,
        hit: &mut dyn FnMut(GrepMatch) -> bool,
    ) -> io::Result<u64> {
        block.clear();
        let mut sink = MatchSink { count: 0, last: 0, wants: true, hit };
        loop {
            let eof = block.fill(source)?;
            if block.base == 0 && memchr(0, &block.bytes()[..block.len.min(BINARY)]).is_some() {
                return Ok(0);
            }
            let limit = block.limit(eof, self.context);
            self.search_block(block, limit, &mut sink);
            if eof || over() {
                return Ok(sink.count);
            }
            block.slide(limit, self.context);
        }
    }

    fn search_block(&self, block: &mut Block, limit: usize, sink: &mut MatchSink<'_>) {
        let mut at = block.at;
        while at < limit {
            let Some(found) = self.finds.search_half(&Input::new(&block.bytes()[..limit]).span(at..limit)) else {
                break;
            };
            // A match contains no newline, so it ends in the line where it begins.
            let (begin, end) = line_at(&block.bytes()[..limit], found.offset());
            let line = &block.bytes()[begin..end];
            if begin < limit && self.decides.is_match(Input::new(without_return(line)).anchored(Anchored::No)) {
                let number = block.number(begin);
                if number != sink.last {
                    sink.last = number;
                    sink.count += 1;
                    if sink.wants {
                        sink.wants = (sink.hit)(self.hit(block, (begin, end), number));
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
    /// Number of the last matching line: each block of an overlong line may match.
    last: u64,
    wants: bool,
    hit: &'a mut dyn FnMut(GrepMatch) -> bool,
}

/// A part of a file: lines that were searched, lines to search, and context after them.
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

    /// Reads until the block is full; returns whether the file has ended.
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

    /// The end of the lines that can be searched now, since their context is in the block.
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
                return whole; // the context of lines that are so long is incomplete
            }
        }
        limit
    }

    /// Discards searched lines, except those that are context of the next ones.
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

    /// The number of the line that begins there. Fast if called in ascending order, except for steps back over context.
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

/// Begin and end of the line that contains a byte; its newline counts as part of it.
fn line_at(bytes: &[u8], at: usize) -> (usize, usize) {
    let begin = memrchr(b'\n', &bytes[..at]).map_or(0, |it| it + 1);
    let end = memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |it| at + it);
    (begin, end)
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// A line as text, and whether it was cut.
fn shown(line: &[u8]) -> (String, bool) {
    let line = without_return(line);
    let enough = &line[..line.len().min(MAX_SHOWN * 4 + 4)];
    let text = String::from_utf8_lossy(enough);
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => (text[..end].to_owned(), true),
        None => (text.into_owned(), enough.len() < line.len()),
    }
}

/// A pattern that matches in a block wherever this one matches in a single line: it matches no newline, and anchors match
/// at all line ends.
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
