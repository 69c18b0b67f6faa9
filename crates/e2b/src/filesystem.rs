//! Files of a sandbox, as procedures describe and change them.

use coracle::PersonSession;
use coracle_context::{Code, Failure};
use coracle_protocol::{FileEntry, FileKind, FileRef, UserSpec};
use coracle_types::{Command, ContainerPath, Exit};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum number of entries of a directory in an answer.
const MAX_ENTRIES: u64 = 100_000;

/// The home of root.
const ROOT_HOME: &str = "/root";

/// The number of the user, and of its group.
const USER_ID: u32 = 1000;

/// Maximum depth of a listing.
const MAX_DEPTH: u32 = 64;

#[derive(Debug, Deserialize)]
pub(crate) struct OfPath {
    #[serde(default)]
    pub(crate) path: String,
    #[serde(default)]
    depth: u32,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MoveRequest {
    pub(crate) source: String,
    destination: String,
}

/// A path as the user of the session accesses it. Links at its end are not followed.
pub(crate) fn at(session: &PersonSession, path: &str) -> FileRef {
    let user = session.user();
    FileRef { user: UserSpec::Ids { uid: user.uid, gid: Some(user.gid) }, path: path.to_owned(), follow: false }
}

/// A path: absolute, or relative to the home of the user.
pub(crate) fn resolved(session: &PersonSession, path: &str) -> Result<ContainerPath, Failure> {
    let home = if session.as_root { ROOT_HOME } else { session.workdir().as_str() };
    let path = path.strip_prefix("~/").unwrap_or(if path == "~" { "." } else { path });
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{home}/{path}") };
    let mut parts = Vec::new();
    for part in whole.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    Ok(ContainerPath::parse(format!("/{}", parts.join("/")))?)
}

pub(crate) async fn stat(session: &PersonSession, request: &OfPath) -> Result<Value, Failure> {
    let path = resolved(session, &request.path)?;
    let entry = session.link.stat(at(session, path.as_str())).await?;
    Ok(json!({ "entry": entry_at(session, &entry, path.as_str()).await }))
}

pub(crate) async fn make_dir(session: &PersonSession, request: &OfPath) -> Result<Value, Failure> {
    let path = resolved(session, &request.path)?;
    if let Ok(found) = session.link.stat(FileRef { follow: true, ..at(session, path.as_str()) }).await {
        return Err(match found.kind {
            FileKind::Dir => Failure::new(Code::PathExists, format!("directory already exists: {path}")),
            _ => Failure::new(Code::NotADirectory, format!("path is not a directory: {path}")),
        });
    }
    let entry = session.link.make_dir(at(session, path.as_str()), 0o755, true).await?;
    Ok(json!({ "entry": described(&entry, path.as_str()) }))
}

pub(crate) async fn rename(session: &PersonSession, request: &MoveRequest) -> Result<Value, Failure> {
    let (source, destination) = (resolved(session, &request.source)?, resolved(session, &request.destination)?);
    session.link.stat(at(session, source.as_str())).await?;
    if let Some(parent) = destination.parent() {
        session.link.make_dir(at(session, parent.as_str()), 0o755, true).await?;
    }
    let words = ["mv", "-T", "-f", "--", source.as_str(), destination.as_str()].map(str::to_owned);
    let moved = Box::pin(session.link.exec(session.exec(Command::Argv(words.into())))).await?;
    if moved.exit != Exit::Code(0) {
        let printed = moved.stderr.text().trim().to_owned();
        return Err(Failure::new(Code::InvalidInput, printed));
    }
    let entry = session.link.stat(at(session, destination.as_str())).await?;
    Ok(json!({ "entry": entry_at(session, &entry, destination.as_str()).await }))
}

pub(crate) async fn remove(session: &PersonSession, request: &OfPath) -> Result<Value, Failure> {
    let path = resolved(session, &request.path)?;
    match session.link.remove(at(session, path.as_str()), true).await {
        Ok(()) => Ok(json!({})),
        // As `rm -rf`.
        Err(err) => match Failure::from(err) {
            failure if is_missing(failure.code) => Ok(json!({})),
            failure => Err(failure),
        },
    }
}

pub(crate) async fn list(session: &PersonSession, request: &OfPath) -> Result<Value, Failure> {
    let root = resolved(session, &request.path)?;
    let depth = request.depth.clamp(1, MAX_DEPTH);
    let found = session.link.stat(FileRef { follow: true, ..at(session, root.as_str()) }).await?;
    if found.kind != FileKind::Dir {
        return Err(Failure::new(Code::NotADirectory, format!("path is not a directory: {root}")));
    }
    let mut entries = Vec::new();
    // Depth first, in the order of names: what is inside a directory follows it.
    let mut pending = vec![(root.as_str().to_owned(), None, 0)];
    while let Some((path, entry, level)) = pending.pop() {
        let is_dir = entry.as_ref().is_none_or(|it: &FileEntry| it.kind == FileKind::Dir);
        if let Some(entry) = entry {
            entries.push(entry_at(session, &entry, &path).await);
        }
        if !is_dir || level >= depth {
            continue;
        }
        let (mut inside, is_cut) =
            session.link.list(FileRef { follow: true, ..at(session, &path) }, MAX_ENTRIES).await?;
        if is_cut || entries.len() + pending.len() + inside.len() > MAX_ENTRIES as usize {
            return Err(Failure::new(Code::LimitReached, format!("more than {MAX_ENTRIES} entries")));
        }
        inside.sort_by(|one, other| other.name.cmp(&one.name));
        let of = |it: FileEntry| (format!("{}/{}", path.trim_end_matches('/'), it.name), Some(it), level + 1);
        pending.extend(inside.into_iter().map(of));
    }
    Ok(json!({ "entries": entries }))
}

/// Whether a failure says that a path does not exist.
pub(crate) fn is_missing(code: Code) -> bool {
    matches!(code, Code::NotFound | Code::PathNotFound | Code::FileNotFound | Code::DirectoryNotFound)
}

/// An entry in JSON. That of a link has the kind and the mode of what it leads to, as in E2B's API.
async fn entry_at(session: &PersonSession, entry: &FileEntry, path: &str) -> Value {
    let mut described_entry = described(entry, path);
    let Some(link) = entry.link.as_deref().filter(|_| entry.kind == FileKind::Link) else { return described_entry };
    let parent = path.rsplit_once('/').map_or("", |it| it.0);
    let target = if link.starts_with('/') { link.to_owned() } else { format!("{parent}/{link}") };
    described_entry["symlinkTarget"] = json!(resolved(session, &target).map_or(target, |it| it.to_string()));
    match session.link.stat(FileRef { follow: true, ..at(session, path) }).await {
        Ok(found) => {
            described_entry["type"] = json!(kind_of(found.kind));
            described_entry["mode"] = json!(found.mode & 0o777);
        }
        // It leads nowhere.
        Err(_) => described_entry["type"] = json!(kind_of(FileKind::Special)),
    }
    described_entry
}

fn kind_of(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "FILE_TYPE_FILE",
        FileKind::Dir => "FILE_TYPE_DIRECTORY",
        FileKind::Link | FileKind::Special => "FILE_TYPE_UNSPECIFIED",
    }
}

/// The fields of an entry. Numbers of 64 bits are texts in Connect's JSON.
fn described(entry: &FileEntry, path: &str) -> Value {
    let named = |id: u32| match id {
        0 => "root".to_owned(),
        USER_ID => "user".to_owned(),
        id => id.to_string(),
    };
    let changed = Timestamp::from_nanosecond(i128::from(entry.changed_ns)).unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    json!({
        "name": name,
        "type": kind_of(entry.kind),
        "path": path,
        "size": entry.size.to_string(),
        "mode": entry.mode & 0o777,
        "permissions": permissions(entry),
        "owner": named(entry.uid),
        "group": named(entry.gid),
        "modifiedTime": changed.to_string(),
    })
}

/// Permissions as `ls` writes them.
fn permissions(entry: &FileEntry) -> String {
    let kind = match entry.kind {
        FileKind::Dir => 'd',
        FileKind::Link => 'L',
        _ => '-',
    };
    let bits = "rwxrwxrwx".char_indices().map(|(at, sign)| if entry.mode & (0o400 >> at) != 0 { sign } else { '-' });
    std::iter::once(kind).chain(bits).collect()
}
