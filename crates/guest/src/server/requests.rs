//! Questions that have one answer.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::files::Files;
use crate::jobs::job::{Job, Order};
use crate::jobs::log::{self, Hunt, Log};
use crate::jobs::wait::wait;
use crate::net::probe::probe;
use crate::os::blocking::{TURN, apart};
use crate::os::machine::Ids;
use crate::protocol::patterns::line_pattern;
use crate::protocol::{
    CallReply, ErrorCode, FileRef, GuestMessage, LastLines, LineMatch, MAX_HEADER, MAX_PAYLOAD, OutputPage,
    ReadRequest, Request, RpcError, SearchRequest, SearchResult, StreamSelector, WaitRequest,
};
use crate::server::channel::{Inbox, ReplySender};
use crate::server::services::Supervisor;

/// A search that takes longer answers what it found until then.
const SEARCH: Duration = Duration::from_secs(10);

type Answered = Result<(GuestMessage, Vec<u8>), RpcError>;

/// Answers, unless the caller leaves before.
pub(crate) async fn answer(supervisor: &Arc<Supervisor>, ask: Request, mut inbox: Inbox, out: &ReplySender) {
    let left = async {
        loop {
            match inbox.recv().await {
                None | Some((Request::Leave, _)) => return,
                Some(_) => {}
            }
        }
    };
    let result = tokio::select! {
        result = find(supervisor, ask) => result,
        () = left => Err(RpcError::new(ErrorCode::Invalid, "the channel was left")),
    };
    out.say_result(result).await;
}

async fn find(supervisor: &Arc<Supervisor>, ask: Request) -> Answered {
    match ask {
        Request::Jobs => jobs(supervisor),
        Request::Job { job } => plain(CallReply::Job(supervisor.jobs.find(&job)?.seen())),
        Request::CancelJob { job, grace_ms } => cancel(supervisor, &job, grace_ms).await,
        Request::Read(read) => page(&supervisor.jobs.find(&read.job)?, &read),
        Request::Tail { job, lines, limit } => {
            let (page, bytes) = tail(&supervisor.jobs.find(&job)?, LastLines { lines, limit });
            Ok((GuestMessage::Answer(CallReply::Page(page)), bytes))
        }
        Request::Search(search) => found(&supervisor.jobs.find(&search.job)?, &search).await,
        Request::Wait(ask) => waited(supervisor.jobs.find(&ask.job)?, ask).await,
        Request::Probe(ask) => plain(CallReply::Probed(probe(supervisor.relays.has_token(), ask).await?)),
        Request::Settle(ask) => plain(CallReply::Settled(supervisor.ensure_user(ask).await?)),
        Request::Stat(at) => plain(CallReply::File(on_files(supervisor, at, Files::stat).await?)),
        Request::List { at, limit } => list(supervisor, at, limit).await,
        Request::MakeDir { at, mode, parents } => {
            let made = on_files(supervisor, at, move |files, ids, at| files.make_dir(ids, at, mode, parents)).await?;
            plain(CallReply::File(made))
        }
        Request::Link { at, target, replace } => {
            let link = move |files: &Files, ids: &Ids, at: &FileRef| files.make_link(ids, at, &target, replace);
            plain(CallReply::File(on_files(supervisor, at, link).await?))
        }
        Request::Rename { at, name } => {
            let rename = move |files: &Files, ids: &Ids, at: &FileRef| files.rename(ids, at, &name);
            plain(CallReply::File(on_files(supervisor, at, rename).await?))
        }
        Request::Remove { at, recursive } => {
            on_files(supervisor, at, move |files, ids, at| files.remove(ids, at, recursive)).await?;
            plain(CallReply::Done)
        }
        _ => Err(RpcError::new(ErrorCode::Invalid, "that opens no channel")),
    }
}

fn plain(answer: CallReply) -> Answered {
    Ok((GuestMessage::Answer(answer), Vec::new()))
}

/// As many as a header holds, the newest.
fn jobs(supervisor: &Supervisor) -> Answered {
    let (mut jobs, mut room) = (Vec::new(), MAX_HEADER - 1024);
    for job in supervisor.jobs.all().iter().rev() {
        let job = job.seen();
        let Some(left) = serde_json::to_vec(&job).ok().and_then(|it| room.checked_sub(it.len() + 1)) else { break };
        room = left;
        jobs.push(job);
    }
    jobs.reverse();
    plain(CallReply::Jobs(jobs))
}

async fn cancel(supervisor: &Supervisor, id: &str, grace_ms: u64) -> Answered {
    let job = supervisor.jobs.find(id)?;
    let grace = Duration::from_millis(grace_ms);
    if job.ended() {
        // Its own process ended; what it left behind is ended all the same.
        let left = supervisor.machine.count(job.mark).await > 0;
        if left {
            supervisor.machine.end(job.mark, grace).await;
        }
        return plain(CallReply::Cancelled { now: left, job: job.seen() });
    }
    let mut changes = job.changes();
    job.order(Order::Cancel(grace));
    while !job.ended() && changes.changed().await.is_ok() {}
    plain(CallReply::Cancelled { now: true, job: job.seen() })
}

fn page(job: &Arc<Job>, read: &ReadRequest) -> Answered {
    let limit = usize::try_from(read.limit).unwrap_or(MAX_PAYLOAD).min(MAX_PAYLOAD);
    let running = !job.ended();
    Ok(job.log(|log| {
        let (offset, bytes) = log.read(read.part, log.resolve(read.part, read.from), limit);
        let page = page_of(log, read.part, offset..offset + bytes.len() as u64, running);
        (GuestMessage::Answer(CallReply::Page(page)), bytes)
    }))
}

fn tail(job: &Arc<Job>, last: LastLines) -> (OutputPage, Vec<u8>) {
    let limit = usize::try_from(last.limit).unwrap_or(MAX_PAYLOAD).min(MAX_PAYLOAD);
    let running = !job.ended();
    job.log(|log| {
        let (offset, bytes) = log.tail(last.lines, limit);
        (page_of(log, StreamSelector::All, offset..offset + bytes.len() as u64, running), bytes)
    })
}

fn page_of(log: &Log, part: StreamSelector, range: Range<u64>, running: bool) -> OutputPage {
    OutputPage { offset: range.start, next: range.end, first: log.first(part), total: log.total(part), running }
}

async fn waited(job: Arc<Job>, ask: WaitRequest) -> Answered {
    let last = ask.tail;
    let mut waited = wait(job.clone(), ask).await?;
    let (page, bytes) = last.map(|last| tail(&job, last)).unzip();
    waited.tail = page;
    Ok((GuestMessage::Answer(CallReply::Waited(waited)), bytes.unwrap_or_default()))
}

/// Only copying holds the job up; lines are matched where it may take long, in turn with what others want there.
async fn found(job: &Arc<Job>, search: &SearchRequest) -> Answered {
    let pattern = line_pattern(&search.pattern, search.ignore_case)?;
    let (part, deadline) = (search.part, Instant::now() + SEARCH);
    let running = !job.ended();
    let from = job.log(|log| log.resolve(part, search.from));
    let mut hunt = Hunt::new(pattern, search.context as usize, search.most as usize, from);
    while !hunt.is_over() && (Instant::now() < deadline || !hunt.has_advanced()) {
        let slice = job.log(|log| log.slice(part, hunt.at(), log::GO));
        let looking = move || {
            hunt.look(&slice, deadline.min(Instant::now() + TURN));
            hunt
        };
        hunt = apart(looking).await?;
    }
    let (matches, more, next) = hunt.answer();
    let (first, total) = job.log(|log| (log.first(part), log.total(part)));
    let mut found = SearchResult { matches, more, next, first, total, running };
    fit(&mut found);
    let payload = serde_json::to_vec(&found.matches).expect("matches have string keys only");
    Ok((GuestMessage::Answer(CallReply::Found(found)), payload))
}

/// Fewer matches, if they are more than a payload holds.
fn fit(found: &mut SearchResult) {
    let mut room = MAX_PAYLOAD - 2;
    let fits = |it: &&LineMatch| {
        let bytes = serde_json::to_vec(it).map_or(usize::MAX, |it| it.len() + 1);
        room.checked_sub(bytes).map(|left| room = left).is_some()
    };
    let count = found.matches.iter().take_while(fits).count();
    if count < found.matches.len() {
        found.next = found.matches[count].offset;
        found.more = true;
        found.matches.truncate(count);
    }
}

async fn list(supervisor: &Arc<Supervisor>, at: FileRef, limit: u64) -> Answered {
    let (mut entries, mut more) = on_files(supervisor, at, move |files, ids, at| files.list(ids, at, limit)).await?;
    let mut payload = serde_json::to_vec(&entries).expect("entries have string keys only");
    while payload.len() > MAX_PAYLOAD {
        more = true;
        entries.truncate(entries.len() * MAX_PAYLOAD / payload.len() - 1);
        payload = serde_json::to_vec(&entries).expect("entries have string keys only");
    }
    Ok((GuestMessage::Answer(CallReply::Entries { more }), payload))
}

/// Does something to files as a user, where it may block.
pub(crate) async fn on_files<T: Send + 'static>(
    supervisor: &Arc<Supervisor>,
    at: FileRef,
    act: impl FnOnce(&Files, &Ids, &FileRef) -> Result<T, RpcError> + Send + 'static,
) -> Result<T, RpcError> {
    let ids = supervisor.machine.ids(&at.user)?;
    let supervisor = supervisor.clone();
    let work = move || {
        let files =
            supervisor.files.as_ref().ok_or_else(|| RpcError::new(ErrorCode::Io, "the root cannot be opened"))?;
        act(files, &ids, &at)
    };
    apart(work).await?
}
