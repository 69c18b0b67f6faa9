use std::path::Path;
use std::time::Instant;

use proptest::prelude::*;
use regex::bytes::Regex;
use tempfile::TempDir;

use super::*;
use crate::protocol::patterns::line_pattern;
use crate::protocol::{LineMatch, Position};

const PARTS: [StreamSelector; 3] = [StreamSelector::All, StreamSelector::Stdout, StreamSelector::Stderr];

/// A log in slots of 16 bytes.
fn small(max_bytes: u64) -> (TempDir, OutputLog) {
    in_slots_of(16, max_bytes)
}

fn in_slots_of(slot_bytes: usize, max_bytes: u64) -> (TempDir, OutputLog) {
    let dir = tempfile::tempdir().unwrap();
    let log = OutputLog::new(Arc::new(Spill::with_slots_of(slot_bytes, dir.path())), max_bytes);
    (dir, log)
}

/// A log with the slots of a guest, to which both streams are appended alternately.
fn real(max_bytes: u64, turns: usize, piece: &[u8]) -> (TempDir, OutputLog) {
    let dir = tempfile::tempdir().unwrap();
    let mut log = OutputLog::new(Arc::new(Spill::in_dir(dir.path())), max_bytes);
    for _ in 0..turns {
        log.append(Stream::Stdout, piece);
        log.append(Stream::Stderr, piece);
    }
    (dir, log)
}

/// A reference model with unlimited memory.
#[derive(Clone, Debug, Default)]
struct Model(Vec<(Stream, u8)>);

impl Model {
    fn part(&self, part: StreamSelector) -> Vec<u8> {
        self.0
            .iter()
            .filter(|(stream, _)| match part {
                StreamSelector::All => true,
                StreamSelector::Stdout => *stream == Stream::Stdout,
                StreamSelector::Stderr => *stream == Stream::Stderr,
            })
            .map(|it| it.1)
            .collect()
    }

    /// Offset, number and text of each line after `from`, and whether it has ended.
    fn lines(&self, part: StreamSelector, from: u64) -> Vec<(u64, u64, Vec<u8>, bool)> {
        let all = self.part(part);
        let (before, rest) = all.split_at(from as usize);
        let mut number = before.iter().filter(|it| **it == b'\n').count() as u64;
        let mut offset = from;
        let mut lines = Vec::new();
        for piece in rest.split_inclusive(|it| *it == b'\n') {
            number += 1;
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            lines.push((offset, number, text.to_vec(), piece.ends_with(b"\n")));
            offset += piece.len() as u64;
        }
        lines
    }

    fn search(
        &self,
        part: StreamSelector,
        from: u64,
        pattern: &Regex,
        context: usize,
        most: usize,
    ) -> (Vec<LineMatch>, bool, u64) {
        let lines = self.lines(part, from);
        let total = self.part(part).len() as u64;
        let text =
            |lines: &[(u64, u64, Vec<u8>, bool)]| lines.iter().map(|line| lines::text(&line.2)).collect::<Vec<_>>();
        let end = |at: usize| lines.get(at + 1).map_or(total, |it| it.0);
        let hits: Vec<_> = (0..lines.len()).filter(|at| pattern.is_match(&lines[*at].2)).collect();
        let taken = &hits[..hits.len().min(most)];
        let found = taken.iter().map(|at| LineMatch {
            offset: lines[*at].0,
            line: lines[*at].1,
            text: lines::text(&lines[*at].2),
            before: text(&lines[at.saturating_sub(context)..*at]),
            after: text(&lines[at + 1..(at + 1 + context).min(lines.len())]),
        });
        let next = match (hits.len() > most, taken.last(), lines.last()) {
            (true, None, _) => from,
            (true, Some(last), _) => end(*last),
            (false, last, Some(open)) if !open.3 && last != Some(&(lines.len() - 1)) => open.0,
            _ => total,
        };
        (found.collect(), hits.len() > most, next)
    }
}

impl OutputLog {
    /// A complete search, in slices of two segments, each of which has time for one line.
    fn search(
        &self,
        part: StreamSelector,
        from: u64,
        pattern: &Regex,
        context: usize,
        most: usize,
    ) -> (Vec<LineMatch>, bool, u64) {
        let mut search = LogSearch::new(pattern.clone(), context, most, from.clamp(self.first(part), self.total(part)));
        while !search.is_over() {
            search.search(&self.slice(part, search.at(), 2), Instant::now());
        }
        search.into_result()
    }
}

/// Runs a watch over all output.
fn run_watch(watch: &mut Watch, log: &OutputLog) -> Option<LineMatch> {
    loop {
        let found = watch.search(&log.slice(StreamSelector::All, watch.at(), 2), Instant::now());
        if found.is_some() || watch.at() >= log.total(StreamSelector::All) {
            return found;
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Append(Stream, Vec<u8>),
    Finish,
    Discard,
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => Just(b'a'), 2 => Just(b'b'), 3 => Just(b'\n'), 1 => Just(b'\r'), 1 => any::<u8>()];
    prop_oneof![3 => proptest::collection::vec(byte.clone(), 0..4), 1 => proptest::collection::vec(byte, 0..60)]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let append = |stream| pieces().prop_map(move |bytes| Op::Append(stream, bytes));
    let op = prop_oneof![
        10 => append(Stream::Stdout),
        10 => append(Stream::Stderr),
        1 => Just(Op::Finish),
        1 => Just(Op::Discard),
    ];
    proptest::collection::vec(op, 0..60)
}

fn run(log: &mut OutputLog, model: &mut Model, op: &Op) {
    match op {
        Op::Append(stream, bytes) => {
            log.append(*stream, bytes);
            model.0.extend(bytes.iter().map(|it| (*stream, *it)));
        }
        Op::Finish => log.finish(),
        Op::Discard => {
            let retained = log.retained();
            assert_eq!((log.discard(), log.retained()), (retained, 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_end_of_the_output_is_retained(ops in ops(), limit_bytes in 0u64..300, slots in 0u64..40, at in any::<u64>(), limit in 0usize..50) {
        let (_dir, mut log) = small(limit_bytes);
        log.spill.set_total(slots * 16);
        let mut model = Model::default();
        for op in &ops {
            run(&mut log, &mut model, op);
            prop_assert!(log.retained() <= limit_bytes && log.spill.used() <= slots);
            prop_assert_eq!(log.dropped() + log.retained(), log.total(StreamSelector::All));
        }
        let first = model.0.len() - log.retained() as usize;
        for part in PARTS {
            let all = model.part(part);
            prop_assert_eq!(log.total(part), all.len() as u64);
            prop_assert_eq!(log.first(part), Model(model.0[..first].to_vec()).part(part).len() as u64);
            let from = (at % (all.len() as u64 + 2)).clamp(log.first(part), log.total(part));
            let end = (from as usize + limit).min(all.len());
            prop_assert_eq!(log.read(part, at % (all.len() as u64 + 2), limit), (from, all[from as usize..end].to_vec()));
        }
        let spill = log.spill.clone();
        drop(log);
        prop_assert_eq!(spill.used(), 0);
    }

    #[test]
    fn positions_are_resolved(ops in ops(), limit_bytes in 0u64..300, line in 0u64..40, back in 0u64..80, lines in 0u64..12, limit in 0usize..60) {
        let (_dir, mut log) = small(limit_bytes);
        let mut model = Model::default();
        ops.iter().for_each(|op| run(&mut log, &mut model, op));
        for part in PARTS {
            let (first, total) = (log.first(part), log.total(part));
            let begin = model.lines(part, 0).iter().find(|it| it.1 == line.max(1)).map_or(total, |it| it.0);
            prop_assert_eq!(log.resolve(part, Position::Line(line)), begin.max(first));
            prop_assert_eq!(log.resolve(part, Position::Offset(-(back as i64) - 1)), total.saturating_sub(back + 1).max(first));
            prop_assert_eq!(log.resolve(part, Position::Offset(back as i64)), back.clamp(first, total));
        }
        let all = model.part(StreamSelector::All);
        let whole = model.lines(StreamSelector::All, 0);
        let line = whole.get((whole.len() as u64).saturating_sub(lines) as usize).map_or(all.len(), |it| it.0 as usize);
        let mut begin = line.max(all.len().saturating_sub(limit)).max(log.first(StreamSelector::All) as usize);
        if begin > line {
            begin += all[begin..].iter().take(3).take_while(|it| **it & 0xc0 == 0x80).count();
        }
        let (offset, bytes) = log.tail(lines, limit);
        let exactly_at_first = begin != line || log.first(StreamSelector::All) as usize != line || line == 0;
        if exactly_at_first {
            prop_assert_eq!((offset, bytes), (begin as u64, all[begin..].to_vec()));
        }
    }

    #[test]
    fn matching_lines_are_found(ops in ops(), limit_bytes in 0u64..300, at in any::<u64>(), context in 0usize..4, most in 0usize..5) {
        let (_dir, mut log) = small(limit_bytes);
        let mut model = Model::default();
        ops.iter().for_each(|op| run(&mut log, &mut model, op));
        for part in PARTS {
            for text in ["ab", "^b", "a$", "^$", "[^a]b"] {
                let pattern = line_pattern(text, false).unwrap();
                let from = (at % (log.total(part) + 1)).max(log.first(part));
                let found = log.search(part, from, &pattern, context, most);
                prop_assert_eq!(found, model.search(part, from, &pattern, context, most), "{:?} {}", part, text);
            }
        }
    }

    #[test]
    fn continued_searches_find_every_line_once(ops in ops(), most in 1usize..4) {
        let (_dir, mut log) = small(u64::MAX);
        let mut model = Model::default();
        ops.iter().filter(|it| !matches!(it, Op::Discard)).for_each(|op| run(&mut log, &mut model, op));
        let pattern = line_pattern("a", false).unwrap();
        let (mut lines, mut next, mut more) = (Vec::new(), 0, true);
        while more {
            let found;
            (found, more, next) = log.search(StreamSelector::All, next, &pattern, 0, most);
            lines.extend(found.into_iter().map(|it| it.line));
        }
        let all = model.lines(StreamSelector::All, 0).into_iter().filter(|it| it.2.contains(&b'a')).map(|it| it.1);
        prop_assert_eq!(lines, all.collect::<Vec<_>>());
    }

    #[test]
    fn a_watch_finds_the_same_line_as_a_search(ops in ops(), from in 0u64..30) {
        let (_dir, mut log) = small(u64::MAX);
        let mut model = Model::default();
        let pattern = line_pattern("ab", false).unwrap();
        let mut watch = Watch::new(pattern.clone(), from);
        let mut watched = None;
        for op in ops.iter().filter(|it| !matches!(it, Op::Discard)) {
            run(&mut log, &mut model, op);
            watched = watched.or_else(|| run_watch(&mut watch, &log));
        }
        let found = log.search(StreamSelector::All, from, &pattern, 0, 1).0.pop().filter(|_| from <= log.total(StreamSelector::All));
        // The watch may find the line before its end has arrived, with a shorter text.
        let line = |found: Option<LineMatch>| found.map(|found| (found.offset, found.line));
        prop_assert_eq!(line(watched), line(found));
    }
}

#[test]
fn an_unfinished_line_is_found_once_it_matches() {
    let (_dir, mut log) = small(1000);
    let mut watch = Watch::new(line_pattern("ready$", false).unwrap(), 0);
    for (piece, seen) in [("noise\nser", None), ("ver rea", None), ("dy", Some("server ready"))] {
        log.append(Stream::Stdout, piece.as_bytes());
        assert_eq!(run_watch(&mut watch, &log).map(|it| it.text).as_deref(), seen, "{piece}");
    }
    assert_eq!(run_watch(&mut watch, &log), None);
}

#[test]
fn a_watch_continues_after_evicted_output() {
    let (_dir, mut log) = small(40);
    let mut watch = Watch::new(line_pattern("target", false).unwrap(), 0);
    log.append(Stream::Stdout, b"one\nta");
    assert_eq!(run_watch(&mut watch, &log), None);
    log.append(Stream::Stdout, "\n".repeat(100).as_bytes());
    log.append(Stream::Stdout, b"rget\ntarget\n");
    let found = run_watch(&mut watch, &log).unwrap();
    assert_eq!((found.offset, found.line, found.text.as_str()), (111, 103, "target"));
}

#[test]
fn the_first_64_kib_of_a_line_are_searched() {
    for (before, seen) in [((64 << 10) - 3, true), ((64 << 10) - 2, false)] {
        let (_dir, mut log) = in_slots_of(1000, 1 << 20);
        log.append(Stream::Stdout, &vec![b'x'; before]);
        log.append(Stream::Stdout, b"end and more\n");
        let found = log.search(StreamSelector::All, 0, &line_pattern("end", false).unwrap(), 0, 10).0;
        assert_eq!(found.len(), usize::from(seen), "{before}");
        assert!(found.iter().all(|it| it.text.len() == 4096));
    }
}

#[test]
fn the_size_of_a_result_is_limited() {
    let (_dir, mut log) = in_slots_of(64 << 10, 64 << 20);
    (0..1000).for_each(|_| log.append(Stream::Stdout, &[&[b'x'; 5000][..], b"\n"].concat()));
    let (found, more, next) = log.search(StreamSelector::All, 0, &line_pattern("x", false).unwrap(), 20, 1000);
    let bytes: usize = found.iter().map(|it| it.text.len() + it.before.concat().len() + it.after.concat().len()).sum();
    assert!(!found.is_empty() && bytes < 384 << 10, "{bytes}");
    assert_eq!((more, next), (true, found.last().unwrap().offset + 5001));
}

#[test]
fn alternating_single_bytes_are_retained() {
    let (_dir, log) = real(1 << 20, 600 << 10, b"x");
    assert!(log.retained() > (1 << 20) - (64 << 10), "{}", log.retained());
    assert!(log.spill.used() <= 2 * 16 + 2, "{}", log.spill.used());
    assert_eq!(log.read(StreamSelector::Stderr, 600 << 10, 10), (600 << 10, Vec::new()));
    assert_eq!(log.read(StreamSelector::Stderr, (600 << 10) - 5, 10).1, b"xxxxx");
}

#[test]
fn a_small_job_uses_less_than_1_kib() {
    let (_dir, mut log) = real(64 << 20, 3, b"hello\n");
    assert!(log.memory() < 1024, "{}", log.memory());
    log.finish();
    assert!(log.memory() < 512 && log.spill.used() == 0, "{}", log.memory());
}

#[test]
fn a_job_of_64_mib_uses_less_than_256_kib() {
    let (_dir, mut log) = real(64 << 20, 600, &[b'x'; 64 << 10]);
    assert!(log.retained() > (64 << 20) - (64 << 10), "{}", log.retained());
    assert!(log.memory() < 160 << 10, "{}", log.memory());
    log.finish();
    assert!(log.memory() < 64 << 10, "{}", log.memory());
}

#[test]
fn twice_as_many_segments_as_usual_use_less_than_128_kib() {
    // As many segments as 64 MiB in slots of 64 KiB, if each byte is a separate run.
    let (_dir, mut log) = in_slots_of(1 << 10, 1 << 20);
    for _ in 0..600 << 10 {
        log.append(Stream::Stdout, b"x");
        log.append(Stream::Stderr, b"x");
    }
    assert!(log.sealed.len() > 2000 && log.memory() < 128 << 10, "{} {}", log.sealed.len(), log.memory());
}

#[test]
fn without_a_disk_the_end_is_retained_in_memory() {
    let mut log = OutputLog::new(Arc::new(Spill::in_dir(Path::new("/proc/none"))), 64 << 20);
    for number in 0..100_000 {
        log.append(Stream::Stdout, format!("{number}\n").as_bytes());
        assert!(log.memory() < 128 << 10);
    }
    assert!(log.retained() >= (32 << 10) - 3, "{}", log.retained());
    assert_eq!(log.tail(2, 100).1, b"99998\n99999\n");
    log.finish();
    assert_eq!((log.retained(), log.tail(1, 100).1), (2048, b"99999\n".to_vec()));
    assert!(log.memory() < 4096);
}

#[test]
fn without_a_disk_alternating_single_bytes_are_retained_in_memory() {
    let mut log = OutputLog::new(Arc::new(Spill::in_dir(Path::new("/proc/none"))), 64 << 20);
    for _ in 0..100_000 {
        log.append(Stream::Stdout, b"o");
        log.append(Stream::Stderr, b"e");
    }
    assert!(log.retained() >= 16_000, "{}", log.retained());
    assert_eq!(log.tail(1, 4).1, b"oeoe");
}

#[test]
fn logs_share_the_slots() {
    let dir = tempfile::tempdir().unwrap();
    let spill = Arc::new(Spill::with_slots_of(16, dir.path()));
    spill.set_total(10 * 16);
    let mut logs: Vec<_> = (0..3).map(|_| OutputLog::new(spill.clone(), 1000)).collect();
    for number in 0..300u32 {
        for log in &mut logs {
            log.append(Stream::Stdout, format!("{number}\n").as_bytes());
            assert!(spill.used() <= 10);
        }
    }
    assert!(logs.iter().all(|log| log.tail(1, 100).1 == b"299\n"));
    let retained = logs[0].retained();
    assert!(retained > 20);
    assert_eq!((logs[0].discard(), logs[0].retained(), logs[0].total(StreamSelector::All)), (retained, 0, 1090));
    // Slots that one log released are available to others.
    let before = logs[1].retained();
    logs[1].append(Stream::Stdout, &[b'x'; 100]);
    assert!(logs[1].retained() > before);
}

#[test]
fn an_unreadable_slot_is_skipped() {
    let (_dir, mut log) = small(1000);
    (0..12).for_each(|number| log.append(Stream::Stdout, format!("line {number:02}\n").as_bytes()));
    // A slot beyond the end of the file.
    log.sealed[1].slot = 1 << 20;
    let (missing, next) = (log.begin_of(1).offset(StreamSelector::All), log.begin_of(2).offset(StreamSelector::All));
    assert_eq!(log.read(StreamSelector::All, 0, 1000).1.len() as u64, missing);
    assert_eq!(log.read(StreamSelector::All, missing, 1000).0, next);
    let found = log.search(StreamSelector::All, 0, &line_pattern("line 11", false).unwrap(), 0, 10).0;
    assert_eq!((found[0].offset, found[0].line), (88, 12));
}

#[test]
fn a_search_that_runs_out_of_time_can_be_continued() {
    let (_dir, mut log) = small(1000);
    log.append(Stream::Stdout, b"hit one\nnothing\nhit two\nhit");
    let (mut next, mut lines, mut searches) = (0, Vec::new(), 0);
    let mut more = true;
    while more {
        let mut search = LogSearch::new(line_pattern("hit", false).unwrap(), 0, 10, next);
        while !search.is_over() && !search.has_advanced() {
            search.search(&log.slice(StreamSelector::All, search.at(), 1), Instant::now());
        }
        let found;
        (found, more, next) = search.into_result();
        lines.extend(found.into_iter().map(|it| it.line));
        searches += 1;
        assert!(searches < 10);
    }
    assert_eq!((lines, next), (vec![1, 3, 4], 27));
}
