//! The search for secrets in the files of a snapshot.

use std::time::Duration;

use coracle_client::{ScanOptions, ScanReport};
use coracle_context::config::SnapshotSecrets;
use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_context::session_env::{self, LiveSecrets};
use coracle_context::warning::Warning;
use coracle_lifecycle::Record;
use coracle_runtime::ExecTarget;
use coracle_types::ContainerPath;

/// Larger files are not searched.
const MAX_FILE: u64 = 1 << 20;

/// For all files together.
const WITHIN: Duration = Duration::from_secs(2);

/// Paths in a message.
const MAX_PATHS: u64 = 100;

/// Looks through what was written since the container began. A container without a guest has no secret of anybody's.
pub(super) async fn search(cx: &Context, record: &Record, inside: &ExecTarget) -> Result<Vec<Warning>, Failure> {
    let ExecTarget::Guest(link) = inside else { return Ok(Vec::new()) };
    let LiveSecrets { variables, values } = session_env::live(cx, record).await;
    if variables.is_empty() && values.is_empty() {
        return Ok(Vec::new());
    }
    let walk = ScanOptions {
        since: Some(record.created),
        max_file: MAX_FILE,
        session: variables,
        max_entries: MAX_PATHS,
        within: WITHIN,
        ..ScanOptions::all(ContainerPath::root())
    };
    judged(link.walk(walk, &values).await?, cx.config.security.snapshot_secrets)
}

fn judged(walked: ScanReport, then: SnapshotSecrets) -> Result<Vec<Warning>, Failure> {
    let mut paths: Vec<String> = walked.entries.into_iter().map(|it| it.path).collect();
    paths.sort();
    let message = match paths.as_slice() {
        [] if walked.more => {
            let message = "there are more files than could be searched for secrets in 2 s; those that were hold none";
            return Ok(vec![Warning::new("snapshot_secrets", message)]);
        }
        [] => return Ok(Vec::new()),
        [one] => format!("a secret of the host lies in `{}`", one.escape_debug()),
        [one, more @ ..] => {
            format!("secrets of the host lie in `{}` and {} more files", one.escape_debug(), more.len())
        }
    };
    match then {
        SnapshotSecrets::Warn => Ok(vec![Warning::new("snapshot_secrets", message)]),
        SnapshotSecrets::Refuse => Err(Failure::new(Code::SnapshotSecrets, message)
            .detail("paths", paths)
            .detail("setting", "security.snapshot_secrets")
            .hint("remove them from the files in `details.paths`, then call again")),
    }
}

#[cfg(test)]
mod tests {
    use coracle_protocol as protocol;
    use coracle_protocol::FileKind;

    use super::*;

    fn walked(paths: &[&str], more: bool) -> ScanReport {
        let entry = |path: &&str| protocol::ScanEntry {
            path: (*path).to_owned(),
            odd: false,
            kind: FileKind::File,
            size: 1,
            mode: 0o644,
            changed_ns: 0,
        };
        let mut walked = ScanReport::default();
        walked.entries = paths.iter().map(entry).collect();
        walked.more = more;
        walked
    }

    fn check(walked: ScanReport, then: SnapshotSecrets) -> String {
        match judged(walked, then) {
            Ok(warnings) => warnings.into_iter().map(|it| it.message).collect(),
            Err(failure) => format!("{}: {} {}", failure.code.word(), failure.message, failure.details["paths"]),
        }
    }

    #[test]
    fn found_secrets_are_refused_or_reported_as_configured() {
        use SnapshotSecrets::{Refuse, Warn};
        assert_eq!(check(walked(&[], false), Refuse), "");
        assert!(check(walked(&[], true), Refuse).starts_with("there are more files"));
        let two = "secrets of the host lie in `/a` and 1 more files";
        assert_eq!(check(walked(&["/b", "/a"], true), Refuse), format!("snapshot_secrets: {two} [\"/a\",\"/b\"]"));
        assert_eq!(check(walked(&["/b", "/a"], false), Warn), two);
        assert_eq!(check(walked(&["/a"], false), Warn), "a secret of the host lies in `/a`");
    }
}
