//! From an opened channel to the handler of its call, by the table of all calls.

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

/// Who calls.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// The host.
    Host,
    /// Root inside, which may be the host by a program inside or not, and then has no say in what is kept.
    Root,
    /// The worker inside, which gets what the host let it have.
    Worker(Arc<OpenWorkerSocket>),
}

/// What a handler knows beside its request.
#[derive(Clone, Debug)]
pub(crate) struct CallContext {
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) caller: Caller,
    /// Files that are for commands to come. They go with the connection.
    pub(crate) pending_secrets: Arc<Mutex<Vec<Arc<PendingSecret>>>>,
}

/// What a handler replies.
pub(crate) enum UnaryReply<R> {
    Reply(R),
    /// The same, encoded where that may take long.
    Encoded(Vec<u8>),
    /// It was sent already.
    Sent,
}

/// A call that is answered from its request alone.
pub(crate) trait UnaryHandler: Call {
    /// It goes on when its caller leaves: it is short, and must not be done by half.
    const IS_FINISHED: bool = false;

    fn answer(
        self,
        cx: &CallContext,
        out: &ReplySender,
    ) -> impl Future<Output = Result<UnaryReply<Self::Reply>, RpcError>> + Send;
}

/// A call with input, output or data, which ends its channel itself.
pub(crate) trait StreamHandler: Call {
    fn serve(self, cx: &CallContext, channel: Channel) -> impl Future<Output = ()> + Send;
}

/// Both directions of a channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) inbox: RequestReceiver,
    pub(crate) out: ReplySender,
}

/// A call whose request is not read yet.
pub(crate) struct OpenCall {
    pub(crate) cx: CallContext,
    /// What came of the request, and how many bytes it has.
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
    (@Nothing $type:ident $call:ident) => { Box::pin(answer::<$type>($call)) };
    (@$streams:ident $type:ident $call:ident) => { Box::pin(serve::<$type>($call)) };
}

/// What handles a call.
pub(crate) fn handle(name: &'static str, call: OpenCall) -> HandlerFuture {
    for_each_call!(handler(name, call))
}

fn unknown(name: &str) -> RpcError {
    RpcError::new(ErrorCode::Unsupported, format!("the request `{name}` has no handler"))
}

/// Whether a caller may make a call at all.
///
/// # Errors
/// [`ErrorCode::Denied`]
pub(crate) fn check_scope(caller: &Caller, call: &CallInfo) -> Result<(), RpcError> {
    match caller {
        Caller::Worker(_) if call.scope == CallScope::Host => {
            Err(RpcError::new(ErrorCode::Denied, "a worker may not ask that"))
        }
        _ => Ok(()),
    }
}

async fn answer<C: UnaryHandler>(mut call: OpenCall) {
    let answered = async {
        let request = request::<C>(&mut call).await?;
        let Channel { inbox, out } = &mut call.channel;
        let answer = request.answer(&call.cx, out);
        if C::IS_FINISHED {
            return answer.await;
        }
        tokio::select! {
            answered = answer => answered,
            closed = until_closed(inbox) => Err(closed),
        }
    };
    let answered = answered.await;
    let out = &call.channel.out;
    let body = match answered {
        Ok(UnaryReply::Reply(reply)) => encode(&reply),
        Ok(UnaryReply::Encoded(body)) => body,
        Ok(UnaryReply::Sent) => return,
        Err(failure) => return out.send_failure(failure).await,
    };
    // What an image or a caller put into a reply must end this channel only.
    if body.len() > C::REPLY_LIMIT {
        let message = format!("the reply has {} bytes, above {}", body.len(), C::REPLY_LIMIT);
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

/// Reads a request, as far as its caller may make it.
async fn request<C: Call>(call: &mut OpenCall) -> Result<C, RpcError> {
    let invalid = |what: String| RpcError::new(ErrorCode::Invalid, what);
    let mut body = std::mem::take(&mut call.first);
    while body.len() < call.bytes {
        match call.channel.inbox.recv().await {
            Some((HostMessage::PayloadChunk, piece)) => body.extend(piece),
            _ => return Err(invalid("what was to follow broke off".into())),
        }
    }
    let mut request: C = decode(&body).map_err(|err| invalid(format!("the request `{}`: {err}", C::NAME)))?;
    if let Caller::Worker(grant) = &call.cx.caller {
        authorize(&mut request, grant, &call.cx.supervisor)?;
    }
    Ok(request)
}

/// What a worker asks, as what it may: its own jobs, and the agent's files and commands.
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
    /// With the connection: files that still wait for their command are removed.
    pub(crate) fn end(&self) {
        self.pending_secrets.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Keeps a file for a command to come, until the command begins or the connection is gone.
    pub(crate) fn keep_secret(&self, name: &str) -> Arc<PendingSecret> {
        let waiting = Arc::new(PendingSecret::new(&self.supervisor.secrets, name));
        let mut pending = self.pending_secrets.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|it| it.is_pending());
        pending.push(waiting.clone());
        waiting
    }
}
