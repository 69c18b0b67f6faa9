//! Calls about jobs, users and files that are answered from their request alone.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::files::Files;
use crate::jobs::job::{Job, JobControl};
use crate::jobs::log::{self, LogSearch, OutputLog};
use crate::jobs::wait::wait;
use crate::net::probe::probe;
use crate::os::blocking::{TIME_SLICE, run_blocking};
use crate::os::machine::Ids;
use crate::protocol::body::{Bytes, encoded_len};
use crate::protocol::patterns::line_pattern;
use crate::protocol::relay::ProbeEgress;
use crate::protocol::{
    CancelJob, CancelReport, EnsureUser, ErrorCode, FileRef, GetJob, LastLines, ListFiles, ListJobs, MAX_PAYLOAD,
    MakeDir, MakeLink, OutputPage, Ping, ReadRequest, RemoveFile, RenameFile, RpcError, SearchRequest, SearchResult,
    SetTimes, StatFile, StreamSelector, TailRequest, Unlock, WaitRequest,
};
use crate::server::channel::ReplySender;
use crate::server::dispatch::{CallContext, UnaryHandler, UnaryReply};
use crate::server::services::Supervisor;

/// A search that takes longer answers what it found until then.
const SEARCH: Duration = Duration::from_secs(10);

/// Answers calls with what an expression gives.
macro_rules! answer {
    ($($call:ident($request:ident, $supervisor:ident) $answer:expr;)*) => {
        $(impl UnaryHandler for $call {
            async fn answer(self, cx: &CallContext, _: &ReplySender) -> Result<UnaryReply<Self::Reply>, RpcError> {
                let ($request, $supervisor) = (self, &cx.supervisor);
                Ok(UnaryReply::Reply($answer))
            }
        })*
    };
}

answer! {
    Ping(_request, _supervisor) ();
    Unlock(request, supervisor) supervisor.unlock(&request);
    ListJobs(_request, supervisor) {
        // The newest, if they are too many.
        let mut jobs: Vec<_> = supervisor.jobs.all().iter().rev().map(|it| it.seen()).collect();
        jobs.truncate(fitting(&jobs));
        jobs.reverse();
        jobs
    };
    GetJob(request, supervisor) supervisor.jobs.find(&request.job)?.seen();
    CancelJob(request, supervisor) cancel(supervisor, &request).await?;
    ReadRequest(request, supervisor) page(&supervisor.jobs.find(&request.job)?, &request);
    TailRequest(request, supervisor) tail(&supervisor.jobs.find(&request.job)?, request.last);
    SearchRequest(request, supervisor) found(&supervisor.jobs.find(&request.job)?, &request).await?;
    WaitRequest(request, supervisor) {
        let (job, last) = (supervisor.jobs.find(&request.job)?, request.tail);
        let mut waited = wait(job.clone(), request).await?;
        let (page, bytes) = last.map(|last| tail(&job, last)).unzip();
        waited.tail = page;
        (waited, bytes.unwrap_or_default())
    };
    ProbeEgress(request, supervisor) probe(supervisor.proxy_ports.has_token(), request).await?;
    EnsureUser(request, supervisor) supervisor.ensure_user(request).await?;
    StatFile(request, supervisor) on_files(supervisor, request.at, Files::stat).await?;
    ListFiles(request, supervisor) list(supervisor, request).await?;
    MakeDir(request, supervisor) {
        let MakeDir { at, mode, parents } = request;
        on_files(supervisor, at, move |files, ids, at| files.make_dir(ids, at, mode, parents)).await?
    };
    MakeLink(request, supervisor) {
        let MakeLink { at, target, replace } = request;
        on_files(supervisor, at, move |files, ids, at| files.make_link(ids, at, &target, replace)).await?
    };
    RenameFile(request, supervisor) {
        let RenameFile { at, name } = request;
        on_files(supervisor, at, move |files, ids, at| files.rename(ids, at, &name)).await?
    };
    SetTimes(request, supervisor) {
        let SetTimes { at, changed } = request;
        on_files(supervisor, at, move |files, ids, at| files.set_times(ids, at, &changed)).await?;
    };
    RemoveFile(request, supervisor) {
        let RemoveFile { at, recursive } = request;
        on_files(supervisor, at, move |files, ids, at| files.remove(ids, at, recursive)).await?;
    };
}

async fn cancel(supervisor: &Supervisor, request: &CancelJob) -> Result<CancelReport, RpcError> {
    let job = supervisor.jobs.find(&request.job)?;
    let grace = Duration::from_millis(request.grace_ms);
    if job.ended() {
        // Its own process ended; what it left behind is ended all the same.
        let left = supervisor.machine.count(job.mark).await > 0;
        if left {
            supervisor.machine.end(job.mark, grace).await;
        }
        return Ok(CancelReport { now: left, job: job.seen() });
    }
    let mut changes = job.changes();
    job.order(JobControl::Cancel(grace));
    while !job.ended() && changes.changed().await.is_ok() {}
    Ok(CancelReport { now: true, job: job.seen() })
}

fn page(job: &Arc<Job>, read: &ReadRequest) -> (OutputPage, Bytes) {
    let limit = usize::try_from(read.limit).unwrap_or(MAX_PAYLOAD).min(MAX_PAYLOAD);
    let running = !job.ended();
    job.log(|log| {
        let (offset, bytes) = log.read(read.part, log.resolve(read.part, read.from), limit);
        (page_of(log, read.part, offset..offset + bytes.len() as u64, running), bytes.into())
    })
}

fn tail(job: &Arc<Job>, last: LastLines) -> (OutputPage, Bytes) {
    let limit = usize::try_from(last.limit).unwrap_or(MAX_PAYLOAD).min(MAX_PAYLOAD);
    let running = !job.ended();
    job.log(|log| {
        let (offset, bytes) = log.tail(last.lines, limit);
        (page_of(log, StreamSelector::All, offset..offset + bytes.len() as u64, running), bytes.into())
    })
}

fn page_of(log: &OutputLog, part: StreamSelector, range: Range<u64>, running: bool) -> OutputPage {
    OutputPage { offset: range.start, next: range.end, first: log.first(part), total: log.total(part), running }
}

/// Only copying holds the job up; lines are matched where it may take long, in turn with what others want there.
async fn found(job: &Arc<Job>, search: &SearchRequest) -> Result<SearchResult, RpcError> {
    let pattern = line_pattern(&search.pattern, search.ignore_case)?;
    let (part, deadline) = (search.part, Instant::now() + SEARCH);
    let running = !job.ended();
    let from = job.log(|log| log.resolve(part, search.from));
    let mut hunt = LogSearch::new(pattern, search.context as usize, search.most as usize, from);
    while !hunt.is_over() && (Instant::now() < deadline || !hunt.has_advanced()) {
        let slice = job.log(|log| log.slice(part, hunt.at(), log::GO));
        let looking = move || {
            hunt.search(&slice, deadline.min(Instant::now() + TIME_SLICE));
            hunt
        };
        hunt = run_blocking(looking).await?;
    }
    let (matches, more, next) = hunt.answer();
    let (first, total) = job.log(|log| (log.first(part), log.total(part)));
    let mut found = SearchResult { matches, more, next, first, total, running };
    let count = fitting(&found.matches);
    if count < found.matches.len() {
        found.next = found.matches[count].offset;
        found.more = true;
        found.matches.truncate(count);
    }
    Ok(found)
}

/// How many of a list fit into a reply.
fn fitting<T: serde::Serialize>(list: &[T]) -> usize {
    let mut room = MAX_PAYLOAD - 16;
    let fits = |it: &&T| room.checked_sub(encoded_len(it)).map(|left| room = left).is_some();
    list.iter().take_while(fits).count()
}

async fn list(
    supervisor: &Arc<Supervisor>,
    request: ListFiles,
) -> Result<(Vec<crate::protocol::FileEntry>, bool), RpcError> {
    let ListFiles { at, limit } = request;
    let (mut entries, more) = on_files(supervisor, at, move |files, ids, at| files.list(ids, at, limit)).await?;
    let count = fitting(&entries);
    let more = more || count < entries.len();
    entries.truncate(count);
    Ok((entries, more))
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
    run_blocking(work).await?
}
