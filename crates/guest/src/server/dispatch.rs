//! Dispatches an opened channel to the handler of its call, by the table of all calls.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use crate::protocol::body::{decode, encode};
use crate::protocol::call::{Call, CallInfo, CallScope};
use crate::protocol::calls::{
    AcceptTunnel, AttachRequest, AttachTerminal, CancelJob, EnsureUser, ExecRequest, GetFile, GetJob, ListFiles,
    ListJobs, ListTerminals, MakeDir, MakeLink, OpenProxyPorts, Ping, ProbeEgress, PutFile, PutSecret, ReadRequest,
    RemoveFile, RenameFile, ScanRequest, SearchRequest, SetSession, SetTimes, StatFile, TailRequest, Unlock,
    WaitRequest, WorkspaceRequest,
};
use crate::protocol::{ErrorCode, HostMessage, OpenWorkerSocket, RpcError, for_each_call};
use crate::secrets::PendingSecret;
use crate::server::channel::{ReplySender, RequestReceiver, until_closed};
use crate::server::services::Supervisor;

#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// The host.
    Host,
    /// Root inside, which may or may not act for the host, and therefore cannot change the retention of output.
    Root,
    /// The worker inside, with the permissions that the host granted.
    Worker(Arc<OpenWorkerSocket>),
}

/// The context of a handler.
#[derive(Clone, Debug)]
pub(crate) struct CallContext {
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) caller: Caller,
    /// Secret files for future commands. They are removed with the connection.
    pub(crate) pending_secrets: Arc<Mutex<Vec<Arc<PendingSecret>>>>,
}

/// The reply of a handler.
pub(crate) enum UnaryReply<R> {
    Reply(R),
    /// A reply that is already encoded, for one whose encoding may take long.
    Encoded(Vec<u8>),
    /// The reply was already sent.
    Sent,
}

/// Handles a call whose reply depends only on its request.
pub(crate) trait UnaryHandler: Call {
    /// Whether the call continues if its caller disconnects: it is short, and must not be executed partly.
    const IS_FINISHED: bool = false;

    fn execute(
        self,
        cx: &CallContext,
        out: &ReplySender,
    ) -> impl Future<Output = Result<UnaryReply<Self::Reply>, RpcError>> + Send;
}

/// Handles a call with input, output or data, which ends its channel itself.
pub(crate) trait StreamHandler: Call {
    fn serve(self, cx: &CallContext, channel: Channel) -> impl Future<Output = ()> + Send;
}

/// Both directions of a channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) inbox: RequestReceiver,
    pub(crate) out: ReplySender,
}

/// A call whose request is not parsed yet.
pub(crate) struct OpenCall {
    pub(crate) cx: CallContext,
    /// The received part of the request, and the request's full length.
    pub(crate) first: Vec<u8>,
    pub(crate) bytes: usize,
    pub(crate) channel: Channel,
}

type HandlerFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! handler {
    (($name:ident, $call:ident) $([$type:ident $streams:ident])*) => {
        match $name {
            $(<$type as Call>::NAME => handler!(@$streams $type $call),)*
            _ => Box::pin(async move { $call.channel.out.send_failure(unknown($name)).await }),
        }
    };
    (@Nothing $type:ident $call:ident) => { Box::pin(execute::<$type>($call)) };
    (@$streams:ident $type:ident $call:ident) => { Box::pin(serve::<$type>($call)) };
}

/// Runs the handler of a call.
pub(crate) fn handle(name: &'static str, call: OpenCall) -> HandlerFuture {
    for_each_call!(handler(name, call))
}

fn unknown(name: &str) -> RpcError {
    RpcError::new(ErrorCode::Unsupported, format!("the request `{name}` has no handler"))
}

/// Checks whether a caller may make a call.
///
/// # Errors
/// [`ErrorCode::Denied`]
pub(crate) fn check_scope(caller: &Caller, call: &CallInfo) -> Result<(), RpcError> {
    match caller {
        Caller::Worker(_) if call.scope == CallScope::Host => {
            Err(RpcError::new(ErrorCode::Denied, "a worker may not make this call"))
        }
        _ => Ok(()),
    }
}

async fn execute<C: UnaryHandler>(mut call: OpenCall) {
    let result = async {
        let request = request::<C>(&mut call).await?;
        let Channel { inbox, out } = &mut call.channel;
        let execution = request.execute(&call.cx, out);
        if C::IS_FINISHED {
            return execution.await;
        }
        tokio::select! {
            result = execution => result,
            closed = until_closed(inbox) => Err(closed),
        }
    };
    let result = result.await;
    let out = &call.channel.out;
    let body = match result {
        Ok(UnaryReply::Reply(reply)) => encode(&reply),
        Ok(UnaryReply::Encoded(body)) => body,
        Ok(UnaryReply::Sent) => return,
        Err(failure) => return out.send_failure(failure).await,
    };
    // The reply may contain data of an image or a caller, so its size must end this channel only.
    if body.len() > C::REPLY_LIMIT {
        let message = format!("the reply has {} bytes; the limit is {}", body.len(), C::REPLY_LIMIT);
        return out.send_failure(RpcError::new(ErrorCode::Io, message)).await;
    }
    out.send_reply(&body).await;
}

async fn serve<C: StreamHandler>(mut call: OpenCall) {
    match request::<C>(&mut call).await {
        Ok(request) => request.serve(&call.cx, call.channel).await,
        Err(failure) => call.channel.out.send_failure(failure).await,
    }
}

/// Reads and parses a request, and restricts it to what its caller may do.
async fn request<C: Call>(call: &mut OpenCall) -> Result<C, RpcError> {
    let invalid = |what: String| RpcError::new(ErrorCode::Invalid, what);
    let mut body = std::mem::take(&mut call.first);
    while body.len() < call.bytes {
        match call.channel.inbox.recv().await {
            Some((HostMessage::PayloadChunk, piece)) => body.extend(piece),
            _ => return Err(invalid("the request ended early".into())),
        }
    }
    let mut request: C = decode(&body).map_err(|err| invalid(format!("the request `{}`: {err}", C::NAME)))?;
    if let Caller::Worker(grant) = &call.cx.caller {
        authorize(&mut request, grant, &call.cx.supervisor)?;
    }
    Ok(request)
}

/// Restricts a worker's request: to its own jobs, and to the agent's files and commands.
pub(crate) fn authorize<C: Call>(
    request: &mut C,
    grant: &OpenWorkerSocket,
    supervisor: &Supervisor,
) -> Result<(), RpcError> {
    request.confine(grant)?;
    match request.job() {
        Some(job) if !supervisor.jobs.find(job)?.inside => {
            Err(RpcError::new(ErrorCode::NoJob, format!("no job `{job}`")))
        }
        _ => Ok(()),
    }
}

impl CallContext {
    /// Removes the secret files that still wait for their command, when the connection is closed.
    pub(crate) fn end(&self) {
        self.pending_secrets.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Registers a secret file for a future command, until the command starts or the connection is closed.
    pub(crate) fn register_secret(&self, name: &str) -> Arc<PendingSecret> {
        let secret = Arc::new(PendingSecret::new(&self.supervisor.secrets, name));
        let mut pending = self.pending_secrets.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|it| it.is_pending());
        pending.push(secret.clone());
        secret
    }
}
