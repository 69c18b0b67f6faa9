//! Environment variables that all commands of a session get.

use std::sync::{Mutex, PoisonError};

use crate::os::machine::SessionVariables;

/// The variables, and the user to whom they belong.
#[derive(Debug, Default)]
pub(crate) struct SessionEnv {
    variables: Mutex<SessionVariables>,
    /// The user of the session's commands, once the host has set it.
    user: Mutex<Option<u32>>,
}

impl SessionEnv {
    /// Sets the variables of all commands that start from now on.
    pub(crate) fn set(&self, session: SessionVariables) {
        *self.variables.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }

    pub(crate) fn variables(&self) -> SessionVariables {
        let mut variables = self.variables.lock().unwrap_or_else(PoisonError::into_inner).clone();
        variables.user = self.user();
        variables
    }

    fn user(&self) -> Option<u32> {
        *self.user.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the user of the session's commands.
    pub(crate) fn set_user(&self, uid: u32) {
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) = Some(uid);
    }

    /// The variables that a process of this user may see: all of them for root and for the session's user.
    pub(crate) fn seen_by(&self, uid: u32) -> SessionVariables {
        if uid == 0 || self.user() == Some(uid) { self.variables() } else { SessionVariables::default() }
    }
}
