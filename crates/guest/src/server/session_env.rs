//! Sets what all commands share: environment variables in this memory, and secret files on the container's tmpfs.
//!
//! **Invariant:** an invalid request changes nothing.

use crate::os::blocking::run_blocking;
use crate::os::machine::SessionVariables;
use crate::protocol::{ErrorCode, MAX_SESSION, MAX_VARIABLE, PutSecret, RpcError, SetSession};
use crate::server::channel::ReplySender;
use crate::server::dispatch::{CallContext, UnaryHandler, UnaryReply};

impl UnaryHandler for SetSession {
    const IS_FINISHED: bool = true;

    /// Sets the variables of all commands that start from now on.
    async fn execute(self, cx: &CallContext, _: &ReplySender) -> Result<UnaryReply<()>, RpcError> {
        let variables: Vec<Vec<u8>> = self.variables.into_iter().map(|it| it.0).collect();
        check_size(variables.iter().map(|it| it.len() + 1).sum())?;
        variables.iter().try_for_each(|it| check(it))?;
        cx.supervisor.session.set(SessionVariables::new(variables));
        Ok(UnaryReply::Reply(()))
    }
}

impl UnaryHandler for PutSecret {
    const IS_FINISHED: bool = true;

    /// Writes a secret file to the tmpfs.
    async fn execute(self, cx: &CallContext, _: &ReplySender) -> Result<UnaryReply<()>, RpcError> {
        check_size(self.content.len())?;
        // If the connection closes during the write, the file is removed afterwards.
        let _pending = self.lent.then(|| cx.register_secret(&self.name));
        let supervisor = cx.supervisor.clone();
        run_blocking(move || supervisor.secrets.put(&self)).await??;
        Ok(UnaryReply::Reply(()))
    }
}

pub(super) fn check_size(bytes: usize) -> Result<(), RpcError> {
    if bytes > MAX_SESSION {
        return Err(RpcError::new(ErrorCode::TooLong, format!("{bytes} bytes; the limit is {MAX_SESSION}")));
    }
    Ok(())
}

/// Checks a variable. The error does not contain its value.
fn check(variable: &[u8]) -> Result<(), RpcError> {
    let Some(name) = variable.iter().position(|it| *it == b'=').filter(|it| *it > 0) else {
        return Err(RpcError::new(ErrorCode::Invalid, "an environment variable has no name"));
    };
    if variable.contains(&0) {
        return Err(RpcError::new(ErrorCode::Invalid, "an environment variable contains a NUL"));
    }
    if variable.len() >= MAX_VARIABLE {
        let name = String::from_utf8_lossy(&variable[..name.min(100)]);
        let message = format!("the variable `{name}` has more than {} KiB", MAX_VARIABLE >> 10);
        return Err(RpcError::new(ErrorCode::TooLong, message));
    }
    Ok(())
}
