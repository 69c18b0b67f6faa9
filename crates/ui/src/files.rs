//! Files of a container, accessed as the exec user.

use coracle::PersonSession;
use coracle_client::Link;
use coracle_context::{Code, Failure};
use coracle_prepare::Process;
use coracle_protocol::{FileEntry, FileKind, FileRef, UserSpec};
use coracle_transport::HttpResponse;
use coracle_types::{ContainerPath, Handle};
use hyper::body::Bytes;
use hyper::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, HeaderValue};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::responses;

/// Maximum number of entries that are shown.
const MAX_ENTRIES: u64 = 2000;

/// Number of buffered chunks of a file.
const PIECES: usize = 4;

/// A path in a container, and the user who accesses it.
struct SessionFile {
    link: Link,
    at: FileRef,
}

impl SessionFile {
    /// Opens a path; default: the work directory.
    async fn open(process: &Process, container: &str, query: Option<&str>) -> Result<Self, Failure> {
        let handle = Handle::parse(container).map_err(|err| Failure::name("container", err))?;
        let session = PersonSession::open(&process.context, &handle, false).await?;
        let path = match query.and_then(|it| it.strip_prefix("path=")) {
            Some(encoded) => percent_decode_str(encoded).decode_utf8_lossy().into_owned(),
            None => session.workdir().as_str().to_owned(),
        };
        let path = ContainerPath::parse(path).map_err(|err| Failure::invalid("path", err.to_string()))?;
        let user = session.user();
        let user = UserSpec::Ids { uid: user.uid, gid: Some(user.gid) };
        Ok(Self { link: session.link, at: FileRef { user, path: path.as_str().to_owned(), follow: true } })
    }
}

/// Lists a directory: subdirectories first, then by name.
pub(crate) async fn list(process: &Process, container: &str, query: Option<&str>) -> HttpResponse {
    responses::json(listing(process, container, query).await.unwrap_or_else(|failure| failure.answer(Some("files"))))
}

async fn listing(process: &Process, container: &str, query: Option<&str>) -> Result<Map<String, Value>, Failure> {
    let SessionFile { link, at } = SessionFile::open(process, container, query).await?;
    let path = at.path.clone();
    let (mut entries, has_more) = link.list(at, MAX_ENTRIES).await.map_err(unreadable)?;
    entries
        .sort_by(|one, other| (one.kind != FileKind::Dir, &one.name).cmp(&(other.kind != FileKind::Dir, &other.name)));
    let entries: Vec<Value> = entries.iter().map(row).collect();
    let fields = json!({ "success": true, "path": path, "entries": entries, "has_more": has_more });
    Ok(fields.as_object().cloned().unwrap_or_default())
}

fn row(entry: &FileEntry) -> Value {
    json!({
        "name": entry.name,
        "kind": entry.kind,
        "size": entry.size,
        "mode": entry.mode,
        "changed_ms": entry.changed_ns / 1_000_000,
        "link": entry.link,
    })
}

fn unreadable(err: coracle_types::Error) -> Failure {
    let failure = Failure::from(err);
    match failure.code {
        Code::PathNotFound => failure.hint("it may have been removed: refresh the list"),
        _ => failure,
    }
}

/// Sends a file with headers that prevent browsers from showing it as a page of this server.
pub(crate) async fn content(process: &Process, container: &str, query: Option<&str>) -> HttpResponse {
    opened(process, container, query).await.unwrap_or_else(|failure| responses::json(failure.answer(Some("file"))))
}

async fn opened(process: &Process, container: &str, query: Option<&str>) -> Result<HttpResponse, Failure> {
    let SessionFile { link, at } = SessionFile::open(process, container, query).await?;
    let path = at.path.clone();
    let entry = link.stat(at.clone()).await.map_err(unreadable)?;
    if entry.kind != FileKind::File {
        return Err(Failure::invalid("path", format!("`{}` is not a file", path.escape_debug())));
    }
    let (_, mut content) = link.open_file(at, 0, entry.size).await.map_err(unreadable)?;
    let (sender, pieces) = mpsc::channel(PIECES);
    // If the file cannot be read to its end, the body is shorter than its announced length.
    tokio::spawn(async move {
        while let Ok(Some(piece)) = content.next().await {
            if sender.send(Bytes::from(piece)).await.is_err() {
                break;
            }
        }
    });
    let mut response = responses::streamed(pieces);
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(entry.size));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok(responses::with_type("application/octet-stream", response))
}
