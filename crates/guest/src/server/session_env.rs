//! What all commands share: variables in this memory, and files on the container's tmpfs.
//!
//! **Invariant:** what is not whole, or nothing that a command can have, changes nothing.

use std::sync::Arc;

use crate::os::blocking::apart;
use crate::os::machine::Session;
use crate::protocol::codec::split_nul;
use crate::protocol::{CallReply, ErrorCode, GuestMessage, MAX_VARIABLE, PutSecret, RpcError};
use crate::server::channel::{Inbox, ReplySender};
use crate::server::payload::within;
use crate::server::services::Supervisor;

/// Takes the variables of all commands that begin from now on.
pub(crate) async fn set(
    supervisor: &Arc<Supervisor>,
    bytes: u32,
    (payload, mut inbox): (Vec<u8>, Inbox),
    out: &ReplySender,
) {
    let set = async {
        let variables = split_nul(&within(payload, bytes, &mut inbox).await?)?;
        variables.iter().try_for_each(|it| check(it))?;
        supervisor.session.set(Session::new(variables));
        Ok((GuestMessage::Answer(CallReply::Done), Vec::new()))
    };
    out.say_result(set.await).await;
}

/// Takes a file that belongs on no disk.
pub(crate) async fn put_secret(
    supervisor: &Arc<Supervisor>,
    ask: PutSecret,
    (payload, mut inbox): (Vec<u8>, Inbox),
    out: &ReplySender,
) {
    let put = async {
        let content = within(payload, ask.bytes, &mut inbox).await?;
        let supervisor = supervisor.clone();
        apart(move || supervisor.secrets.put(&ask, &content)).await??;
        Ok((GuestMessage::Answer(CallReply::Done), Vec::new()))
    };
    out.say_result(put.await).await;
}

/// Whether a command can have it. Says nothing of its value.
fn check(variable: &[u8]) -> Result<(), RpcError> {
    let Some(name) = variable.iter().position(|it| *it == b'=').filter(|it| *it > 0) else {
        return Err(RpcError::new(ErrorCode::Invalid, "a variable without a name"));
    };
    if variable.len() >= MAX_VARIABLE {
        let name = String::from_utf8_lossy(&variable[..name.min(100)]);
        let message = format!("the variable `{name}` has more than {} KiB", MAX_VARIABLE >> 10);
        return Err(RpcError::new(ErrorCode::TooLong, message));
    }
    Ok(())
}
