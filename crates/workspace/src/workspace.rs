//! The tools' handle to one session: its containers, limits and tracked files.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use coracle_protocol::workspace::{SearchLimits, TrackedFile, WorkspaceOp, WorkspaceReply};
use coracle_types::{Chunk, Error, Exec, ExecOutput};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::disk_quota::{self, DiskQuota};
use crate::file_errors::{NotFoundContext, failure};
use crate::kernel::Kernels;
use crate::paths::Path;
use crate::response::{Result, fail};
use crate::{
    Code, ConcurrencyLimit, ContainerRef, Failure, Response, SessionHandle, SessionSource, SlotRole, ToolSettings,
    Warning,
};

/// Limits of a scan for files that commands changed.
pub(crate) const SCAN: SearchLimits = SearchLimits { most: 50, entries: 50_000, within_ms: 500 };

/// The tools' handle to one session. Clones share its state.
#[derive(Clone)]
pub struct Workspace {
    pub(crate) settings: Arc<ToolSettings>,
    /// Fires when the caller withdraws.
    pub(crate) cancel: CancellationToken,
    /// Receives the output of a running command.
    pub(crate) live: Option<mpsc::Sender<Chunk>>,
    sessions: SessionSource,
    shared: Arc<WorkspaceState>,
}

struct WorkspaceState {
    calls: ConcurrencyLimit,
    runs: ConcurrencyLimit,
    /// Tracked files of the last guest, to restore in the next one.
    touched: Mutex<TrackedFiles>,
    disk_quota: DiskQuota,
    kernels: Kernels,
}

#[derive(Debug, Default)]
struct TrackedFiles {
    /// The generation whose guest has them.
    restored_in: u64,
    /// The generation with a baseline scan.
    scanned_in: u64,
    all: Vec<TrackedFile>,
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

/// A reply of the guest, and the session that gave it.
#[derive(Debug)]
pub(crate) struct Outcome {
    reply: WorkspaceReply,
    session: SessionHandle,
}

impl Outcome {
    /// The response that `render` makes of a reply; for an error of the guest the failure at `path`.
    pub(crate) fn respond<T>(
        self,
        path: &Path,
        missing: NotFoundContext,
        render: impl FnOnce(WorkspaceReply) -> Response<T>,
    ) -> Response<T> {
        let response = match self.reply {
            WorkspaceReply::Not(err) => Response::failed(failure(&err, &path.to_string(), missing)),
            reply => render(reply),
        };
        response.at(&self.session)
    }
}

impl SessionHandle {
    /// Sends one request to the guest's file service, as the session's user.
    pub(crate) async fn request(&self, act: WorkspaceOp) -> coracle_types::Result<WorkspaceReply> {
        self.link.space(self.user, &self.workdir, act).await
    }
}

impl<T> Response<T> {
    /// Adds the container and its warnings.
    pub(crate) fn at(mut self, session: &SessionHandle) -> Self {
        self.warnings.extend(session.replaced.iter().map(|it| Warning::recreated(it, "/workspace")));
        self.warnings.extend(session.warnings.iter().cloned());
        let (session_id, generation) = (session.session_id.clone(), session.generation);
        self.container = Some(ContainerRef { session_id, generation });
        self
    }
}

impl Workspace {
    /// A workspace on the containers of `sessions`.
    #[must_use]
    pub fn new(sessions: SessionSource, settings: ToolSettings) -> Self {
        let shared = WorkspaceState {
            calls: ConcurrencyLimit::new(16, 64),
            // One at a time: a snippet's file has a fixed path.
            runs: ConcurrencyLimit::new(1, 32),
            touched: Mutex::default(),
            disk_quota: DiskQuota::default(),
            kernels: Kernels::default(),
        };
        Self {
            settings: Arc::new(settings),
            cancel: CancellationToken::new(),
            live: None,
            sessions,
            shared: Arc::new(shared),
        }
    }

    /// The same workspace for one call, with its cancellation and its output receiver.
    #[must_use]
    pub fn for_call(&self, cancel: CancellationToken, live: Option<mpsc::Sender<Chunk>>) -> Self {
        Self { cancel, live, ..self.clone() }
    }

    /// The same workspace with other handles to its containers.
    #[must_use]
    pub fn on(self, sessions: SessionSource) -> Self {
        Self { sessions, ..self }
    }

    /// The source of containers.
    #[must_use]
    pub fn sessions(&self) -> &SessionSource {
        &self.sessions
    }

    /// Sends a request for files to the container, and repeats a read-only one in a new container if the first is lost.
    pub(crate) async fn space(&self, act: WorkspaceOp) -> Result<Outcome> {
        let _permit = self.shared.calls.acquire().await?;
        // It has no effect, so it may be repeated in a new container.
        let again = act.is_read_only().then(|| act.clone());
        let session = self.ensure_session(SlotRole::Workspace).await?;
        let doing = self.in_space(&session, act);
        match self.unless_cancelled(doing).await? {
            Ok(reply) => {
                if again.is_none() {
                    self.scan_disk_usage(&session);
                }
                Ok(Outcome { reply, session })
            }
            Err(err) => {
                let Some(act) = again.filter(|_| is_lost(&err)) else { return Err(failed(&err, true)) };
                let session = self.ensure_session(SlotRole::Workspace).await?;
                let reply = self.in_space(&session, act).await.map_err(|err| failed(&err, false))?;
                Ok(Outcome { reply, session })
            }
        }
    }

    /// Runs a command in the container of a role.
    pub(crate) async fn exec(&self, session: &SessionHandle, exec: Exec) -> Result<ExecOutput> {
        session.link.exec(exec).await.map_err(|err| failed(&err, true))
    }

    /// Limits concurrent calls of the session.
    pub(crate) fn calls(&self) -> &ConcurrencyLimit {
        &self.shared.calls
    }

    /// Limits concurrent snippets of the session.
    pub(crate) fn runs(&self) -> &ConcurrencyLimit {
        &self.shared.runs
    }

    /// The interpreters that keep variables.
    pub(crate) fn kernels(&self) -> &Kernels {
        &self.shared.kernels
    }

    /// Ends the interpreters that keep variables.
    pub fn end_kernels(&self) {
        self.shared.kernels.end();
    }

    /// The container of a role. Restores the tracked files in a new one.
    pub(crate) async fn ensure_session(&self, role: SlotRole) -> Result<SessionHandle> {
        // Creation of a container cleans up after itself if it is cancelled.
        let mut session = self.sessions.ensure(role).await?;
        if self.cancel.is_cancelled() {
            return fail(Code::Cancelled, "The call was cancelled.");
        }
        self.sessions.touch(role);
        if role == SlotRole::Workspace {
            self.recall(&session).await;
            session.warnings.extend(self.disk_quota().warning(self.settings.max_bytes));
        }
        Ok(session)
    }

    /// The disk usage of the workspace.
    pub(crate) fn disk_quota(&self) -> &DiskQuota {
        &self.shared.disk_quota
    }

    /// Measures the disk usage in the background after a request that may have written. The next response warns.
    pub(crate) fn scan_disk_usage(&self, session: &SessionHandle) {
        if self.settings.max_bytes.is_none() || !self.disk_quota().try_begin_scan() {
            return;
        }
        let (workspace, session) = (self.clone(), session.clone());
        tokio::spawn(async move {
            // Small changes often come in a row; none of them waits for the scan.
            tokio::time::sleep(disk_quota::PAUSE).await;
            let begun = Instant::now();
            let act = WorkspaceOp::Measure { bounds: disk_quota::BOUNDS };
            let done = session.request(act).await;
            let bytes = if let Ok(WorkspaceReply::Measured { bytes, .. }) = done { Some(bytes) } else { None };
            workspace.disk_quota().record_scan(bytes, begun.elapsed());
        });
    }

    async fn recall(&self, session: &SessionHandle) {
        let known = {
            let mut known = self.shared.touched.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new = std::mem::replace(&mut known.restored_in, session.generation) != session.generation;
            if session.replaced.as_ref().is_some_and(|it| it.files_lost) {
                known.all.clear();
                self.disk_quota().reset();
            }
            if is_new { known.all.clone() } else { Vec::new() }
        };
        if !known.is_empty() {
            // If it fails, files must be read once more before they are changed.
            let _ = session.request(WorkspaceOp::Recall { files: known }).await;
        }
    }

    /// Scans the files before the first command in a container, so that later scans find changes.
    pub(crate) async fn baseline_scan(&self, session: &SessionHandle) {
        let is_new = {
            let mut known = self.shared.touched.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut known.scanned_in, session.generation) != session.generation
        };
        if is_new {
            let (exclude, tool) = (self.settings.scan_exclude.clone(), String::new());
            let act = WorkspaceOp::Changed { hints: Vec::new(), exclude, bounds: SCAN, tool };
            // If it fails, only the changes of the first command are not reported.
            let _ = self.act(session, act).await;
        }
    }

    /// Sends a request for files within a call that holds its permit.
    pub(crate) async fn act(&self, session: &SessionHandle, act: WorkspaceOp) -> Result<WorkspaceReply> {
        session.request(act).await.map_err(|err| failed(&err, true))
    }

    /// Keeps the tracked files for the next container.
    pub(crate) fn remember(&self, all: &[TrackedFile]) {
        let mut known = self.shared.touched.lock().unwrap_or_else(PoisonError::into_inner);
        known.all = all.to_vec();
    }

    async fn in_space(&self, session: &SessionHandle, act: WorkspaceOp) -> coracle_types::Result<WorkspaceReply> {
        let done = session.request(act).await;
        self.sessions.touch(SlotRole::Workspace);
        done
    }

    /// Runs `work` unless the call is cancelled.
    pub(crate) async fn unless_cancelled<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        match self.cancel.run_until_cancelled(work).await {
            Some(done) => Ok(done),
            None => fail(Code::Cancelled, "The call was cancelled."),
        }
    }
}

/// Whether the container was lost during the call.
fn is_lost(err: &Error) -> bool {
    matches!(
        err,
        Error::GuestLost { .. }
            | Error::GuestFailed { .. }
            | Error::FilesRemoved { .. }
            | Error::NotRunning { .. }
            | Error::LifetimeOver { .. }
            | Error::NodeLost { .. }
            | Error::NoSuchContainer(_)
    )
}

/// The failure for an error of an engine or a guest.
pub(crate) fn failed(err: &Error, may_have_run: bool) -> Box<Failure> {
    if is_lost(err) {
        let what = match err {
            Error::NodeLost { node, .. } => format!("The node `{node}` of the container was lost"),
            _ => "The container went away".to_owned(),
        };
        let message = format!("{what} during the call. The next call gets a new container.");
        return Failure::new(Code::WorkspaceLost, message).detail("may_have_run", may_have_run).into();
    }
    Failure::new(Code::Internal, format!("The workspace failed: {err}.")).into()
}
