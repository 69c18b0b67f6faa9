//! Handles calls about jobs, users and files whose reply depends only on the request.

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

/// A search that takes longer returns the matches so far.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Implements `UnaryHandler` with an expression for the reply.
macro_rules! unary_handlers {
    ($($call:ident($request:ident, $supervisor:ident) $reply:expr;)*) => {
        $(impl UnaryHandler for $call {
            async fn execute(self, cx: &CallContext, _: &ReplySender) -> Result<UnaryReply<Self::Reply>, RpcError> {
                let ($request, $supervisor) = (self, &cx.supervisor);
                Ok(UnaryReply::Reply($reply))
            }
        })*
    };
}

unary_handlers! {
    Ping(_request, _supervisor) ();
    Unlock(request, supervisor) supervisor.unlock(&request);
    ListJobs(_request, supervisor) {
        // If there are too many, the newest.
        let mut jobs: Vec<_> = supervisor.jobs.all().iter().rev().map(|it| it.info()).collect();
        jobs.truncate(fitting(&jobs));
        jobs.reverse();
        jobs
    };
    GetJob(request, supervisor) supervisor.jobs.find(&request.job)?.info();
    CancelJob(request, supervisor) cancel(supervisor, &request).await?;
    ReadRequest(request, supervisor) page(&supervisor.jobs.find(&request.job)?, &request);
    TailRequest(request, supervisor) tail(&supervisor.jobs.find(&request.job)?, request.last);
    SearchRequest(request, supervisor) search(&supervisor.jobs.find(&request.job)?, &request).await?;
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
        // The process has ended; end its descendants as well.
        let left = supervisor.machine.count(job.mark).await > 0;
        if left {
            supervisor.machine.end(job.mark, grace).await;
        }
        return Ok(CancelReport { now: left, job: job.info() });
    }
    let mut changes = job.changes();
    job.send_control(JobControl::Cancel(grace));
    while !job.ended() && changes.changed().await.is_ok() {}
    Ok(CancelReport { now: true, job: job.info() })
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

/// Only copying a slice blocks the job; the search runs on a thread for blocking calls, in time slices.
async fn search(job: &Arc<Job>, request: &SearchRequest) -> Result<SearchResult, RpcError> {
    let pattern = line_pattern(&request.pattern, request.ignore_case)?;
    let (part, deadline) = (request.part, Instant::now() + SEARCH_TIMEOUT);
    let running = !job.ended();
    let from = job.log(|log| log.resolve(part, request.from));
    let mut search = LogSearch::new(pattern, request.context as usize, request.most as usize, from);
    while !search.is_over() && (Instant::now() < deadline || !search.has_advanced()) {
        let slice = job.log(|log| log.slice(part, search.at(), log::SEGMENTS_PER_SLICE));
        let work = move || {
            search.search(&slice, deadline.min(Instant::now() + TIME_SLICE));
            search
        };
        search = run_blocking(work).await?;
    }
    let (matches, more, next) = search.into_result();
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

/// How many entries of a list fit into a reply.
fn fitting<T: serde::Serialize>(list: &[T]) -> usize {
    let mut room = MAX_PAYLOAD - 16;
    let fits = |entry: &&T| room.checked_sub(encoded_len(entry)).map(|rest| room = rest).is_some();
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

/// Runs a file operation as a user, on a thread for blocking calls.
pub(crate) async fn on_files<T: Send + 'static>(
    supervisor: &Arc<Supervisor>,
    at: FileRef,
    act: impl FnOnce(&Files, &Ids, &FileRef) -> Result<T, RpcError> + Send + 'static,
) -> Result<T, RpcError> {
    let ids = supervisor.machine.ids(&at.user)?;
    let supervisor = supervisor.clone();
    let work = move || {
        let files = supervisor
            .files
            .as_ref()
            .ok_or_else(|| RpcError::new(ErrorCode::Io, "the root directory cannot be opened"))?;
        act(files, &ids, &at)
    };
    run_blocking(work).await?
}
