//! The provider of sandboxes: the interface between the worker's driver and the code that creates containers.

mod contract;
mod frame;
mod stream;

pub use self::contract::{
    ExecCall, ExecUser, Forward, SandboxCapabilities, SandboxHealth, SandboxInfo, SandboxProvider, SandboxState,
    Teardown, TeardownReport, WorkerCall, WorkerProcess, WriteOpts,
};
pub use self::frame::Frame;
pub use self::stream::{ExecStream, MAX_PIECE, MAX_STDERR};
