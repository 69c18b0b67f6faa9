//! What runs in a container: commands and jobs, one operation each.

mod command_request;
mod connect_command;
mod exec;
mod exec_background;
mod exec_cancel;
mod exec_interactive_hint;
mod exec_poll;
mod job;
mod job_page;
mod job_read;
mod job_wait;
mod jobs;

pub(crate) use self::command_request::CommandRequest;
pub(crate) use self::connect_command::connect_command;
pub(crate) use self::exec::{
    Exec, ExecResponse, OnTimeout, RestCall, check_command, inline_bytes, limits, lost_with_container, sandbox_response,
};
pub(crate) use self::exec_background::{ExecBackground, ExecBackgroundResponse};
pub use self::exec_cancel::{ExecCancel, ExecCancelResponse};
pub(crate) use self::exec_interactive_hint::ExecInteractiveHint;
pub use self::exec_poll::{ExecPoll, ExecPollResponse};
pub(crate) use self::job::running;
pub(crate) use self::job_page::{JobOutput, JobPage, OutputSelection};
pub(crate) use self::job_read::JobRead;
pub(crate) use self::job_wait::{JobWait, JobWaitResponse, PortRequest, WaitCondition, WaitConditions};
pub use self::jobs::{JobRow, Jobs, JobsResponse};

/// What `timeout` of coreutils exits with.
const TIMED_OUT: u8 = 124;
