//! Checks the trail: each line follows the previous one, by number and hash.
//!
//! A changed line is detected by the next one, so only the form of the last line can be checked.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::log::{MAX_FILES, MAX_LINE, files, private};

/// An unbroken trail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// The number of files.
    pub files: usize,
    /// The number of lines.
    pub lines: u64,
    /// The number of lines that a killed process left incomplete, and after which the trail continues.
    pub torn: u64,
    /// Time of the first line.
    pub first: Option<String>,
    /// Time of the last one.
    pub last: Option<String>,
}

/// The first break of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainBreak {
    /// The file that it is in.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: u64,
    /// The reason.
    pub reason: String,
}

/// Checks all files, oldest first, while no process writes.
///
/// # Errors
/// If a file cannot be read.
pub fn verify(dir: &Path) -> io::Result<Result<VerifyReport, ChainBreak>> {
    let lock = private().write(true).open(dir.join("lock"))?;
    lock.lock_shared()?;
    let files = files(dir)?;
    let mut chain = Chain { rotated: files.len() >= MAX_FILES, ..Chain::default() };
    for file in &files {
        let mut lines = BufReader::new(File::open(file)?);
        for number in 1.. {
            let mut bytes = Vec::new();
            // A line that is too long is not read to its end.
            let read = (&mut lines).take(2 * MAX_LINE as u64).read_until(b'\n', &mut bytes)?;
            if read == 0 {
                break;
            }
            if let Err(broken) = chain.add(file, number, &bytes) {
                return Ok(Err(broken));
            }
        }
    }
    Ok(chain.end(files.len()))
}

/// The state after the lines so far.
#[derive(Debug, Default)]
struct Chain {
    seen: VerifyReport,
    /// Older lines may have been removed with their files.
    rotated: bool,
    before: Option<ChainLink>,
    /// The last line, if it is invalid.
    torn: Option<ChainBreak>,
    newest: Option<u64>,
}

#[derive(Debug)]
struct ChainLink {
    place: (PathBuf, u64),
    hash: String,
}

impl Chain {
    fn add(&mut self, file: &Path, number: u64, bytes: &[u8]) -> Result<(), ChainBreak> {
        let (text, whole) = bytes.strip_suffix(b"\n").map_or((bytes, false), |it| (it, true));
        if text.is_empty() {
            // The end of an incomplete line.
            return Ok(());
        }
        let here = |reason: String| ChainBreak { file: file.to_owned(), line: number, reason };
        let hash = hex::encode(Sha256::digest(text));
        let line: Option<Value> = serde_json::from_slice(text).ok().filter(|_| whole);
        let seq = line.as_ref().and_then(|it| it["seq"].as_u64());
        if let (Some(line), Some(seq)) = (line, seq) {
            if let Err(broken) = self.follows(&line, seq) {
                // An invalid line before it is the more precise reason.
                return Err(self.torn.take().unwrap_or_else(|| broken.unwrap_or_else(here)));
            }
            self.seen.torn += u64::from(self.torn.take().is_some());
            self.newest = Some(seq);
            let ts = line["ts"].as_str().map(str::to_owned);
            self.seen.first = self.seen.first.take().or_else(|| ts.clone());
            self.seen.last = ts;
            self.seen.lines += 1;
        } else {
            if let Some(broken) = self.torn.take() {
                return Err(broken);
            }
            self.torn = Some(here("it is no line of the trail, or was cut short".to_owned()));
        }
        self.before = Some(ChainLink { place: (file.to_owned(), number), hash });
        Ok(())
    }

    /// Checks that a line is the next one. The error is either in this line or in the previous one.
    fn follows(&self, line: &Value, seq: u64) -> Result<(), Result<ChainBreak, String>> {
        let expected = match (&self.before, self.newest) {
            (None, _) if self.rotated => seq,
            (_, None) => 0,
            (_, Some(newest)) => newest + 1,
        };
        if seq != expected {
            let what = if seq > expected { "lines are missing before it" } else { "it was moved" };
            return Err(Err(format!("{what}: it is number {seq}, and number {expected} was expected")));
        }
        let prev = line["prev"].as_str();
        match &self.before {
            None if self.rotated => Ok(()),
            None if prev.is_none() => Ok(()),
            None => Err(Err("the line before it is missing".to_owned())),
            Some(before) if prev == Some(&before.hash) => Ok(()),
            Some(before) => {
                let (file, number) = before.place.clone();
                let reason = "it was changed: the line after it has another hash of it".to_owned();
                Err(Ok(ChainBreak { file, line: number, reason }))
            }
        }
    }

    fn end(self, files: usize) -> Result<VerifyReport, ChainBreak> {
        match self.torn {
            Some(broken) => Err(broken),
            None => Ok(VerifyReport { files, ..self.seen }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::log::append;

    /// Creates a trail of so many lines.
    fn trail(lines: u64) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..lines {
            append(dir.path(), Map::from_iter([("op".to_owned(), json!(format!("op{n}")))]), false).unwrap();
        }
        let file = files(dir.path()).unwrap().remove(0);
        (dir, file)
    }

    fn edited(lines: u64, edit: impl FnOnce(&mut Vec<String>)) -> Result<VerifyReport, (u64, String)> {
        let (dir, file) = trail(lines);
        let text = std::fs::read_to_string(&file).unwrap();
        let mut all: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        edit(&mut all);
        std::fs::write(&file, all.concat()).unwrap();
        verify(dir.path()).unwrap().map_err(|it| {
            assert_eq!(it.file, file);
            (it.line, it.reason)
        })
    }

    #[test]
    fn an_unchanged_trail_is_valid() {
        let whole = edited(5, |_| {}).unwrap();
        assert_eq!((whole.files, whole.lines, whole.torn), (1, 5, 0));
        assert!(whole.first.is_some() && whole.first <= whole.last);
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(verify(empty.path()).unwrap(), Ok(VerifyReport::default()));
    }

    #[test]
    fn the_first_changed_line_is_reported() {
        let (line, reason) = edited(5, |it| it[2] = it[2].replace("op2", "op9")).unwrap_err();
        assert!(line == 3 && reason.contains("another hash"), "{line}: {reason}");
        assert_eq!(edited(5, |it| it[1] = it[1].replace("\"seq\":1", "\"seq\":7")).unwrap_err().0, 2);
        assert_eq!(edited(5, |it| it[3].insert(0, '#')).unwrap_err().0, 4);
    }

    #[test]
    fn missing_moved_or_truncated_lines_are_reported() {
        let (line, reason) = edited(5, |it| drop(it.remove(2))).unwrap_err();
        assert!(line == 3 && reason.contains("number 3, and number 2 was expected"), "{line}: {reason}");
        assert_eq!(edited(5, |it| drop(it.remove(0))).unwrap_err().0, 1);
        assert_eq!(edited(5, |it| it.swap(1, 2)).unwrap_err().0, 2);
        let (line, reason) = edited(5, |it| it[4].truncate(20)).unwrap_err();
        assert!(line == 5 && reason.contains("cut short"), "{line}: {reason}");
        let unended = edited(5, |it| it[4] = it[4].trim_end().to_owned()).unwrap_err();
        assert_eq!(unended.0, 5, "its end is part of a line");
    }

    #[test]
    fn an_interrupted_write_is_no_break() {
        let (dir, file) = trail(2);
        let whole = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{whole}{{\"seq\":2,\"op")).unwrap();
        append(dir.path(), Map::new(), false).unwrap();
        let verified = verify(dir.path()).unwrap().unwrap();
        assert_eq!((verified.lines, verified.torn), (3, 1));
    }

    #[test]
    fn the_chain_continues_through_all_files() {
        let (dir, first) = trail(3);
        // The lines are distributed as if each file had been full.
        let text = std::fs::read_to_string(&first).unwrap();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        std::fs::write(dir.path().join("2026-01-01-0.jsonl"), lines[..1].concat()).unwrap();
        std::fs::write(dir.path().join("2026-01-01-1.jsonl"), lines[1..2].concat()).unwrap();
        std::fs::write(&first, lines[2]).unwrap();
        assert_eq!(verify(dir.path()).unwrap().map(|it| (it.files, it.lines)), Ok((3, 3)));
        std::fs::remove_file(dir.path().join("2026-01-01-1.jsonl")).unwrap();
        let broken = verify(dir.path()).unwrap().unwrap_err();
        assert_eq!((broken.file, broken.line), (first.clone(), 1));
        // Missing old files are accepted only if the number of files is at its maximum.
        std::fs::remove_file(dir.path().join("2026-01-01-0.jsonl")).unwrap();
        assert!(verify(dir.path()).unwrap().is_err());
        for number in 0..MAX_FILES {
            std::fs::write(dir.path().join(format!("2999-01-01-{number}.jsonl")), "").unwrap();
        }
        assert!(verify(dir.path()).unwrap().is_ok());
    }
}
