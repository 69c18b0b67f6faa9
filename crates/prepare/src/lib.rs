//! Prepares what operations work with, by the user's configuration: images, sessions, sandboxes and shells.
//!
//! [`requests`] has the arguments of `create`, [`resolve`] decides what they leave open, [`preflight`] says what this host can do,
//! [`image_build`] finds or builds the image. A [`Process`] holds what outlives a call: the session's tools, its shells and the
//! sandboxes in use.
//!
//! **Invariant:** nothing here is an operation, or knows the table of them.
//! **Invariant:** `resolve` starts nothing and changes nothing.

pub mod coding_agents;
pub mod forwards;
pub mod image_build;
pub mod preflight;
pub mod process;
pub mod requests;
pub mod resolve;
pub mod sandbox;
pub mod session_tools;
pub mod shells;
pub mod shorthand;

pub use process::Process;
pub use resolve::{copyable, host_path};
