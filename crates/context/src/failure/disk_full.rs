//! A full disk or quota on the host, below the state directory or the engine's data.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::{Code, Failure};

pub fn is_full(err: &io::Error) -> bool {
    matches!(err.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

impl Failure {
    /// There is no space for a file of the state directory.
    pub(crate) fn state_dir_full(path: &Path, err: &io::Error) -> Self {
        Self::new(Code::DiskFull, format!("no space is left for `{}`, in the state directory: {err}", path.display()))
            .detail("path", path)
            .hint(
                "free some space on its file system, or set `state_dir` (`--state-dir`) to a directory on another one; containers \
                 and records stay with the old directory",
            )
    }

    /// There is no space where the engine or a copy writes.
    pub(super) fn host_disk_full(message: String) -> Self {
        Self::new(Code::DiskFull, message).hint(
            "free some space there: `prune` removes what is not used any more; `preflight` shows where the engine stores its data",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;

    #[test]
    fn a_full_disk_or_quota_has_one_error_code() {
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            let full = || io::Error::from(kind);
            let path = Path::new("/state/locks");
            let failures: [Failure; 3] = [
                coracle_lifecycle::StoreError::Io { path: path.into(), source: full() }.into(),
                coracle_images::Error::State { what: "write `/state/images`".into(), source: full() }.into(),
                coracle_types::Error::Host { what: "cannot write `/engine/layer`".into(), source: full() }.into(),
            ];
            for failure in failures {
                assert_eq!(failure.code, Code::DiskFull, "{failure:?}");
                assert!(failure.message.contains("/state/") || failure.message.contains("/engine/"), "{failure:?}");
            }
        }
    }
}
