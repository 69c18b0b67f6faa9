//! Errors of the guest as those of SFTP.

use coracle_runtime::Error;
use coracle_runtime::link::protocol::ErrorCode;
use russh_sftp::protocol::{Status, StatusCode};
use russh_sftp::server::StatusReply;

/// An answer that something is done.
pub(super) fn done(id: u32) -> Status {
    Status { id, status_code: StatusCode::Ok, error_message: "Ok".to_owned(), language_tag: "en-US".to_owned() }
}

/// Why something is not.
pub(super) fn failed(err: &Error) -> StatusReply {
    let code = match err {
        Error::Refused(fault) => match fault.code {
            ErrorCode::NotFound | ErrorCode::NoDirectory => StatusCode::NoSuchFile,
            ErrorCode::Denied => StatusCode::PermissionDenied,
            ErrorCode::Unsupported => StatusCode::OpUnsupported,
            _ => StatusCode::Failure,
        },
        Error::NoSuchPath { .. } => StatusCode::NoSuchFile,
        _ => StatusCode::Failure,
    };
    code.with_message(err.to_string())
}

pub(super) fn failure(message: &str) -> StatusReply {
    StatusCode::Failure.with_message(message)
}

pub(super) fn unsupported(message: &str) -> StatusReply {
    StatusCode::OpUnsupported.with_message(message)
}
