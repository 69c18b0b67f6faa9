//! Finds a value in bytes, in any encoding.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use coracle_types::random_hex;
use memchr::memmem;
use sha2::{Digest as _, Sha256};

/// Random values with names, and every form to search for.
#[derive(Debug, Default)]
pub(crate) struct Canaries(Vec<(String, Vec<u8>)>);

impl Canaries {
    /// Adds a canary. Letters and digits alone, so that it fits everywhere.
    pub(crate) fn hatch(&mut self, name: &str) -> String {
        let value = format!("Kanari{}", random_hex::<16>());
        let forms = forms(&value);
        self.0.extend(forms.into_iter().map(|(form, bytes)| (format!("{name}, {form}"), bytes)));
        value
    }

    /// Canaries in these bytes, and their encodings; compressed layers of an archive are searched, too.
    pub(crate) fn hits(&self, bytes: &[u8]) -> BTreeSet<String> {
        let unpacked = unpacked(bytes);
        let within = |form: &[u8]| {
            [bytes].into_iter().chain(unpacked.iter().map(Vec::as_slice)).any(|it| memmem::find(it, form).is_some())
        };
        self.0.iter().filter(|(_, form)| within(form)).map(|(name, _)| name.clone()).collect()
    }

    /// Fails if any of them is found.
    pub(crate) fn absent(&self, surface: &str, bytes: &[u8]) {
        let hits = self.hits(bytes);
        assert!(hits.is_empty(), "{surface} holds {hits:?}");
    }

    /// They are all there: this surface would show them.
    pub(crate) fn present(&self, surface: &str, bytes: &[u8]) {
        assert!(
            !self.hits(bytes).is_empty(),
            "{surface} does not show what was planted in it: {}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(2000)])
        );
    }
}

fn forms(value: &str) -> Vec<(String, Vec<u8>)> {
    let hex = hex::encode(value);
    let percent: String = value.bytes().map(|it| format!("%{it:02X}")).collect();
    let reversed: String = value.chars().rev().collect();
    let mut forms = vec![
        ("raw".to_owned(), value.as_bytes().to_vec()),
        ("HEX".to_owned(), hex.to_uppercase().into_bytes()),
        ("hex".to_owned(), hex.into_bytes()),
        ("percent".to_owned(), percent.clone().into_bytes()),
        ("percent, small".to_owned(), percent.to_lowercase().into_bytes()),
        ("reversed".to_owned(), reversed.into_bytes()),
        // A digest lets a reader try guesses at a short secret; a cut one, too.
        ("SHA-256".to_owned(), hex::encode(&Sha256::digest(value)[..8]).into_bytes()),
    ];
    for shift in 0..3 {
        // The first and last letters depend on the bytes before and after.
        let padded = format!("{}{value}", "x".repeat(shift));
        for (name, encoded) in
            [("base64", BASE64_STANDARD_NO_PAD.encode(&padded)), ("base64url", BASE64_URL_SAFE_NO_PAD.encode(&padded))]
        {
            let (from, to) = ((shift * 8).div_ceil(6), padded.len() * 8 / 6);
            forms.push((format!("{name} at {shift}"), encoded.as_bytes()[from..to].to_vec()));
        }
    }
    forms
}

/// The uncompressed parts of an archive.
fn unpacked(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![];
    for entry in tar::Archive::new(bytes).entries().into_iter().flatten() {
        let Ok(mut entry) = entry else { break };
        let mut packed = vec![];
        if entry.read_to_end(&mut packed).is_ok() && packed.starts_with(&[0x1f, 0x8b]) {
            let mut plain = vec![];
            if flate2::read::MultiGzDecoder::new(&packed[..]).read_to_end(&mut plain).is_ok() {
                all.push(plain);
            }
        }
    }
    all
}

/// Every file below a directory, with its name.
pub(crate) fn files_below(dir: &Path) -> Vec<u8> {
    let mut all = vec![];
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        // A directory names what is below a mount: where devices are bound, their places are files.
        let Ok(kind) = entry.metadata().map(|it| it.file_type()) else { continue };
        all.extend(entry.path().display().to_string().into_bytes());
        if kind.is_dir() {
            all.extend(files_below(&entry.path()));
        } else if kind.is_file() {
            all.extend(std::fs::read(entry.path()).unwrap_or_default());
        }
    }
    all
}

/// Collects the command lines of all processes of this host until it is stopped.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<BTreeSet<Vec<u8>>>,
}

/// 200 times a second.
const PERIOD: Duration = Duration::from_millis(5);

impl Watch {
    pub(crate) fn begin() -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
                    if let Ok(words) = std::fs::read(process.path().join("cmdline")) {
                        seen.insert(words);
                    }
                }
            }
            seen
        });
        Self { stop, thread }
    }

    /// All output.
    pub(crate) fn end(self) -> Vec<u8> {
        drop(self.stop);
        self.thread.join().unwrap().into_iter().collect::<Vec<_>>().concat()
    }
}

#[test]
fn every_form_is_found() {
    use std::io::Write;
    let mut canaries = Canaries::default();
    let value = canaries.hatch("it");
    canaries.absent("nothing", b"Kanari and more of it");
    for shift in 0..3 {
        let around = format!("{}{value} and more", "y".repeat(shift));
        for encoded in [
            BASE64_STANDARD_NO_PAD.encode(&around),
            BASE64_URL_SAFE_NO_PAD.encode(&around),
            hex::encode(&around),
            around.clone(),
        ] {
            canaries.present("encoded", encoded.as_bytes());
        }
    }
    canaries.present("percent", value.bytes().map(|it| format!("%{it:02x}")).collect::<String>().as_bytes());
    let mut packed = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    packed.write_all(value.as_bytes()).unwrap();
    let (packed, mut header) = (packed.finish().unwrap(), tar::Header::new_gnu());
    header.set_size(packed.len() as u64);
    let mut archive = tar::Builder::new(vec![]);
    archive.append_data(&mut header, "layer", &packed[..]).unwrap();
    let archive = archive.into_inner().unwrap();
    canaries.present("a compressed layer", &archive);
}
