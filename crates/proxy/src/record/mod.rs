//! The record of a container's requests: what its programs sent and what they received, as files.
//!
//! `exchanges.jsonl` has a line for each exchange, `bodies/` each body once, by its SHA-256.
//!
//! **Invariant:** a record has no secret. A request is stored as the program sent it, with `[redacted:NAME]` instead of
//! its placeholder, and an answer as the program received it.
//! **Invariant:** bodies are not delayed: a copy is taken of what passes, and written by another task.

mod capture;
mod exchange;
mod files;
mod in_flight;
mod placeholders;
mod recorder;

pub use self::exchange::{Missing, RecordedBody, RecordedExchange, RecordedMessage};
pub(crate) use self::exchange::{bytes_of, text_of};
pub use self::files::{ExchangeRecord, RECORD_FILE};
pub(crate) use self::in_flight::{Exchange, RequestHead, text_without};
pub(crate) use self::placeholders::Placeholders;
pub(crate) use self::recorder::Recorder;
pub use self::recorder::{RecordLimits, RecordObserver, RecordSettings, StoredExchange};
