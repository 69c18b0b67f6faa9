//! The certificates that the host's administrator added. They are public and contain no secret.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

/// Where systems look for added certificates, relative to the root.
const DIRS: &[&str] = &["usr/local/share/ca-certificates", "etc/pki/ca-trust/source/anchors"];

/// Maximum size of one file, and of all certificates together.
const MAX_BYTES: u64 = 1 << 20;

/// Maximum depth below the directories of [`DIRS`].
const MAX_DEPTH: usize = 4;

const MAX_FILES: usize = 512;

/// A certificate, by the digest of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    pub(super) digest: [u8; 32],
    der: Vec<u8>,
}

impl Certificate {
    fn new(der: &[u8]) -> Self {
        Self { digest: Sha256::digest(der).into(), der: der.to_vec() }
    }

    pub(super) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Renders it as PEM.
    pub(super) fn pem(&self) -> String {
        let text = BASE64_STANDARD.encode(&self.der);
        let mut lines = String::from("-----BEGIN CERTIFICATE-----\n");
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at(rest.len().min(64));
            lines.extend([line, "\n"]);
            rest = more;
        }
        lines + "-----END CERTIFICATE-----\n"
    }
}

/// Returns the certificates in a text; ignores keys and everything else.
pub(super) fn certificates(pem: &[u8]) -> impl Iterator<Item = Certificate> {
    // Checks only for a sequence of some length; programs that trust it parse the rest.
    let looks_right = |it: &CertificateDer<'_>| it.len() > 64 && it[0] == 0x30;
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).filter(looks_right).map(|it| Certificate::new(&it))
}

/// The certificates that were added to a host, without duplicates and in a stable order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraCertificates {
    pub(super) certificates: Vec<Certificate>,
    /// Files that could not be used, with the reason.
    pub left_out: Vec<(PathBuf, &'static str)>,
}

impl ExtraCertificates {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// The number of certificates.
    #[must_use]
    pub fn len(&self) -> usize {
        self.certificates.len()
    }

    /// The key of an image that contains them; none without certificates.
    #[must_use]
    pub fn key(&self) -> Option<String> {
        let digests: Vec<u8> = self.certificates.iter().flat_map(|it| it.digest).collect();
        (!self.is_empty()).then(|| hex::encode(Sha256::digest(digests)))
    }

    /// Reads a host's two directories, below its root, and `files` (`auto_passthrough.ca_files`). Links are
    /// followed, as the host's own tools do; only certificates are read from any file.
    #[must_use]
    pub fn read(root: &Path, files: &[PathBuf]) -> Self {
        let mut found = CertificateScan::default();
        for dir in DIRS {
            found.walk(&root.join(dir), 0);
        }
        for file in files {
            found.read(file, true);
        }
        Self { certificates: found.by_digest.into_values().collect(), left_out: found.left_out }
    }

    /// Adds the certificates of a text.
    #[must_use]
    pub fn and_pem(mut self, pem: &str) -> Self {
        self.certificates.extend(certificates(pem.as_bytes()));
        self
    }
}

#[derive(Default)]
struct CertificateScan {
    by_digest: BTreeMap<[u8; 32], Certificate>,
    bytes: u64,
    files: usize,
    left_out: Vec<(PathBuf, &'static str)>,
}

impl CertificateScan {
    fn walk(&mut self, dir: &Path, depth: usize) {
        let Ok(entries) = fs::read_dir(dir) else { return };
        let mut paths: Vec<PathBuf> = entries.filter_map(|it| Some(it.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            match fs::metadata(&path) {
                Ok(it) if it.is_dir() && depth < MAX_DEPTH => self.walk(&path, depth + 1),
                Ok(it) if it.is_file() => self.read(&path, false),
                _ => {}
            }
        }
    }

    /// Reads a file. One that is configured by name has to contain a certificate.
    fn read(&mut self, path: &Path, named: bool) {
        self.files += 1;
        let taken = if self.files > MAX_FILES { Err("there are too many files") } else { self.take(path) };
        match taken {
            Ok(0) if named => self.left_out.push((path.to_owned(), "there is no certificate in it")),
            Ok(_) => {}
            Err(why) => self.left_out.push((path.to_owned(), why)),
        }
    }

    fn take(&mut self, path: &Path) -> Result<usize, &'static str> {
        let unreadable = |_| "it cannot be read";
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err("it is no regular file");
        }
        let mut bytes = Vec::new();
        File::open(path).map_err(unreadable)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err("it is longer than 1 MiB");
        }
        let mut count = 0;
        for it in certificates(&bytes) {
            count += 1;
            if self.by_digest.contains_key(&it.digest) {
                continue;
            }
            self.bytes += it.der.len() as u64;
            if self.bytes > MAX_BYTES {
                return Err("all certificates together are longer than 1 MiB");
            }
            self.by_digest.insert(it.digest, it);
        }
        Ok(count)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Builds a section that passes for a certificate here.
    pub(in crate::certs) fn pem(seed: u8) -> String {
        let der: Vec<u8> = [0x30, seed].into_iter().chain((0..200).map(|it: u8| it.wrapping_mul(seed))).collect();
        Certificate::new(&der).pem()
    }

    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0IGtleSBvZiB0aGUgaG9zdCwgdmVyeSBsb25nIGluZGVlZCwgYW5kIG5vIGNlcnRpZmljYXRlIGF0IGFsbA==\n-----END PRIVATE KEY-----\n";

    #[test]
    fn certificates_are_read_from_three_places_without_duplicates() {
        let root = tempfile::tempdir().unwrap();
        let path = |it: &str| root.path().join(it);
        let (debian, red_hat) = (path(DIRS[0]), path(DIRS[1]));
        fs::create_dir_all(debian.join("corp")).unwrap();
        fs::create_dir_all(&red_hat).unwrap();
        fs::write(
            debian.join("corp/two.crt"),
            format!("# two\r\n{}\r\ntext\n{}", pem(1).replace('\n', "\r\n"), pem(2)),
        )
        .unwrap();
        fs::write(path("linked.pem"), format!("{KEY}{}{KEY}", pem(3))).unwrap();
        symlink(path("linked.pem"), debian.join("linked.crt")).unwrap();
        symlink("nowhere", debian.join("broken.crt")).unwrap();
        fs::write(debian.join("readme"), "hello").unwrap();
        fs::write(red_hat.join("one.pem"), pem(1)).unwrap();
        fs::write(path("named"), pem(4)).unwrap();
        fs::write(path("key"), KEY).unwrap();
        fs::write(path("large"), vec![b'x'; (1 << 20) + 1]).unwrap();
        let files = ["named", "key", "large", "gone", "etc"].map(path);
        let found = ExtraCertificates::read(root.path(), &files);
        let mut all: Vec<String> = found.certificates.iter().map(Certificate::pem).collect();
        all.sort();
        let mut expected = [1, 2, 3, 4].map(pem);
        expected.sort();
        assert_eq!(all, expected);
        let left_out: Vec<_> = found.left_out.iter().map(|it| it.0.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(left_out, ["key", "large", "gone", "etc"]);
    }

    #[test]
    fn the_key_depends_on_the_certificates_and_not_on_their_files() {
        let keys = [&["a", "b"][..], &["b", "a"], &["both"], &["a"], &[]].map(|names| {
            let root = tempfile::tempdir().unwrap();
            let dir = root.path().join(DIRS[0]);
            fs::create_dir_all(&dir).unwrap();
            for (number, name) in names.iter().enumerate() {
                let content = match *name {
                    "a" => pem(1),
                    "b" => pem(2),
                    _ => format!("{}\n\n{}", pem(2), pem(1)),
                };
                fs::write(dir.join(format!("{number}.crt")), content).unwrap();
            }
            ExtraCertificates::read(root.path(), &[]).key()
        });
        assert!(keys[0].is_some() && keys[0] == keys[1] && keys[1] == keys[2] && keys[2] != keys[3], "{keys:?}");
        assert_eq!(keys[4], None);
    }

    proptest::proptest! {
        #[test]
        fn a_certificate_is_found_among_other_sections_and_text(
            around in "(-----BEGIN X-----\nQUJD\n-----END X-----\n|-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n|[A-Za-z0-9+/= ]{0,80}\r?\n)*",
        ) {
            let text = format!("{around}{}{around}", pem(1));
            let found: Vec<_> = certificates(text.as_bytes()).map(|it| it.pem()).collect();
            proptest::prop_assert_eq!(found, [pem(1)]);
        }

        #[test]
        fn every_text_is_parsed_to_its_end(text in "(-----(BEGIN|END) (CERTIFICATE|X)-----\n|[A-Za-z0-9+/=\n -]{0,80}|\r|\0)*") {
            proptest::prop_assert!(certificates(text.as_bytes()).count() < 100);
        }
    }

    /// openssl reads lines of 64 characters.
    #[test]
    fn written_certificates_can_be_read() {
        let text = pem(7);
        assert!(text.lines().all(|it| it.len() <= 64) && text.lines().count() == 7, "{text}");
        assert_eq!(certificates(text.as_bytes()).map(|it| it.pem()).collect::<Vec<_>>(), [text]);
    }
}
