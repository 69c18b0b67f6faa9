//! Errors of stacks, with hints.

use coracle_compose::{BadService, BoundFileError, ReadError, StackError};
use coracle_types::Error;

use super::{Code, Failure};

impl From<ReadError> for Failure {
    fn from(err: ReadError) -> Self {
        match err {
            ReadError::Invalid { message, line } => {
                let failure = Self::new(Code::ComposeInvalid, message).detail("line", line);
                match line {
                    Some(_) => failure.hint("correct the Compose file"),
                    None => failure.hint("correct the file; `${NAME}` in it is filled from `env` alone"),
                }
            }
            ReadError::Refused(refused) => refused.into(),
            other => Self::internal(other),
        }
    }
}

impl From<StackError> for Failure {
    fn from(err: StackError) -> Self {
        let message = err.to_string();
        match err {
            StackError::Bad { bad, .. } => {
                Self::new(Code::ComposeFailed, message).hint(hint(&bad)).detail("services", bad)
            }
            StackError::Engine(err @ Error::MountChanged { .. }) => err.into(),
            StackError::Engine(err) => Self::from(err).with_code(Code::ComposeFailed),
            other => Self::internal(other),
        }
    }
}

impl From<BoundFileError> for Failure {
    fn from(err: BoundFileError) -> Self {
        match err {
            BoundFileError::Refused(refused) => refused.into(),
            BoundFileError::Failed(err) => err.into(),
        }
    }
}

fn hint(bad: &[BadService]) -> &'static str {
    if bad.iter().any(|it| it.exit_code.is_some_and(|code| code != 0)) {
        "`details.services` has the log of each; correct the service and create again"
    } else {
        "`details.services` has the log of each; a health check that needs longer needs `start_period` or more `retries`"
    }
}
