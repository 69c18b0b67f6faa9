//! The channel of an act in a workspace. The thread that does it also writes a short answer, so that only one change of
//! threads is in its way.

use std::sync::Arc;

use crate::os::blocking::{Stop, StopOnDrop, apart};
use crate::protocol::workspace::WorkspaceRequest;
use crate::protocol::{CallReply, ErrorCode, RpcError};
use crate::server::channel::{Inbox, LastWord, ReplySender, left};
use crate::server::payload::whole;
use crate::server::services::Supervisor;
use crate::workspace::MAX_BROUGHT;

/// Does something in a workspace and tells what came of it, unless the caller leaves before.
pub(crate) async fn space(
    supervisor: &Arc<Supervisor>,
    ask: WorkspaceRequest,
    (payload, mut inbox): (Vec<u8>, Inbox),
    out: &ReplySender,
) {
    let told = async {
        let bytes = ask.bytes as usize;
        if bytes > MAX_BROUGHT {
            return Err(RpcError::new(ErrorCode::TooLong, format!("{bytes} bytes, above {MAX_BROUGHT}")));
        }
        let content = whole(payload, bytes, &mut inbox).await?;
        let (supervisor, stop) = (supervisor.clone(), Stop::default());
        let _stop = StopOnDrop(stop.clone());
        let (last_word, own) = (LastWord::default(), out.clone());
        let its = last_word.clone();
        let work = move || {
            let json = supervisor.spaces.act_as_json(&*supervisor.machine, ask, &content, &stop)?;
            Ok((!own.say_at_once(CallReply::Space, &json, || its.take())).then_some(json))
        };
        tokio::select! {
            unsaid = apart(work) => unsaid?,
            fault = left(&mut inbox) => if last_word.take() { Err(fault) } else { Ok(None) },
        }
    };
    match told.await {
        Ok(None) => {}
        Ok(Some(json)) => out.say_whole(Ok((CallReply::Space, json))).await,
        Err(fault) => out.say_result(Err(fault)).await,
    }
    supervisor.spaces.settle().await;
}
