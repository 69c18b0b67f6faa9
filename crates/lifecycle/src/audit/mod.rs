//! The files of the audit log: a line before each act and a line after it, each with the hash of the line before.

mod arguments;
mod history;
mod log;
mod summary;
mod verify;

pub use self::arguments::{args, name, program};
pub use self::history::{AuditedAct, AuditedActs, LogFilter};
pub use self::log::AuditLog;
pub use self::summary::{ActCount, SessionSummary, summarize};
pub use self::verify::{ChainBreak, VerifyReport, verify};
