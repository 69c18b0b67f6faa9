//! Handles workspace operations. The thread that executes one also writes a short reply, which saves a switch of threads.

use tokio::runtime::Handle;

use crate::os::blocking::{CancelFlag, StopOnDrop, run_blocking};
use crate::protocol::RpcError;
use crate::protocol::workspace::{WorkspaceReply, WorkspaceRequest};
use crate::server::channel::ReplySender;
use crate::server::dispatch::{CallContext, UnaryHandler, UnaryReply};

impl UnaryHandler for WorkspaceRequest {
    async fn execute(self, cx: &CallContext, out: &ReplySender) -> Result<UnaryReply<WorkspaceReply>, RpcError> {
        let (supervisor, stop, own) = (cx.supervisor.clone(), CancelFlag::default(), out.clone());
        let _stop = StopOnDrop(stop.clone());
        let work = move || {
            let body = supervisor.workspaces.execute_encoded(&*supervisor.machine, self, &stop)?;
            let is_sent = own.send_reply_at_once(&body);
            Handle::current().spawn(async move { supervisor.workspaces.flush().await });
            Ok(if is_sent { UnaryReply::Sent } else { UnaryReply::Encoded(body) })
        };
        run_blocking(work).await?
    }
}
