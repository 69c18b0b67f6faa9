//! The table of all calls.

use std::time::Duration;

use crate::body::Bytes;
use crate::call::{Call, CallInfo, CallScope, DEFAULT_TIMEOUT, Effect, Streams};
use crate::relay::EgressReport;
pub use crate::relay::{AcceptTunnel, OpenProxyPorts, ProbeEgress};
pub use crate::workspace::WorkspaceRequest;
use crate::workspace::{MAX_WORKSPACE_REPLY, MAX_WORKSPACE_REQUEST, WorkspaceReply};
pub use crate::{
    AttachRequest, AttachTerminal, CancelJob, EnsureUser, ExecRequest, GetFile, GetJob, ListFiles, ListJobs,
    ListTerminals, MakeDir, MakeLink, OpenWorkerSocket, Ping, PutFile, PutSecret, ReadRequest, RemoveFile, RenameFile,
    ScanRequest, SearchRequest, SetSession, SetTimes, StatFile, TailRequest, Unlock, WaitRequest,
};
use crate::{
    CancelReport, ErrorCode, ExecStarted, ExecStatus, FileEntry, JobInfo, MAX_COMMAND, MAX_HEADER, MAX_PAYLOAD,
    MAX_SCAN_REPLY, MAX_SECRET, MAX_SESSION, OutputPage, RpcError, ScanEntry, SearchResult, TerminalInfo, UserInfo,
    UserSpec, WaitResult,
};

/// For large trees and slow disks.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(600);

/// Longest duration of a workspace operation: the guest ends scans and removals long before.
const WORKSPACE_TIMEOUT: Duration = Duration::from_secs(180);

/// Additional time for a guest beyond the requested duration.
const SCAN_GRACE: Duration = Duration::from_secs(15);

macro_rules! calls {
    ($d:tt $($call:ident $name:literal $event:ty => $reply:ty, $effect:ident $streams:ident $scope:ident { $($item:tt)* })*) => {
        $(impl Call for $call {
            const NAME: &'static str = $name;
            type Event = $event;
            type Reply = $reply;
            const EFFECT: Effect = Effect::$effect;
            const STREAMS: Streams = Streams::$streams;
            const SCOPE: CallScope = CallScope::$scope;
            $($item)*
        })*

        /// All calls.
        pub const CALLS: &[CallInfo] = &[$(CallInfo::new::<$call>()),*];

        /// Calls a macro with each call and its [`Streams`](crate::call::Streams), so that a match can cover all of them.
        #[macro_export]
        macro_rules! for_each_call {
            ($d callback:ident $d ($d argument:tt)*) => {
                $d callback! { $d ($d argument)* $([$call $streams])* }
            };
        }
    };
}

calls! { $
    Ping "ping" () => (), ReadOnly Nothing Worker {}

    Unlock "unlock" () => Vec<String>, Idempotent Nothing Host {
        const REQUEST_LIMIT: usize = MAX_SESSION + MAX_HEADER;
        const REPLY_LIMIT: usize = MAX_SESSION + MAX_HEADER;
    }

    ExecRequest "exec" ExecStarted => ExecStatus, Once Command Worker {
        const REQUEST_LIMIT: usize = 2 * MAX_COMMAND + MAX_SECRET + MAX_HEADER;

        fn confine(&mut self, to: &OpenWorkerSocket) -> Result<(), RpcError> {
            if self.secret.is_some() || !self.files.is_empty() {
                return Err(RpcError::new(ErrorCode::Denied, "a worker may not make this call"));
            }
            to.check_beneath(&self.cwd)?;
            (self.user, self.from_container) = (agent(to), true);
            Ok(())
        }
    }
    AttachRequest "attach" ExecStarted => ExecStatus, ReadOnly Follow Worker {
        fn job(&self) -> Option<&str> { Some(&self.job) }
    }

    ListTerminals "terminals" () => Vec<TerminalInfo>, ReadOnly Nothing Host {
        const REPLY_LIMIT: usize = MAX_PAYLOAD;
    }
    AttachTerminal "attach_terminal" ExecStarted => ExecStatus, Once Command Host {
        fn job(&self) -> Option<&str> { Some(&self.job) }
    }

    ListJobs "jobs" () => Vec<JobInfo>, ReadOnly Nothing Host {
        const REPLY_LIMIT: usize = MAX_PAYLOAD;
    }
    GetJob "job" () => JobInfo, ReadOnly Nothing Worker {
        fn job(&self) -> Option<&str> { Some(&self.job) }
    }
    CancelJob "cancel" () => CancelReport, Idempotent Nothing Worker {
        fn job(&self) -> Option<&str> { Some(&self.job) }
        fn timeout(&self) -> Duration { Duration::from_millis(self.grace_ms).saturating_add(DEFAULT_TIMEOUT) }
    }
    ReadRequest "read" () => (OutputPage, Bytes), ReadOnly Nothing Worker {
        const REPLY_LIMIT: usize = MAX_PAYLOAD + MAX_HEADER;
        fn job(&self) -> Option<&str> { Some(&self.job) }
    }
    TailRequest "tail" () => (OutputPage, Bytes), ReadOnly Nothing Worker {
        const REPLY_LIMIT: usize = MAX_PAYLOAD + MAX_HEADER;
        fn job(&self) -> Option<&str> { Some(&self.job) }
    }
    SearchRequest "search" () => SearchResult, ReadOnly Nothing Worker {
        const REPLY_LIMIT: usize = MAX_PAYLOAD + MAX_HEADER;
        fn job(&self) -> Option<&str> { Some(&self.job) }
    }
    WaitRequest "wait" () => (WaitResult, Bytes), ReadOnly Nothing Worker {
        const REPLY_LIMIT: usize = MAX_PAYLOAD + MAX_HEADER;
        fn job(&self) -> Option<&str> { Some(&self.job) }
        fn timeout(&self) -> Duration { Duration::from_millis(self.limit_ms).saturating_add(DEFAULT_TIMEOUT) }
    }

    SetSession "set_session" () => (), Idempotent Nothing Host {
        const REQUEST_LIMIT: usize = 2 * MAX_SESSION;
    }
    PutSecret "put_secret" () => (), Idempotent Nothing Host {
        const REQUEST_LIMIT: usize = MAX_SESSION + MAX_HEADER;
    }
    EnsureUser "settle" () => UserInfo, Idempotent Nothing Host {}
    OpenWorkerSocket "let_worker_in" () => (), Idempotent Nothing Host {}

    StatFile "stat" () => FileEntry, ReadOnly Nothing Host {}
    GetFile "get" FileEntry => (), ReadOnly Download Host {
        fn data_limit(&self) -> u64 { self.limit }
        fn timeout(&self) -> Duration { TRANSFER_TIMEOUT }
    }
    PutFile "put" () => FileEntry, Once Upload Host {
        fn timeout(&self) -> Duration { TRANSFER_TIMEOUT }
    }
    ListFiles "list" () => (Vec<FileEntry>, bool), ReadOnly Nothing Host {
        const REPLY_LIMIT: usize = MAX_PAYLOAD;
    }
    MakeDir "make_dir" () => FileEntry, Once Nothing Host {
        fn effect(&self) -> Effect { if self.parents { Effect::Idempotent } else { Effect::Once } }
    }
    MakeLink "make_link" () => FileEntry, Once Nothing Host {
        fn effect(&self) -> Effect { if self.replace { Effect::Idempotent } else { Effect::Once } }
    }
    RenameFile "rename" () => FileEntry, Once Nothing Host {}
    SetTimes "set_times" () => (), Idempotent Nothing Host {
        const REQUEST_LIMIT: usize = MAX_SESSION + MAX_HEADER;
    }
    RemoveFile "remove" () => (), Once Nothing Host {
        fn timeout(&self) -> Duration { TRANSFER_TIMEOUT }
    }
    ScanRequest "walk" () => (Vec<ScanEntry>, bool), ReadOnly Nothing Host {
        const REQUEST_LIMIT: usize = MAX_SESSION + MAX_HEADER;
        const REPLY_LIMIT: usize = MAX_SCAN_REPLY;
        fn timeout(&self) -> Duration { Duration::from_millis(self.within_ms).saturating_add(SCAN_GRACE) }
    }

    WorkspaceRequest "space" () => WorkspaceReply, Once Nothing Worker {
        const REQUEST_LIMIT: usize = MAX_WORKSPACE_REQUEST + MAX_HEADER;
        const REPLY_LIMIT: usize = MAX_WORKSPACE_REPLY;
        fn effect(&self) -> Effect { if self.act.is_read_only() { Effect::ReadOnly } else { Effect::Once } }
        fn timeout(&self) -> Duration { WORKSPACE_TIMEOUT }

        fn confine(&mut self, to: &OpenWorkerSocket) -> Result<(), RpcError> {
            to.check_beneath(&self.root)?;
            self.user = agent(to);
            Ok(())
        }
    }

    OpenProxyPorts "relay" () => (), Idempotent Nothing Host {
        const REQUEST_LIMIT: usize = MAX_SESSION + MAX_HEADER;
    }
    ProbeEgress "probe" () => EgressReport, ReadOnly Nothing Host {
        fn timeout(&self) -> Duration { Duration::from_millis(self.within_ms).saturating_add(DEFAULT_TIMEOUT) }
    }
    AcceptTunnel "outlet" () => (), Once Tunnel Host {}
}

/// Finds the call with that name.
///
/// # Errors
/// [`ErrorCode::Unsupported`] for a name that this version does not know.
pub fn find_call(name: &str) -> Result<&'static CallInfo, RpcError> {
    let unknown = || {
        let version = env!("CARGO_PKG_VERSION");
        RpcError::new(ErrorCode::Unsupported, format!("this guest, version {version}, does not support that call"))
    };
    CALLS.iter().find(|it| it.name == name).ok_or_else(unknown)
}

fn agent(to: &OpenWorkerSocket) -> UserSpec {
    UserSpec::Ids { uid: to.agent.0, gid: Some(to.agent.1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_names_are_unique_and_limits_fit_into_a_frame() {
        for (at, call) in CALLS.iter().enumerate() {
            assert!(CALLS[..at].iter().all(|it| it.name != call.name), "{}", call.name);
            assert!(u32::try_from(call.request_limit).is_ok(), "{}", call.name);
            assert_eq!(find_call(call.name), Ok(call));
        }
        assert_eq!(find_call("hum").unwrap_err().code, ErrorCode::Unsupported);
    }
}
