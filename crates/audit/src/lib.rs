//! The audit log: a line before each act and a line after it, or one line for a request that a proxy recorded; each
//! with the hash of the line before.
//!
//! [`AuditLog`] appends, [`verify`] checks the chain, and [`history`] reads acts back. [`arguments`] selects what a
//! line shows of a call's arguments.
//!
//! **Invariant:** a line is never changed, and is only removed with the oldest file.
//! **Invariant:** a line contains no secret: arguments that may be secret are shown by name or not at all.
//!
//! ```
//! use coracle_audit::{AuditLog, verify};
//! use serde_json::json;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> std::io::Result<()> {
//!     let dir = tempfile::tempdir()?;
//!     let log = AuditLog::new(dir.path().to_owned());
//!     for phase in ["intent", "outcome"] {
//!         let line = json!({ "phase": phase, "op": "create" });
//!         log.append(line.as_object().cloned().unwrap_or_default(), true).await?;
//!     }
//!     assert!(verify(dir.path())?.is_ok());
//!     Ok(())
//! }
//! ```

#![warn(missing_docs)]

pub mod arguments;
pub mod history;
mod log;
pub mod summary;
mod verify;

pub use log::AuditLog;
pub use verify::{ChainBreak, VerifyReport, verify};
