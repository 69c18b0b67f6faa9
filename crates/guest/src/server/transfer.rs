//! Transfers the content of files.

use std::io::Read;

use crate::files::{AtomicWriter, WriteOptions};
use crate::os::blocking::run_blocking;
use crate::protocol::body::encode;
use crate::protocol::{CHUNK, ErrorCode, FileEntry, GetFile, GuestMessage, HostMessage, PutFile, RpcError};
use crate::server::channel::{ReplySender, RequestReceiver};
use crate::server::dispatch::{CallContext, Channel, StreamHandler};
use crate::server::requests::on_files;

/// Longest read in bytes.
const BLOCK: usize = 4 * CHUNK;

impl StreamHandler for GetFile {
    /// Sends a file as the host provides window.
    async fn serve(self, cx: &CallContext, channel: Channel) {
        let Self { at, offset, limit } = self;
        let out = &channel.out;
        let opened = on_files(&cx.supervisor, at, move |files, ids, at| {
            let (entry, file) = files.get(ids, at, offset)?;
            let mut source = FileSource { file, left: limit };
            let block = source.next()?;
            Ok((entry, source, block))
        });
        let sent = match opened.await {
            Ok((entry, source, block)) if out.send_event(&entry).await => send(source, block, out).await,
            Ok(_) => return,
            Err(failure) => Err(failure),
        };
        match sent {
            Ok(()) => out.send_reply(&encode(&())).await,
            Err(failure) => out.send_failure(failure).await,
        }
    }
}

async fn send(mut source: FileSource, mut block: Vec<u8>, out: &ReplySender) -> Result<(), RpcError> {
    loop {
        for piece in block.chunks(CHUNK) {
            if !out.send_data(GuestMessage::Data { last: false }, piece.to_vec()).await {
                return Ok(());
            }
        }
        if block.len() < BLOCK {
            return Ok(());
        }
        (source, block) = run_blocking(move || source.next().map(|block| (source, block))).await??;
    }
}

struct FileSource {
    file: std::fs::File,
    left: u64,
}

impl FileSource {
    /// A full block, or the rest of the file.
    fn next(&mut self) -> Result<Vec<u8>, RpcError> {
        let mut block = Vec::new();
        let wanted = self.left.min(BLOCK as u64);
        let read = (&mut self.file).take(wanted).read_to_end(&mut block);
        read.map_err(|err| RpcError::new(ErrorCode::Io, format!("reading failed: {err}")))?;
        self.left -= block.len() as u64;
        Ok(block)
    }
}

impl StreamHandler for PutFile {
    /// Receives a file, and replaces the old one once it is complete.
    async fn serve(self, cx: &CallContext, Channel { mut inbox, out }: Channel) {
        let Self { at, mode, exact, parents, replace } = self;
        let options = WriteOptions { mode, exact, parents, replace };
        let writer = on_files(&cx.supervisor, at, move |files, ids, at| files.put(ids, at, options)).await;
        let result = match writer {
            Ok(writer) => receive(writer, &mut inbox, &out).await,
            Err(failure) => Err(failure),
        };
        match result {
            Ok(entry) => out.send_reply(&encode(&entry)).await,
            Err(failure) => out.send_failure(failure).await,
        }
    }
}

/// Occupies no thread while it waits for content.
async fn receive(
    mut writer: AtomicWriter,
    inbox: &mut RequestReceiver,
    out: &ReplySender,
) -> Result<FileEntry, RpcError> {
    while let Some((HostMessage::Data { last }, payload)) = inbox.recv().await {
        let bytes = payload.len();
        let write = move || {
            writer.write(&payload)?;
            Ok(if last { WriteOutcome::Complete(writer.commit()?) } else { WriteOutcome::Partial(writer) })
        };
        writer = match run_blocking(write).await?? {
            WriteOutcome::Complete(entry) => return Ok(entry),
            WriteOutcome::Partial(writer) => writer,
        };
        out.credit(bytes).await;
    }
    // Dropping the writer removes its file.
    run_blocking(move || drop(writer)).await?;
    Err(RpcError::new(ErrorCode::Io, "the content ended early; the file was not replaced"))
}

enum WriteOutcome {
    Partial(AtomicWriter),
    Complete(FileEntry),
}
