//! Samples of what containers use, in two files below the state directory: an hour of them is there when the page starts
//! again.
//!
//! One page of a state directory writes. Another that is open at the same time reads them once, at its start.

use std::fs::{DirBuilder, File, rename};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use coracle_lifecycle::Lock;

use crate::usage::{ContainerSample, RETENTION_MS};

/// A file that is larger is followed by another, before its hour is over.
const MAX_FILE: u64 = 16 << 20;

/// The files, in the order in which they were written.
const FILES: [&str; 2] = ["before.jsonl", "now.jsonl"];

/// The right to write the files.
#[derive(Debug)]
pub(crate) struct UsageLog {
    dir: PathBuf,
    file: File,
    /// The time of its first line.
    begun: i64,
    bytes: u64,
    /// Its last line may lack its end.
    is_cut_off: bool,
    _alone: Lock,
}

impl UsageLog {
    /// Reads what is there, and takes the right to write unless another page has it.
    pub(crate) fn open(dir: &Path, now: i64) -> io::Result<(Option<Self>, Vec<ContainerSample>)> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let alone = Lock::try_take(&dir.join("lock"))?;
        let [before, current] = FILES.map(|it| read(&dir.join(it)));
        let (before, current) = (before?, current?);
        let begun = current.first().map_or(now, |it| it.sample.at);
        let log = alone.map(|alone| {
            let file = append_to(&dir.join(FILES[1]))?;
            let bytes = file.metadata()?.len();
            // The page before may have ended while it wrote.
            io::Result::Ok(Self { dir: dir.to_owned(), file, begun, bytes, is_cut_off: bytes > 0, _alone: alone })
        });
        // A clock that was set back leaves lines of the future.
        let samples = before.into_iter().chain(current).filter(|it| it.sample.at <= now);
        Ok((log.transpose()?, samples.collect()))
    }

    /// Adds lines of that time. After an error it can be called again, with later ones.
    pub(crate) fn append(&mut self, samples: &[ContainerSample], now: i64) -> io::Result<()> {
        if self.bytes > MAX_FILE || now - self.begun > RETENTION_MS {
            let [before, current] = FILES.map(|it| self.dir.join(it));
            rename(&current, before)?;
            (self.file, self.begun, self.bytes) = (append_to(&current)?, now, 0);
            self.is_cut_off = false;
        }
        let mut text = if self.is_cut_off { vec![b'\n'] } else { vec![] };
        for it in samples {
            serde_json::to_writer(&mut text, it)?;
            text.push(b'\n');
        }
        self.bytes += text.len() as u64;
        self.is_cut_off = true;
        self.file.write_all(&text)?;
        self.is_cut_off = false;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

/// The samples of a file, none if it is missing. A line that was cut off is skipped.
fn read(path: &Path) -> io::Result<Vec<ContainerSample>> {
    let file = match File::open(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        file => file?,
    };
    let mut text = vec![];
    file.take(2 * MAX_FILE).read_to_end(&mut text)?;
    Ok(text.split(|it| *it == b'\n').filter_map(|it| serde_json::from_slice(it).ok()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn sample(at: i64) -> ContainerSample {
        let line = json!({ "container": "web", "id": "1", "at": at, "cpu_percent": null, "memory_bytes": 7 });
        from_value(line).unwrap()
    }

    fn times(samples: &[ContainerSample]) -> Vec<i64> {
        samples.iter().map(|it| it.sample.at).collect()
    }

    #[test]
    fn a_file_is_followed_by_another_after_an_hour_and_two_are_retained() {
        let dir = tempfile::tempdir().unwrap();
        let (log, none) = UsageLog::open(dir.path(), 0).unwrap();
        let mut log = log.unwrap();
        assert_eq!(none, []);
        let hours = [1, RETENTION_MS, RETENTION_MS + 1, 2 * RETENTION_MS + 2];
        for at in hours {
            log.append(&[sample(at)], at).unwrap();
        }
        assert_eq!(times(&read(&dir.path().join(FILES[0])).unwrap()), hours[2..3]);
        assert_eq!(times(&read(&dir.path().join(FILES[1])).unwrap()), hours[3..]);
        // The hour of a file continues after a restart.
        drop(log);
        let (log, _) = UsageLog::open(dir.path(), 3 * RETENTION_MS).unwrap();
        assert_eq!(log.unwrap().begun, hours[3]);
    }

    #[test]
    fn lines_that_were_cut_off_or_are_of_the_future_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let mut text: String = [1, 9].map(|it| format!("{}\n", serde_json::to_string(&sample(it)).unwrap())).concat();
        text += r#"{"container":"we"#;
        std::fs::write(dir.path().join(FILES[1]), text).unwrap();
        let (log, samples) = UsageLog::open(dir.path(), 5).unwrap();
        assert_eq!(times(&samples), [1]);
        log.unwrap().append(&[sample(3)], 3).unwrap();
        let (_, samples) = UsageLog::open(dir.path(), 5).unwrap();
        assert_eq!(times(&samples), [1, 3], "what follows such a line is whole");
    }
}
