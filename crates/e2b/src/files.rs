//! Contents of files: downloads, and uploads that replace a file when they are whole.

use std::fmt::Display;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use coracle::PersonSession;
use coracle_client::{FileContent, WriteFile};
use coracle_context::{Code, Failure};
use coracle_protocol::{FileKind, FileRef};
use coracle_transport::{HttpResponse, PATIENCE};
use coracle_types::{ContainerPath, Input};
use futures_util::{Stream, StreamExt as _, stream};
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::api::ApiError;
use crate::filesystem::{at, resolved};
use crate::rpc::Pieces;

/// Bytes of an upload that are under way.
const BUFFER: usize = 256 << 10;

/// Bytes of a form that its parser holds.
const MAX_HELD: usize = 4 << 20;

/// Pieces of a download that the client has not read.
const PIECES: usize = 4;

pub(crate) async fn download(session: &PersonSession, path: &str) -> Result<HttpResponse, ApiError> {
    let path = resolved(session, path)?;
    let file = FileRef { follow: true, ..at(session, path.as_str()) };
    let found = session.link.stat(file.clone()).await?;
    if found.kind != FileKind::File {
        return Err(not_a_file(&path).into());
    }
    let (entry, content) = session.link.open_file(file, 0, u64::MAX).await?;
    let (sender, pieces) = mpsc::channel(PIECES);
    tokio::spawn(pass_on(content, sender));
    let mut response = Response::new(Pieces(pieces).boxed());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // A transfer that breaks off is shorter, which the client notices. Files of the kernel have content without a size.
    if entry.size > 0 {
        headers.insert(CONTENT_LENGTH, entry.size.into());
    }
    Ok(response)
}

async fn pass_on(mut content: FileContent, to: mpsc::Sender<Bytes>) {
    loop {
        match content.next().await {
            Ok(Some(piece)) => {
                if to.send(piece.into()).await.is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(err) => return tracing::debug!(%err, "a download broke off"),
        }
    }
}

/// Writes one file, whose path is in the query, or the files of a form, whose names are their paths.
pub(crate) async fn upload(
    session: &PersonSession,
    path: Option<&str>,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Vec<Value>, Failure> {
    if headers.get(CONTENT_ENCODING).is_some_and(|it| it != "identity") {
        return Err(Failure::new(Code::InvalidInput, "the content is compressed, which is not supported"));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    if let Ok(boundary) = multer::parse_boundary(kind) {
        return form(session, path, body, boundary).await;
    }
    let path = path.ok_or_else(no_path)?;
    let pieces = pieces_of(body).map(|piece| piece.map_err(|err| broken(&err)));
    Ok(vec![write(session, path, pieces).await?])
}

/// The pieces of a body. It breaks off if its client sends nothing for long.
fn pieces_of(body: Incoming) -> impl Stream<Item = io::Result<Bytes>> + Send + Unpin {
    Box::pin(stream::unfold(body.into_data_stream(), |mut body| async move {
        let piece = match timeout(PATIENCE, body.next()).await {
            Ok(next) => next?.map_err(io::Error::other),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        Some((piece, body))
    }))
}

async fn form(
    session: &PersonSession,
    path: Option<&str>,
    body: Incoming,
    boundary: String,
) -> Result<Vec<Value>, Failure> {
    // The parser keeps all bytes of the head of a part.
    let held = AtomicUsize::new(0);
    let limited = pieces_of(body).map(|piece| {
        let piece = piece?;
        match held.fetch_add(piece.len(), Ordering::Relaxed) {
            before if before > MAX_HELD => Err(io::Error::other("the head of a part is too long")),
            _ => Ok(piece),
        }
    });
    let mut form = multer::Multipart::new(limited, boundary);
    let mut written = Vec::new();
    while let Some(field) = form.next_field().await.map_err(|err| broken(&err))? {
        if field.name() != Some("file") {
            continue;
        }
        if path.is_some() && !written.is_empty() {
            return Err(Failure::new(Code::InvalidInput, "several files are given for one `path`"));
        }
        let named = field.file_name().map(str::to_owned);
        let path = path.map(str::to_owned).or(named).ok_or_else(no_path)?;
        let pieces = field.map(|piece| {
            held.store(0, Ordering::Relaxed);
            piece.map_err(|err| broken(&err))
        });
        written.push(write(session, &path, pieces).await?);
    }
    Ok(written)
}

fn not_a_file(path: &ContainerPath) -> Failure {
    Failure::new(Code::NotRegular, format!("path '{path}' is not a file"))
}

fn no_path() -> Failure {
    Failure::new(Code::InvalidInput, "`path` is missing")
}

fn broken(err: &impl Display) -> Failure {
    Failure::new(Code::InvalidInput, format!("the upload broke off: {err}"))
}

/// Writes a file from pieces. What breaks off leaves the file as it was.
async fn write(
    session: &PersonSession,
    path: &str,
    mut pieces: impl Stream<Item = Result<Bytes, Failure>> + Unpin,
) -> Result<Value, Failure> {
    let path = resolved(session, path)?;
    let at = FileRef { follow: true, ..at(session, path.as_str()) };
    if session.link.stat(at.clone()).await.is_ok_and(|it| it.kind != FileKind::File) {
        return Err(not_a_file(&path));
    }
    let (mut to, from) = duplex(BUFFER);
    let is_whole = Arc::new(AtomicBool::new(false));
    let content = Input::Stream(Box::new(WholeUpload { from, is_whole: is_whole.clone() }));
    let put =
        Box::pin(session.link.put(WriteFile { at, mode: None, exact: false, parents: true, replace: true, content }));
    let feed = async {
        while let Some(piece) = pieces.next().await.transpose()? {
            // The file cannot be written: the other future says why.
            if to.write_all(&piece).await.is_err() {
                return Ok(());
            }
        }
        is_whole.store(true, Ordering::Release);
        drop(to);
        Ok::<(), Failure>(())
    };
    let (fed, entry) = tokio::join!(feed, put);
    fed?;
    entry?;
    Ok(json!({ "path": path.as_str(), "name": path.file_name(), "type": "file" }))
}

/// The content of an upload. Its end is an error unless all has arrived.
struct WholeUpload {
    from: DuplexStream,
    is_whole: Arc<AtomicBool>,
}

impl AsyncRead for WholeUpload {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.from).poll_read(cx, buf);
        let is_end = matches!(read, Poll::Ready(Ok(()))) && buf.filled().len() == before && buf.remaining() > 0;
        if is_end && !self.is_whole.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        read
    }
}
