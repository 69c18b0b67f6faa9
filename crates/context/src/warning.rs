//! Warnings of successful calls.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use coracle_lifecycle::{Change, Record, RecordedMount, Review};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::humanize::count;

/// How long to wait for a file system. A local one answers much faster.
const MOUNT_LOOK: Duration = Duration::from_millis(200);

/// A warning of a successful call.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Warning {
    /// The code, for programs.
    pub code: Cow<'static, str>,
    /// One sentence.
    pub message: String,
}

impl Warning {
    /// Creates a warning with its code and one sentence.
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

fn kind(change: Change) -> &'static str {
    match change {
        Change::New | Change::Changed | Change::Replaced => "protected paths, such as git's hooks",
        Change::Repository | Change::Submodule => "repositories inside",
        Change::Gitattributes | Change::Gitmodules => "settings of git",
        Change::Device | Change::Fifo | Change::Socket => "devices, pipes or sockets",
        Change::Link => "links that lead out",
        Change::Root | Change::Setuid => "files of root",
    }
}

/// Finds host directories that were replaced on the host, so that commands inside see another one. A slow file system
/// delays no command.
pub async fn replaced_mounts(record: &Record) -> Option<Warning> {
    if record.mounts.is_empty() {
        return None;
    }
    let mounts = record.mounts.clone();
    let looked = tokio::task::spawn_blocking(move || mounts.into_iter().filter(RecordedMount::is_replaced).collect());
    let replaced: Vec<RecordedMount> = timeout(MOUNT_LOOK, looked).await.ok()?.ok()?;
    let first = replaced.first()?;
    let more = match replaced.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let (host, at, name) = (first.host.display(), &first.container, &record.name);
    let message = format!(
        "`{host}`{more} was removed or replaced on the host after it was mounted at `{at}`, and commands inside do not see \
         what is there now: `coracle stop {name}` and `coracle start {name}` mount it again"
    );
    Some(Warning::new("mount_replaced", message))
}

/// Warns of changes that the user should review before the host acts on them.
pub fn to_review(review: &Review) -> Option<Warning> {
    let places = review.findings.len();
    if places == 0 && !review.more {
        return None;
    }
    let more = if review.more { "; not everything could be checked, or there are more" } else { "" };
    let what = count(places as u64, "place", "places");
    let kinds: BTreeSet<_> = review.findings.iter().map(|finding| kind(finding.change)).collect();
    let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
    let message = format!(
        "{what} in host directories changed that host programs act on ({kinds}): review them before you use the \
         directories{more}"
    );
    Some(Warning::new("review", message))
}
