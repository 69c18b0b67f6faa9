//! The words that run a command in a container.

use coracle_protocol::paths;
use coracle_runtime::plain_exec::{ENTER, MARK};
use coracle_types::{ContainerId, Exec, Ids};

use super::{EngineArgs, on};

/// A command as the engine runs it: through the constant program that enters its directory.
pub(crate) fn exec(id: &ContainerId, exec: &Exec, mark: &str) -> EngineArgs {
    let it = EngineArgs::verb("exec");
    let it = if exec.stdin.is_some() { it.word("--interactive") } else { it };
    let it = it.flag("user", exec.user).flag("workdir", "/").flag("env", format_args!("{MARK}={mark}"));
    let it = it.flags("env", exec.env.iter().map(|(name, value)| format!("{name}={value}")));
    let it = it.word("--").word(id.as_str());
    let it = it.words(["/bin/sh", "-c", ENTER, "coracle", exec.workdir.as_str()]);
    it.words(exec.command.clone().into_argv())
}

/// One of our constant programs; its arguments follow.
pub(crate) fn constant_program(id: &ContainerId, user: Ids, program: &str) -> EngineArgs {
    let it = EngineArgs::verb("exec").flag("user", user).flag("workdir", "/").word("--").word(id.as_str());
    it.words(["/bin/sh", "-c", program, "coracle"])
}

/// The guest's own way to itself, which stays open as long as a link.
pub(crate) fn connect(id: &ContainerId) -> EngineArgs {
    // As the container's own user, who is PID 1's.
    on("exec --interactive --workdir=/", [id.as_str(), paths::PROGRAM, "connect"])
}
