//! Records of the requests of containers: `recorded/<session>/<container>/<id>` of the state directory. They outlive
//! their containers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use coracle_host::state_file::names;
use coracle_lifecycle::Record;
use coracle_proxy::record::{RECORD_FILE, RecordLimits, RecordSettings};
use coracle_types::random_hex;
use jiff::Timestamp;

use crate::audit;
use crate::config::{CrossSession, Egress};
use crate::context::Context;
use crate::failure::Failure;
use crate::suggest;

/// A record in the state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// The session of the container.
    pub session: String,
    /// The container's name; for session containers the role, for sandboxes the key.
    pub container: String,
    /// Distinguishes containers of that name.
    pub id: String,
    /// Its directory.
    pub dir: PathBuf,
    /// When it was last written to.
    pub last: Timestamp,
}

/// In place of a session, for sandboxes. No session can have that name.
pub const SANDBOXES: &str = ".sandboxes";

/// The parts of its path.
#[derive(Clone, Copy, Debug)]
pub struct RecordName<'a> {
    /// The session.
    pub session: &'a str,
    /// The container.
    pub container: &'a str,
    /// The id of the container; none for one that has only a name.
    pub id: Option<&'a str>,
}

/// Returns where a proxy records, if its configuration says so.
///
/// # Errors
/// If the state directory cannot be used.
pub fn settings(cx: &Context, egress: &Egress, name: RecordName<'_>) -> Result<Option<RecordSettings>, Failure> {
    if !egress.record {
        return Ok(None);
    }
    // Each run of the proxy has a record of its own, if its container has none.
    let id = match name.id {
        Some(id) => id.to_owned(),
        None => format!("{}-{}", Timestamp::now().strftime("%Y%m%dT%H%M%SZ"), random_hex::<4>()),
    };
    let dir = cx.state()?.recorded().join(name.session).join(name.container).join(id);
    let observer = Some(audit::exchanges(cx, name.container.to_owned()));
    Ok(Some(RecordSettings { dir, limits: RecordLimits::default(), observer }))
}

impl RequestRecord {
    /// Its path below the directory of all records.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}/{}", self.session, self.container, self.id)
    }

    /// The size of its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let length = |path: &PathBuf| path.metadata().map_or(0, |it| it.len());
        let bodies = names(&self.dir.join("bodies")).unwrap_or_default();
        bodies.iter().chain([&self.dir.join(RECORD_FILE)]).map(length).sum()
    }

    fn read(dir: PathBuf) -> Option<Self> {
        let modified = dir.join(RECORD_FILE).metadata().ok()?.modified().ok()?;
        let mut parts = dir.iter().rev().map(|it| it.to_str().map(str::to_owned));
        let (id, container, session) = (parts.next()??, parts.next()??, parts.next()??);
        Some(Self { session, container, id, last: modified.try_into().ok()?, dir })
    }

    fn remove(&self) -> bool {
        let removed = fs::remove_dir_all(&self.dir);
        // Parents that have other records stay.
        let _ = self.dir.parent().map(fs::remove_dir);
        let _ = self.dir.parent().and_then(Path::parent).map(fs::remove_dir);
        if let Err(err) = &removed {
            tracing::warn!(%err, dir = %self.dir.display(), "a record of requests cannot be removed");
        }
        removed.is_ok()
    }
}

/// Lists the records that this session may use, the oldest first.
///
/// # Errors
/// If the state directory cannot be read.
pub fn all(cx: &Context) -> Result<Vec<RequestRecord>, Failure> {
    let mut found = stored(cx)?;
    let sees_others = cx.cross_session() != CrossSession::None;
    found.retain(|it| sees_others || it.session == cx.call.session.as_str());
    Ok(found)
}

fn stored(cx: &Context) -> Result<Vec<RequestRecord>, Failure> {
    let mut dirs = vec![cx.state()?.recorded()];
    for _ in ["session", "container", "id"] {
        let mut below = Vec::new();
        for dir in dirs {
            below.extend(names(&dir)?);
        }
        dirs = below;
    }
    let mut found: Vec<_> = dirs.into_iter().filter_map(RequestRecord::read).collect();
    found.sort_by(|a, b| (a.last, &a.id).cmp(&(b.last, &b.id)));
    Ok(found)
}

/// Finds the record `CONTAINER/ID`, or the newest of `CONTAINER`.
///
/// # Errors
/// `not_found` for a record that does not exist, or is another session's.
pub fn find(cx: &Context, named: &str) -> Result<RequestRecord, Failure> {
    let (container, id) = named.split_once('/').map_or((named, None), |it| (it.0, Some(it.1)));
    let mut found = all(cx)?;
    let known: BTreeSet<_> = found.iter().map(|it| it.container.clone()).collect();
    found.retain(|it| it.container.eq_ignore_ascii_case(container) && id.is_none_or(|id| it.id == id));
    found.pop().ok_or_else(|| {
        let known = Vec::from_iter(known);
        let hint = suggest::hint(
            named,
            &known,
            "`coracle recorded list` shows the records; `security.egress.record` makes one",
        );
        Failure::not_found("record", named, &[]).detail("near", known).hint(hint)
    })
}

/// Returns the directory of a record by its path, as the record of a container that it answers has it.
///
/// # Errors
/// If the state directory cannot be used.
pub fn dir_of(cx: &Context, path: &str) -> Result<PathBuf, Failure> {
    let is_plain = |it: &str| !it.is_empty() && it != "." && it != "..";
    if path.split('/').count() != 3 || !path.split('/').all(is_plain) {
        return Err(Failure::internal("a container has no path of a record"));
    }
    Ok(cx.state()?.recorded().join(path))
}

/// Lists records that were last written to before a time, and that no container writes or replays.
///
/// # Errors
/// If records cannot be read.
pub fn unused_before(cx: &Context, before: Timestamp) -> Result<Vec<RequestRecord>, Failure> {
    let records = cx.store()?.records().map_err(coracle_lifecycle::Error::from)?;
    // Of sandboxes and session containers, by their names.
    let proxies = cx.state()?.proxies()?;
    let has_proxy = |it: &RequestRecord| proxies.iter().any(|dir| dir.iter().any(|part| part == it.container.as_str()));
    let is_used = |it: &RequestRecord| {
        let path = it.path();
        let uses =
            |record: &Record| record.record_id.as_str() == it.id || record.replay.as_deref() == Some(path.as_str());
        has_proxy(it) || records.iter().any(|record| uses(record))
    };
    let mut found = stored(cx)?;
    found.retain(|it| it.last < before && !is_used(it));
    Ok(found)
}

/// Removes records. Returns those that are gone.
#[must_use]
pub fn remove(records: Vec<RequestRecord>) -> Vec<RequestRecord> {
    records.into_iter().filter(RequestRecord::remove).collect()
}
