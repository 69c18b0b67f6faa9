//! What all commands share: variables in this memory, and files on the container's tmpfs.
//!
//! **Invariant:** what is nothing that a command can have changes nothing.

use crate::os::blocking::run_blocking;
use crate::os::machine::SessionVariables;
use crate::protocol::{ErrorCode, MAX_SESSION, MAX_VARIABLE, PutSecret, RpcError, SetSession};
use crate::server::channel::ReplySender;
use crate::server::dispatch::{CallContext, UnaryHandler, UnaryReply};

impl UnaryHandler for SetSession {
    const IS_FINISHED: bool = true;

    /// Takes the variables of all commands that begin from now on.
    async fn answer(self, cx: &CallContext, _: &ReplySender) -> Result<UnaryReply<()>, RpcError> {
        let variables: Vec<Vec<u8>> = self.variables.into_iter().map(|it| it.0).collect();
        check_size(variables.iter().map(|it| it.len() + 1).sum())?;
        variables.iter().try_for_each(|it| check(it))?;
        cx.supervisor.session.set(SessionVariables::new(variables));
        Ok(UnaryReply::Reply(()))
    }
}

impl UnaryHandler for PutSecret {
    const IS_FINISHED: bool = true;

    /// Takes a file that belongs on no disk.
    async fn answer(self, cx: &CallContext, _: &ReplySender) -> Result<UnaryReply<()>, RpcError> {
        check_size(self.content.len())?;
        // One that is still being written when the connection is gone goes afterwards.
        let _waiting = self.lent.then(|| cx.keep_secret(&self.name));
        let supervisor = cx.supervisor.clone();
        run_blocking(move || supervisor.secrets.put(&self)).await??;
        Ok(UnaryReply::Reply(()))
    }
}

pub(super) fn check_size(bytes: usize) -> Result<(), RpcError> {
    if bytes > MAX_SESSION {
        return Err(RpcError::new(ErrorCode::TooLong, format!("{bytes} bytes, above {MAX_SESSION}")));
    }
    Ok(())
}

/// Whether a command can have it. Says nothing of its value.
fn check(variable: &[u8]) -> Result<(), RpcError> {
    let Some(name) = variable.iter().position(|it| *it == b'=').filter(|it| *it > 0) else {
        return Err(RpcError::new(ErrorCode::Invalid, "a variable without a name"));
    };
    if variable.contains(&0) {
        return Err(RpcError::new(ErrorCode::Invalid, "a variable with a NUL"));
    }
    if variable.len() >= MAX_VARIABLE {
        let name = String::from_utf8_lossy(&variable[..name.min(100)]);
        let message = format!("the variable `{name}` has more than {} KiB", MAX_VARIABLE >> 10);
        return Err(RpcError::new(ErrorCode::TooLong, message));
    }
    Ok(())
}
