//! The token of an HTTP client.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use coracle_context::Failure;
use ctutils::CtEq;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

/// Length of a token.
const LENGTH: std::ops::RangeInclusive<usize> = 32..=512;

/// A server's token. Only its digest is stored.
pub struct Token([u8; 32]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Generates a token without a file, and returns its text.
    #[must_use]
    pub fn generate() -> (Self, String) {
        let text = coracle_types::random_hex::<32>();
        (Self(Sha256::digest(&text).into()), text)
    }

    /// Reads the token in a file of the user, and creates a missing file.
    pub fn at(path: &Path, uid: u32) -> Result<Self, Failure> {
        Self::at_with_prefix(path, uid, "")
    }

    /// The same; the token of a new file begins with a prefix.
    pub fn at_with_prefix(path: &Path, uid: u32, prefix: &str) -> Result<Self, Failure> {
        let refuse = |why: &str, hint: String| {
            let message = format!("the token file `{}` cannot be used: {why}", path.display());
            Failure::config("token_file", None, message).hint(hint)
        };
        let other = || "name another file with `--token-file`".to_owned();
        let text = match read(path, uid) {
            Err(TokenError::Io(err)) if err.kind() == io::ErrorKind::NotFound => {
                create(path, prefix).map_err(|err| refuse(&err.to_string(), other()))?;
                read(path, uid)
            }
            read => read,
        };
        let text = text.map_err(|err| match err {
            TokenError::Open => refuse(&err.to_string(), format!("run `chmod 600 {}`", path.display())),
            _ => refuse(&err.to_string(), other()),
        })?;
        let token = text.trim_ascii();
        if !LENGTH.contains(&token.len()) || !token.iter().all(|it| is_token(*it)) {
            let why = "it does not hold one token of 32 to 512 letters, digits and `-._~+/=`";
            return Err(refuse(why, "remove it: a new one is made at the next start".to_owned()));
        }
        Ok(Self(Sha256::digest(token).into()))
    }

    /// Whether a request has the token. The time of the comparison does not depend on the guess.
    pub fn opens(&self, headers: &HeaderMap) -> bool {
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (given.next(), given.next()) else { return false };
        let Some((scheme, token)) = value.as_bytes().split_first_chunk::<7>() else { return false };
        scheme.eq_ignore_ascii_case(b"bearer ") && self.matches(token)
    }

    /// Whether the text is the token. Takes the same time for all texts of equal length.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(text).into();
        bool::from(self.0.ct_eq(&digest))
    }
}

/// RFC 6750's `b64token`.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

#[derive(Debug, thiserror::Error)]
enum TokenError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is not a file")]
    NoFile,
    #[error("it belongs to user {0}")]
    Foreign(u32),
    #[error("others can read it")]
    Open,
}

/// Reads a file that only this user can read. Links and pipes are refused.
fn read(path: &Path, uid: u32) -> Result<Vec<u8>, TokenError> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path).map_err(|err| {
        let is_link = path.symlink_metadata().is_ok_and(|it| it.is_symlink());
        if is_link { TokenError::NoFile } else { TokenError::Io(err) }
    })?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(TokenError::NoFile);
    }
    if meta.uid() != uid {
        return Err(TokenError::Foreign(meta.uid()));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(TokenError::Open);
    }
    let mut text = Vec::new();
    file.take(4096).read_to_end(&mut text)?;
    Ok(text)
}

/// Creates the file atomically, because another server may read it concurrently.
fn create(path: &Path, prefix: &str) -> io::Result<()> {
    let dir = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = coracle_host::temporary::file_in(dir)?;
    writeln!(file, "{prefix}{}", coracle_types::random_hex::<32>())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(err) if err.error.kind() != io::ErrorKind::AlreadyExists => Err(err.error),
        // The token of the other server is used.
        _ => File::open(dir)?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use hyper::HeaderMap;
    use hyper::header::{AUTHORIZATION, HeaderValue};

    use super::Token;

    fn uid() -> u32 {
        rustix::process::getuid().as_raw()
    }

    fn refused(path: &Path) -> String {
        Token::at(path, uid()).unwrap_err().into_inner().message
    }

    fn opens(token: &Token, values: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        token.opens(&headers)
    }

    #[test]
    fn a_missing_file_is_created_once_with_mode_0600() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let token = Token::at(&path, uid()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!((text.trim().len(), path.metadata().unwrap().permissions().mode() & 0o777), (64, 0o600));
        assert!(opens(&token, &[&format!("Bearer {}", text.trim())]));
        assert_eq!(Token::at(&path, uid()).unwrap().0, token.0);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_others_can_write_or_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        write(&path, "a".repeat(64)).unwrap();
        for mode in [0o644, 0o640, 0o602, 0o601] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(refused(&path).contains("others can read it"), "{mode:o}");
        }
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(Token::at(&path, uid()).is_ok());
        assert!(Token::at(&path, uid() + 1).unwrap_err().message.contains("belongs to user"));
        symlink(&path, dir.path().join("link")).unwrap();
        assert!(refused(&dir.path().join("link")).contains("not a file"));
        assert!(refused(dir.path()).contains("not a file"));
        assert!(refused(&dir.path().join("no/token")).contains("No such file"));
        for text in ["", "short", &"a".repeat(513), &format!("{} {}", "a".repeat(32), "b".repeat(32))] {
            write(&path, text).unwrap();
            assert!(refused(&path).contains("one token"), "{text}");
        }
    }

    #[test]
    fn only_the_exact_token_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let right = "a".repeat(64);
        write(&path, format!("{right}\n")).unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let token = Token::at(&path, uid()).unwrap();
        assert!(opens(&token, &[&format!("Bearer {right}")]));
        assert!(opens(&token, &[&format!("bearer {right}")]));
        let longer = format!("Bearer {right}a");
        for wrong in ["", "Bearer", "Bearer ", &right, &format!("Basic {right}"), &longer, "Bearer aaaa"] {
            assert!(!opens(&token, &[wrong]), "{wrong}");
        }
        assert!(!opens(&token, &[]));
        let twice = format!("Bearer {right}");
        assert!(!opens(&token, &[&twice, &twice]));
    }
}
