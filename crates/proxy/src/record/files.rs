//! The files of a record.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use coracle_host::rotating_log::append_whole;
use coracle_host::state_file::{self, own_directory};
use coracle_types::failure::Failure;
use coracle_types::random_hex;
use sha2::{Digest as _, Sha256};

use super::exchange::{RecordedBody, RecordedExchange, VERSION};

/// The file with the exchanges of a record.
pub const RECORD_FILE: &str = "exchanges.jsonl";

/// The record of a container's requests, in a directory.
#[derive(Clone, Debug)]
pub struct ExchangeRecord {
    dir: PathBuf,
}

/// The size of a record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordSize {
    /// Bytes of all bodies.
    pub(super) bodies: u64,
    /// Bytes of all lines.
    pub(super) lines: u64,
    pub(super) exchanges: u64,
}

/// What was written of an exchange.
#[derive(Debug)]
pub(super) struct Appended {
    pub(super) sha256: String,
    pub(super) line_bytes: u64,
    /// Bytes of bodies that the record had before.
    pub(super) known_bytes: u64,
}

impl ExchangeRecord {
    /// That in a directory, which need not exist.
    #[must_use]
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reads all exchanges, in the order in which they began. An unfinished line at the end is left out.
    ///
    /// # Errors
    /// `newer_version` for a record that a newer version wrote, and errors of the file system.
    pub fn exchanges(&self) -> Result<Vec<RecordedExchange>, Failure> {
        let mut exchanges = Vec::new();
        for line in self.lines().map_err(Failure::internal)? {
            let Ok(exchange) = serde_json::from_slice::<RecordedExchange>(&line) else {
                if is_newer(&line) {
                    return Err(self.newer());
                }
                continue;
            };
            if exchange.v > VERSION {
                return Err(self.newer());
            }
            exchanges.push(exchange);
        }
        exchanges.sort_by_key(|it| it.sequence);
        Ok(exchanges)
    }

    fn newer(&self) -> Failure {
        let file = self.dir.join(RECORD_FILE);
        state_file::newer(format!("`{}` was written by a newer version", file.display())).detail("file", file)
    }

    /// Reads a body.
    ///
    /// # Errors
    /// If it is not in the record, or another one than when it was stored.
    pub fn body(&self, body: &RecordedBody) -> io::Result<Vec<u8>> {
        if let Some(missing) = body.missing {
            return Err(io::Error::other(format!("the record does not have this body ({missing:?})")));
        }
        if body.bytes == 0 {
            return Ok(Vec::new());
        }
        let bytes = fs::read(self.body_path(&body.sha256)?)?;
        match hex::encode(Sha256::digest(&bytes)) == body.sha256 {
            true => Ok(bytes),
            false => Err(io::Error::other(format!("the body {} of the record is damaged", body.sha256))),
        }
    }

    /// Measures the record, without reading it into memory.
    pub(super) fn size(&self) -> io::Result<RecordSize> {
        let mut size = RecordSize::default();
        match fs::read_dir(self.bodies()) {
            Ok(entries) => size.bodies = entries.flatten().filter_map(|it| it.metadata().ok()).map(|it| it.len()).sum(),
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            Err(err) => return Err(err),
        }
        let mut file = match File::open(self.dir.join(RECORD_FILE)) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(size),
            opened => opened?,
        };
        let mut piece = vec![0; 64 * 1024];
        loop {
            let read = file.read(&mut piece)?;
            if read == 0 {
                return Ok(size);
            }
            size.lines += read as u64;
            size.exchanges += piece[..read].iter().filter(|it| **it == b'\n').count() as u64;
        }
    }

    fn lines(&self) -> io::Result<Vec<Vec<u8>>> {
        match File::open(self.dir.join(RECORD_FILE)) {
            Ok(file) => BufReader::new(file).split(b'\n').collect(),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(err) => Err(err),
        }
    }

    /// Writes the bodies of an exchange, and then its line.
    pub(super) fn append(&self, exchange: &RecordedExchange, bodies: &[Vec<u8>; 2]) -> io::Result<Appended> {
        own_directory(&self.bodies()).map_err(io::Error::other)?;
        let mut known_bytes = 0;
        for (message, body) in [&exchange.request, &exchange.answer].into_iter().zip(bodies) {
            if !body.is_empty() && !self.put(&message.body.sha256, body)? {
                known_bytes += body.len() as u64;
            }
        }
        let mut line = serde_json::to_vec(exchange)?;
        let sha256 = hex::encode(Sha256::digest(&line));
        line.push(b'\n');
        let path = self.dir.join(RECORD_FILE);
        let mut file = File::options().read(true).append(true).create(true).mode(0o600).open(path)?;
        if !ends_a_line(&mut file)? {
            line.insert(0, b'\n');
        }
        append_whole(&file, &line)?;
        Ok(Appended { sha256, line_bytes: line.len() as u64, known_bytes })
    }

    /// Writes a body, unless the record has it.
    fn put(&self, sha256: &str, body: &[u8]) -> io::Result<bool> {
        let path = self.body_path(sha256)?;
        if path.exists() {
            return Ok(false);
        }
        let unfinished = self.bodies().join(format!(".{}", random_hex::<8>()));
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        let written = file.write_all(body).and_then(|()| fs::rename(&unfinished, path));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written.map(|()| true)
    }

    fn bodies(&self) -> PathBuf {
        self.dir.join("bodies")
    }

    /// The file of a body. The name comes from a line of the record.
    fn body_path(&self, sha256: &str) -> io::Result<PathBuf> {
        let is_hash = sha256.len() == 64 && sha256.bytes().all(|it| it.is_ascii_hexdigit());
        is_hash.then(|| self.bodies().join(sha256)).ok_or_else(|| io::Error::other("a body without a hash"))
    }
}

/// Whether a file is empty or its last line is complete. One that a process died in is not.
fn ends_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

fn is_newer(line: &[u8]) -> bool {
    let read: Option<serde_json::Value> = serde_json::from_slice(line).ok();
    read.and_then(|it| it["v"].as_u64()).is_some_and(|it| it > u64::from(VERSION))
}

#[cfg(test)]
mod tests {
    use coracle_types::failure::Code;

    use super::*;
    use crate::record::RecordedMessage;

    fn exchange(body: &[u8]) -> RecordedExchange {
        let sha256 = hex::encode(Sha256::digest(body));
        let body = RecordedBody { bytes: body.len() as u64, sha256, missing: None };
        RecordedExchange {
            v: VERSION,
            sequence: 0,
            time: String::new(),
            ms: 0,
            method: "GET".to_owned(),
            url: "https://a.example/".to_owned(),
            request: RecordedMessage::default(),
            status: 200,
            answer: RecordedMessage { body, ..RecordedMessage::default() },
            refused: None,
        }
    }

    #[test]
    fn a_body_is_stored_once_and_a_changed_one_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let record = ExchangeRecord::at(dir.path().join("record"));
        assert_eq!(record.exchanges().unwrap(), []);
        let one = exchange(b"body");
        let bodies = [Vec::new(), b"body".to_vec()];
        assert_eq!(record.append(&one, &bodies).unwrap().known_bytes, 0);
        assert_eq!(record.append(&one, &bodies).unwrap().known_bytes, 4);
        assert_eq!(record.exchanges().unwrap(), [one.clone(), one.clone()]);
        assert_eq!(record.size().unwrap().exchanges, 2);
        assert_eq!(record.body(&one.answer.body).unwrap(), b"body");
        fs::write(record.bodies().join(&one.answer.body.sha256), "other").unwrap();
        assert!(record.body(&one.answer.body).is_err());
        let outside = RecordedBody { bytes: 1, sha256: "../exchanges.jsonl".to_owned(), missing: None };
        assert!(record.body(&outside).is_err());
    }

    #[test]
    fn an_unfinished_line_is_left_out_and_a_newer_one_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let record = ExchangeRecord::at(dir.path().to_owned());
        record.append(&exchange(b""), &Default::default()).unwrap();
        let file = dir.path().join(RECORD_FILE);
        let whole = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{whole}{{\"v\":1,\"seq")).unwrap();
        assert_eq!(record.exchanges().unwrap().len(), 1);
        for newer in [whole.replace("\"v\":1", "\"v\":2"), "{\"v\":2}\n".to_owned()] {
            fs::write(&file, whole.clone() + &newer).unwrap();
            assert_eq!(record.exchanges().unwrap_err().code, Code::NewerVersion, "{newer}");
        }
    }
}
