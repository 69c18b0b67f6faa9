//! Warnings about protected paths of a bound directory: before commands write there, and after one was refused.

use coracle_context::warning::Warning;
use coracle_lifecycle::{Record, read_only_paths};
use coracle_provision::ReportItem;
use coracle_types::{ExecOutput, Exit};

/// Paths that a sentence names; the rest is counted.
const NAMED: usize = 3;

/// How git and others report a write to a mount: a rename onto it, and a write into it.
const REFUSALS: [&str; 2] = ["Device or resource busy", "Read-only file system"];

const HINT: &str = "inside, `git config --global` and `git -c` work, also for remotes; change the repository's own \
                    configuration and hooks on the host";

/// A part of the step `workspace`.
pub(super) fn report_item(record: &Record) -> Option<ReportItem> {
    let paths = read_only_paths(record);
    let item = |named: String| {
        ReportItem::success(format!("read-only: {named}")).with("paths", paths.clone()).with("hint", HINT)
    };
    named(&paths).map(item)
}

/// A warning for a command that failed with what a protected path answers.
pub(super) fn refused_write(record: &Record, output: &ExecOutput) -> Option<Warning> {
    if output.exit == Exit::Code(0) {
        return None;
    }
    let stderr = output.stderr.text();
    if !REFUSALS.iter().any(|it| stderr.contains(it)) {
        return None;
    }
    let named = named(&read_only_paths(record))?;
    let message = format!(
        "{named} lie read-only in a directory of the host, so that nothing inside can make the host run something: {HINT}"
    );
    Some(Warning::new("protected_path", message))
}

fn named(paths: &[String]) -> Option<String> {
    let (first, rest) = paths.split_at(paths.len().min(NAMED));
    let rest = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    (!first.is_empty()).then(|| format!("`{}`{rest}", first.join("`, `")))
}
