//! Content of files on its way in and out.

use std::io::Read;
use std::sync::Arc;

use crate::answer::on_files;
use crate::codec::Frame;
use crate::serve::{Inbox, Outbox, PIECE};
use crate::supervisor::Supervisor;
use crate::wire::{Answer, Ask, At, Fault, FaultCode, Say};

/// What is read at once.
const BLOCK: usize = 4 * PIECE;

/// Sends a file, as the host has room for it.
pub(crate) async fn get(supervisor: &Arc<Supervisor>, at: At, (offset, limit): (u64, u64), out: &Outbox) {
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
    if !out.say(Say::Answer(Answer::File(entry))).await {
        return;
    }
    loop {
        let last = block.len() < BLOCK;
        for (index, piece) in block.chunks(PIECE).enumerate() {
            let last = last && (index + 1) * PIECE >= block.len();
            if !out.say_data(Say::Data { last }, piece.to_vec()).await {
                return;
            }
        }
        if last {
            if block.is_empty() {
                out.say(Say::Data { last: true }).await;
            }
            return;
        }
        let read = tokio::task::spawn_blocking(move || source.next().map(|block| (source, block))).await;
        (source, block) = match read.unwrap_or_else(|_| Err(Fault::new(FaultCode::Io, "reading broke off"))) {
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
    fn next(&mut self) -> Result<Vec<u8>, Fault> {
        let mut block = Vec::new();
        let wanted = self.left.min(BLOCK as u64);
        let read = (&mut self.file).take(wanted).read_to_end(&mut block);
        read.map_err(|err| Fault::new(FaultCode::Io, format!("reading failed: {err}")))?;
        self.left -= block.len() as u64;
        Ok(block)
    }
}

/// Takes a file; it is in place when all of it is there.
pub(crate) async fn put(
    supervisor: &Arc<Supervisor>,
    at: At,
    (mode, parents, replace): (Option<u32>, bool, bool),
    mut inbox: Inbox,
    out: &Outbox,
) {
    let room = out.clone();
    let placed = on_files(supervisor, at, move |files, ids, at| {
        let mut writing = files.put(ids, at, mode, parents, replace)?;
        while let Some(Frame { head, payload, .. }) = inbox.blocking_recv() {
            let Ask::Data { last } = head else { break };
            writing.write(&payload)?;
            if last {
                return writing.commit();
            }
            room.say_from_thread(Say::Credit(payload.len() as u64));
        }
        Err(Fault::new(FaultCode::Io, "the content broke off, and nothing was replaced"))
    });
    let placed = placed.await.map(|entry| (Say::Answer(Answer::File(entry)), Vec::new()));
    out.say_result(placed).await;
}
