//! Files of Coracle, which another version of it may have written.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

/// The format of all files, including those without a number.
const FORMAT: u64 = 1;

/// Why a stored file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StoredFileError {
    /// It is valid JSON, with a value or a format that this version does not know.
    #[error("`{}` was written by a newer version of Coracle", .0.display())]
    Newer(PathBuf),
    /// It is not JSON.
    #[error("`{}` is damaged: {source}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Position and cause of the error.
        source: serde_json::Error,
    },
}

#[derive(Default, Deserialize)]
struct Format {
    schema: Option<u64>,
}

impl StoredFileError {
    fn from_content(file: &Path, bytes: &[u8]) -> Self {
        // Files are replaced atomically, so valid JSON is complete.
        match serde_json::from_slice::<IgnoredAny>(bytes) {
            Ok(_) => Self::Newer(file.to_owned()),
            Err(source) => Self::Damaged { file: file.to_owned(), source },
        }
    }

    /// Returns the file of a newer version, if an I/O error contains one.
    #[must_use]
    pub fn newer_file(err: &io::Error) -> Option<&Path> {
        match err.get_ref()?.downcast_ref()? {
            Self::Newer(file) => Some(file),
            Self::Damaged { .. } => None,
        }
    }
}

impl From<StoredFileError> for io::Error {
    fn from(err: StoredFileError) -> Self {
        Self::new(io::ErrorKind::InvalidData, err)
    }
}

/// Parses the content of a file of Coracle's own.
///
/// # Errors
/// [`StoredFileError`]: such a file exists, and what it describes is not missing.
pub fn parse_stored<T: DeserializeOwned>(file: &Path, bytes: &[u8]) -> Result<T, StoredFileError> {
    let failed = |_| StoredFileError::from_content(file, bytes);
    // A list has no format number.
    let is_object = bytes.trim_ascii_start().starts_with(b"{");
    let format = if is_object { serde_json::from_slice(bytes).map_err(failed)? } else { Format::default() };
    if format.schema.is_some_and(|schema| schema > FORMAT) {
        return Err(StoredFileError::Newer(file.to_owned()));
    }
    serde_json::from_slice(bytes).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Record {
        kind: Kind,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Known,
    }

    #[test]
    fn a_file_of_a_newer_version_is_distinguished_from_damage() {
        let file = Path::new("/state/file.json");
        assert_eq!(parse_stored::<[u16; 2]>(file, b"[7, 8]").unwrap(), [7, 8]);
        let parse = |text: &str| parse_stored::<Record>(file, text.as_bytes());
        for text in [r#"{"kind":"known"}"#, r#"{"kind":"known","later":1}"#, r#"{"kind":"known","schema":1}"#] {
            assert_eq!(parse(text).unwrap(), Record { kind: Kind::Known }, "{text}");
        }
        for text in [
            r#"{"kind":"later"}"#,
            r#"{"kind":"known","schema":2}"#,
            r#"{"kind":"known","schema":"b"}"#,
            r#"{"kind":7}"#,
            "[1]",
        ] {
            let err = io::Error::from(parse(text).unwrap_err());
            assert_eq!(StoredFileError::newer_file(&err), Some(file), "{text}");
        }
        for text in ["", r#"{"kind":"#, "half"] {
            let err = parse(text).unwrap_err();
            assert!(matches!(&err, StoredFileError::Damaged { .. }) && err.to_string().contains("file.json"), "{err}");
            assert_eq!(StoredFileError::newer_file(&err.into()), None);
        }
    }
}
