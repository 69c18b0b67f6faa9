//! Content of files on its way in and out.

use std::io::Read;
use std::sync::Arc;

use crate::files::{How, Writing};
use crate::os::blocking::apart;
use crate::protocol::{CHUNK, CallReply, ErrorCode, FileEntry, FileRef, GuestMessage, Request, RpcError};
use crate::server::channel::{Inbox, ReplySender};
use crate::server::requests::on_files;
use crate::server::services::Supervisor;

/// What is read at once.
const BLOCK: usize = 4 * CHUNK;

/// Sends a file, as the host has room for it.
pub(crate) async fn get(supervisor: &Arc<Supervisor>, at: FileRef, (offset, limit): (u64, u64), out: &ReplySender) {
    let opened = on_files(supervisor, at, move |files, ids, at| {
        let (entry, file) = files.get(ids, at, offset)?;
        let mut source = Source { file, left: limit };
        let block = source.next()?;
        Ok((entry, source, block))
    });
    let (entry, mut source, mut block) = match opened.await {
        Ok(opened) => opened,
        Err(fault) => return out.say_result(Err(fault)).await,
    };
    if !out.say(GuestMessage::Answer(CallReply::File(entry))).await {
        return;
    }
    loop {
        let last = block.len() < BLOCK;
        for (index, piece) in block.chunks(CHUNK).enumerate() {
            let last = last && (index + 1) * CHUNK >= block.len();
            if !out.say_data(GuestMessage::Data { last }, piece.to_vec()).await {
                return;
            }
        }
        if last {
            if block.is_empty() {
                out.say(GuestMessage::Data { last: true }).await;
            }
            return;
        }
        let read = tokio::task::spawn_blocking(move || source.next().map(|block| (source, block))).await;
        (source, block) = match read.unwrap_or_else(|_| Err(RpcError::new(ErrorCode::Io, "reading broke off"))) {
            Ok(read) => read,
            Err(fault) => return out.say_result(Err(fault)).await,
        };
    }
}

struct Source {
    file: std::fs::File,
    left: u64,
}

impl Source {
    /// A whole block, or what is left.
    fn next(&mut self) -> Result<Vec<u8>, RpcError> {
        let mut block = Vec::new();
        let wanted = self.left.min(BLOCK as u64);
        let read = (&mut self.file).take(wanted).read_to_end(&mut block);
        read.map_err(|err| RpcError::new(ErrorCode::Io, format!("reading failed: {err}")))?;
        self.left -= block.len() as u64;
        Ok(block)
    }
}

/// Takes a file; it is in place when all of it is there.
pub(crate) async fn put(supervisor: &Arc<Supervisor>, at: FileRef, how: How, mut inbox: Inbox, out: &ReplySender) {
    let begun = on_files(supervisor, at, move |files, ids, at| files.put(ids, at, how)).await;
    let placed = match begun {
        Ok(writing) => fill(writing, &mut inbox, out).await,
        Err(fault) => Err(fault),
    };
    out.say_result(placed.map(|entry| (GuestMessage::Answer(CallReply::File(entry)), Vec::new()))).await;
}

/// Who waits for content holds no thread: there are few.
async fn fill(mut writing: Writing, inbox: &mut Inbox, out: &ReplySender) -> Result<FileEntry, RpcError> {
    while let Some((Request::Data { last }, payload)) = inbox.recv().await {
        let bytes = payload.len();
        let write = move || {
            writing.write(&payload)?;
            Ok(if last { Written::Whole(writing.commit()?) } else { Written::Part(writing) })
        };
        writing = match apart(write).await?? {
            Written::Whole(entry) => return Ok(entry),
            Written::Part(writing) => writing,
        };
        out.credit(bytes).await;
    }
    // It removes its file.
    apart(move || drop(writing)).await?;
    Err(RpcError::new(ErrorCode::Io, "the content broke off, and nothing was replaced"))
}

enum Written {
    Part(Writing),
    Whole(FileEntry),
}
