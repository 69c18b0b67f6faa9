//! Commands that outlive the call which started them.
//!
//! The guest of a container has their registry; these are the typed requests to it, sent over a
//! [`Link`](coracle_client::Link). [`start`] begins a [`Job`], [`poll`] and [`list`] look at it, [`wait`] waits for an
//! [`WaitFor`], [`read`] and [`search`] return its output, [`cancel`] ends it.
//!
//! ```
//! use std::time::Duration;
//!
//! use coracle_jobs::{JobState, Wait, start, wait};
//! use coracle_runtime::FakeRuntime;
//! use coracle_types::{Command, ContainerPath, Exec, Ids};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let engine = FakeRuntime::with_programs(); // its guest is the one that real containers have
//!     let (_container, link) = engine.runs_guest("web").await;
//!     let exec = Exec::new(Command::shell("echo ready; exit 3"), Ids::ROOT, ContainerPath::root());
//!     let job = start(&link, exec, 32).await?.id;
//!     let ended = wait(&link, Wait { job, events: vec![], limit: Duration::from_secs(10), lines: 5 }).await?;
//!     assert_eq!((ended.job.state, ended.job.exit_code), (JobState::Exited, Some(3)));
//!     assert_eq!(ended.tail.bytes, b"ready\n");
//!     Ok(())
//! }
//! ```
//!
//! **Invariant:** a job that failed, timed out or was cancelled is a result, not an [`Error`].
//! **Invariant:** a guest's reply is untrusted data: the id is taken from the request, text is cut at our limits, and
//! the end of a page is computed here.
//! **Invariant:** no polling: a wait is one request with one reply.

#![warn(missing_docs)]

mod cancel;
mod error;
mod job;
mod read;
mod search;
mod start;
mod tail;
mod text;
mod wait;

pub use cancel::{CancelReport, cancel};
pub use coracle_protocol::{LineMatch, Position, SearchRequest, SearchResult, StreamSelector};
pub use error::{Error, Result};
pub use job::{Job, JobState, list, signal_name};
pub use read::{MAX_PAGE, Page, PageRequest, read};
pub use search::search;
pub use start::{StartedJob, start};
pub use tail::{JobStatus, MAX_LINES, Tail, poll};
pub use text::Format;
pub use wait::{Wait, WaitFor, WaitOutcome, WaitResult, wait};
