//! The files of the trail: appended under a lock, bounded, rotated.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use coracle_host::rotating_log::append_whole;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Maximum length of a line, with its end.
pub(super) const MAX_LINE: usize = 4096;

/// Size at which the next file is started.
const MAX_FILE: u64 = 16 << 20;

/// Maximum number of files.
pub(super) const MAX_FILES: usize = 16;

/// The audit log of a state directory.
#[derive(Clone, Debug)]
pub struct AuditLog {
    dir: PathBuf,
}

impl AuditLog {
    /// Opens the log in that directory.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Appends a line; with `durable` it is synced to disk before this returns.
    ///
    /// # Errors
    /// If the directory cannot be written to.
    pub async fn append(&self, line: Map<String, Value>, durable: bool) -> io::Result<()> {
        let dir = self.dir.clone();
        let write = tokio::task::spawn_blocking(move || append(&dir, line, durable));
        write.await.unwrap_or_else(|err| Err(io::Error::other(err)))
    }
}

pub(super) fn append(dir: &Path, line: Map<String, Value>, durable: bool) -> io::Result<()> {
    let lock = private().write(true).open(dir.join("lock"))?;
    lock.lock()?;
    let files = files(dir)?;
    let newest = files.last().cloned();
    let (before, room) = end(&files)?;
    let (path, is_new) = match newest.filter(|_| room) {
        Some(path) => (path, false),
        None => (next(dir, &files)?, true),
    };
    let text = written(line, &before);
    let file = private().append(true).open(path)?;
    append_whole(&file, text.as_bytes())?;
    if is_new {
        File::open(dir)?.sync_all()?;
    }
    if durable { file.sync_data() } else { Ok(()) }
}

/// Returns the last line, and whether the newest file has room for another. A file that was created on a full disk is
/// empty; the chain then continues from the previous file.
fn end(files: &[PathBuf]) -> io::Result<(Last, bool)> {
    let mut has_room = None;
    for file in files.iter().rev() {
        let last = last(file)?;
        let room = *has_room.get_or_insert(last.bytes < MAX_FILE);
        if last.bytes > 0 {
            return Ok((last, room));
        }
    }
    Ok((Last::default(), has_room.unwrap_or(false)))
}

pub(super) fn private() -> OpenOptions {
    let mut options = File::options();
    options.create(true).mode(0o600);
    options
}

/// The end of a file.
#[derive(Debug, Default)]
struct Last {
    /// Hash of the last line.
    hash: Option<String>,
    seq: Option<u64>,
    bytes: u64,
    /// It does not end with a line feed: a write was interrupted.
    torn: bool,
}

fn last(path: &Path) -> io::Result<Last> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let tail_bytes = bytes.min(2 * MAX_LINE as u64);
    file.seek(SeekFrom::Start(bytes - tail_bytes))?;
    let mut tail = Vec::new();
    file.take(tail_bytes).read_to_end(&mut tail)?;
    let torn = tail.last().is_some_and(|it| *it != b'\n');
    let lines: Vec<&[u8]> = tail.split(|it| *it == b'\n').filter(|it| !it.is_empty()).collect();
    let seq = |line: &&[u8]| serde_json::from_slice::<Value>(line).ok()?.get("seq")?.as_u64();
    let hash = lines.last().map(|it| hex::encode(Sha256::digest(it)));
    Ok(Last { hash, seq: lines.iter().rev().find_map(seq), bytes, torn })
}

fn written(mut line: Map<String, Value>, before: &Last) -> String {
    line.insert("v".into(), 1.into());
    line.insert("ts".into(), jiff::Timestamp::now().to_string().into());
    line.insert("seq".into(), before.seq.map_or(0, |it| it + 1).into());
    line.insert("prev".into(), before.hash.clone().into());
    let mut text = Value::Object(line.clone()).to_string();
    if text.len() + 2 > MAX_LINE {
        line.remove("args");
        text = Value::Object(line).to_string();
    }
    format!("{}{text}\n", if before.torn { "\n" } else { "" })
}

/// All files, oldest first.
pub(super) fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in dir.read_dir()? {
        let path = entry?.path();
        if let Some(order) = path.file_name().and_then(|it| it.to_str()).and_then(order) {
            found.push((order, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// `<date>-<n>.jsonl`
fn order(name: &str) -> Option<(String, u32)> {
    let (date, number) = name.strip_suffix(".jsonl")?.rsplit_once('-')?;
    Some((date.to_owned(), number.parse().ok()?))
}

/// Returns the path of a new file, after removing the oldest ones.
fn next(dir: &Path, files: &[PathBuf]) -> io::Result<PathBuf> {
    for old in files.iter().take((files.len() + 1).saturating_sub(MAX_FILES)) {
        std::fs::remove_file(old)?;
    }
    let date = jiff::Timestamp::now().to_string().chars().take(10).collect::<String>();
    let newest = files.last().and_then(|it| order(it.file_name()?.to_str()?));
    let number = newest.filter(|(day, _)| *day == date).map_or(0, |(_, number)| number + 1);
    Ok(dir.join(format!("{date}-{number}.jsonl")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Map, Value, json};

    use super::{append, files, last};

    fn line(bytes: usize) -> Map<String, Value> {
        let Value::Object(line) = json!({ "op": "exec", "args": "x".repeat(bytes) }) else { panic!("no object") };
        line
    }

    fn seq(dir: &Path) -> Vec<Option<u64>> {
        files(dir).unwrap().iter().map(|it| last(it).unwrap().seq).collect()
    }

    #[test]
    fn a_long_line_loses_its_arguments() {
        let dir = tempfile::tempdir().unwrap();
        append(dir.path(), line(5000), true).unwrap();
        let text = std::fs::read_to_string(&files(dir.path()).unwrap()[0]).unwrap();
        assert!(text.len() < 4096 && text.ends_with("}\n"), "{}", text.len());
    }

    #[test]
    fn an_incomplete_line_does_not_affect_the_next() {
        let dir = tempfile::tempdir().unwrap();
        append(dir.path(), line(1), false).unwrap();
        let file = files(dir.path()).unwrap().remove(0);
        let whole = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{whole}{{\"seq\":1,\"op")).unwrap();
        append(dir.path(), line(1), false).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), 3);
        assert_eq!(seq(dir.path()), [Some(1)]);
    }

    #[test]
    fn a_full_disk_at_a_rotation_does_not_break_the_chain() {
        let dir = tempfile::tempdir().unwrap();
        while files(dir.path()).unwrap().len() < 2 {
            append(dir.path(), line(3800), false).unwrap();
        }
        let before = seq(dir.path())[0].unwrap();
        let second = files(dir.path()).unwrap().remove(1);
        // Writes to this device fail as on a full disk.
        std::fs::remove_file(&second).unwrap();
        std::os::unix::fs::symlink("/dev/full", &second).unwrap();
        append(dir.path(), line(1), false).unwrap_err();
        std::fs::remove_file(&second).unwrap();
        std::fs::write(&second, "").unwrap();
        for _ in 0..2 {
            append(dir.path(), line(1), true).unwrap();
        }
        assert_eq!(seq(dir.path()), [Some(before), Some(before + 2)]);
        assert!(crate::verify(dir.path()).unwrap().is_ok());
    }

    #[test]
    fn the_chain_continues_in_the_next_file_and_old_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..16 {
            std::fs::write(dir.path().join(format!("2026-01-01-{number}.jsonl")), "{\"seq\":41}\n").unwrap();
        }
        let full = std::fs::File::options().append(true).open(dir.path().join("2026-01-01-15.jsonl")).unwrap();
        std::io::Write::write_all(&mut &full, &[b' '; 17 << 20]).unwrap();
        std::io::Write::write_all(&mut &full, b"\n{\"seq\":42}\n").unwrap();
        append(dir.path(), line(1), false).unwrap();
        let seqs = seq(dir.path());
        assert_eq!((seqs.len(), seqs.last()), (16, Some(&Some(43))));
        assert!(!dir.path().join("2026-01-01-0.jsonl").exists());
    }
}
