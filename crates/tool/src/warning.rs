//! What a successful call wants to be known.

use std::collections::BTreeSet;

use coracle_lifecycle::{Change, Record, Review};
use schemars::JsonSchema;
use serde::Serialize;

use crate::humanize::count;

/// Something that a successful call wants to be known (containers.md 1.8).
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub(crate) struct Warning {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Warning {
    /// With its code and one sentence.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
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

/// Host directories that commands inside no longer see as they are on the host.
pub(crate) fn replaced_mounts(record: &Record) -> Option<Warning> {
    let mut replaced = record.mounts.iter().filter(|mount| mount.is_replaced());
    let first = replaced.next()?;
    let more = match replaced.count() {
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

/// Somebody has to look before the host acts on it.
pub(crate) fn to_review(review: &Review) -> Option<Warning> {
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
