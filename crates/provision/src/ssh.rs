//! SSH keys.

use std::fmt;
use std::path::Path;
use std::time::Instant;

use coracle_runtime::PatternSet;
use coracle_types::{ContainerPath, Secret};

pub use crate::secret_files::SecretFiles;
use crate::{ReportItem, Status, StepContext, StepReport, backup, secret_files};

const STEP: &str = "forward_ssh";

/// Files that are never keys, whatever a pattern matches: access to the host is private, and known hosts are
/// selected one by one.
const NO_KEYS: &[&str] =
    &["authorized_keys", "authorized_keys2", "known_hosts", "known_hosts.old", "environment", "rc"];

/// Why no keys are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SshSkipReason {
    /// They were not requested.
    NotRequested,
    /// No key of the host matches.
    NoKeys,
}

impl fmt::Display for SshSkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRequested => "not requested",
            Self::NoKeys => "the host has no key that `auto_passthrough.ssh_keys` names",
        })
    }
}

/// The report of a container without keys.
#[must_use]
pub fn skipped(why: SshSkipReason) -> StepReport {
    StepReport::skipped(STEP, why.to_string())
}

/// Reads the keys of the user's `~/.ssh` that match the patterns, and its `config`. Keys may be encrypted; their
/// content is not parsed.
#[must_use]
pub fn read(dir: &Path, patterns: &PatternSet) -> SecretFiles {
    SecretFiles::read(dir, |name| name == "config" || patterns.matches(name) && !NO_KEYS.contains(&name))
}

/// Returns the lines by which a key is recognised in a file: without the frame and, of several lines, without the
/// first, which all keys of a kind share.
#[must_use]
pub fn key_lines(key: &Secret) -> Vec<Secret> {
    let lines = key.reveal().split(|it| matches!(it, b'\n' | b'\r')).map(<[u8]>::trim_ascii);
    let body: Vec<_> = lines.filter(|it| !it.is_empty() && !it.starts_with(b"-----")).collect();
    let known = if body.len() > 1 { &body[1..] } else { &body[..] };
    known.iter().map(|it| Secret::new(it.to_vec())).collect()
}

/// Writes keys, and lines for `known_hosts`, where `~/.ssh` then links to. Renames an existing `.ssh` to `.ssh.orig`.
pub async fn forward(context: &StepContext, keys: &SecretFiles, known_hosts: &[u8]) -> StepReport {
    let begun = Instant::now();
    if keys.is_empty() {
        return StepReport { items: keys.left_out_items().collect(), ..skipped(SshSkipReason::NoKeys) };
    }
    let mut files = keys.files.clone();
    if !known_hosts.is_empty() {
        files.push(("known_hosts".to_owned(), Secret::new(known_hosts.to_vec())));
    }
    step(context, keys, &files).await.with_duration(begun.elapsed())
}

async fn step(context: &StepContext, keys: &SecretFiles, files: &[(String, Secret)]) -> StepReport {
    let detail = format!("{} on the tmpfs, where `~/.ssh` leads", counted(files.len()));
    let failed = |error: String| StepReport::flawed(STEP, Status::Failed, "the keys cannot be used", error);
    let mut items = secret_files::put(context, "ssh", files).await;
    let seen = match linked(context).await {
        Ok(dir) if items.iter().any(|it| it.error.is_none()) => secret_files::tried(context, &dir, &mut items).await,
        Ok(_) => Ok(false),
        Err(error) => Err(error),
    };
    let probe = match seen {
        Ok(true) => "the exec user can read each through `~/.ssh`",
        Ok(false) => "PID 1 wrote each to the tmpfs, for the exec user alone",
        Err(error) => return failed(error),
    };
    let items: Vec<ReportItem> = items.into_iter().chain(keys.left_out_items()).collect();
    StepReport::of_items(STEP, detail, probe, items)
}

/// Makes `~/.ssh` a link to the tmpfs.
async fn linked(context: &StepContext) -> Result<ContainerPath, String> {
    let at = context.home.join(".ssh").map_err(|it| it.to_string())?;
    let target = ContainerPath::parse("/.coracle/run/ssh").expect("a plain path");
    backup::link(context, &at, &target).await?;
    Ok(at)
}

fn counted(n: usize) -> String {
    if n == 1 { "1 file".to_owned() } else { format!("{n} files") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_select_keys_and_never_other_files() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["id_ed25519", "id_ed25519.pub", "work", "config", "known_hosts", "authorized_keys", "rc"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        for (patterns, expected) in [
            (&["id_*"][..], &["config", "id_ed25519", "id_ed25519.pub"][..]),
            (&["[a-z]*"], &["config", "id_ed25519", "id_ed25519.pub", "work"]),
            (&["work"], &["config", "work"]),
            (&[], &["config"]),
        ] {
            let patterns: Vec<String> = patterns.iter().map(|it| (*it).to_owned()).collect();
            let found = read(dir.path(), &PatternSet::new(&patterns).unwrap());
            assert_eq!(found.files.iter().map(|it| it.0.as_str()).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_key_is_recognised_by_lines_that_others_of_its_kind_lack() {
        let lines = |key: &str| key_lines(&Secret::from(key));
        assert_eq!(
            lines("-----BEGIN X-----\nb3BlbnNzaC1rZXk\nabcd\r\nefgh\n-----END X-----\n"),
            ["abcd", "efgh"].map(Secret::from)
        );
        assert_eq!(lines("-----BEGIN X-----\nalone\n-----END X-----"), [Secret::from("alone")]);
        assert_eq!(lines(""), []);
    }
}
