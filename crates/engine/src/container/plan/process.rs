//! PID 1: its streams, limits, privileges and program.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use coracle_protocol::paths;
use coracle_types::Result;
use rustix::process::Resource;

use super::super::host_error;
use super::mounts::c_text;
use crate::config::{ContainerConfig, Init};
use crate::isolation::kernel::{PROCESS_LIMITS, ProcessLimit};
use crate::isolation::seccomp;
use crate::sys::{INHERITED_DESCRIPTOR, Program, Step};

/// How many bytes of a program's output are retained, from its end.
const LOG_BYTES: u64 = 8 << 20;

/// The standard streams of PID 1.
pub(super) fn streams(gate: Option<OwnedFd>, log: Option<OwnedFd>) -> Result<Step> {
    let (Some(stdin), Some(stdout)) = (gate, log.as_ref()) else { return Ok(Step::Output(log)) };
    let copy = |it: &OwnedFd| it.try_clone().map_err(host_error("cannot copy a descriptor"));
    Ok(Step::Streams { stdin, stderr: copy(stdout)?, stdout: copy(stdout)? })
}

/// The steps between entering the root file system and executing the program.
pub(super) fn last_steps(config: &ContainerConfig, exit: OwnedFd, streams: Step) -> Result<Vec<Step>> {
    let first_closed = INHERITED_DESCRIPTOR.unsigned_abs() + 1;
    let mut steps = vec![streams, Step::KeepOpen(exit), Step::CloseFrom(first_closed)];
    steps.extend(limits(config));
    steps.push(Step::WorkingDirectory(c_text(&config.workdir)?));
    let (uid, gid) = (config.user.uid, config.user.gid);
    steps.push(Step::Privileges { capabilities: config.capabilities, uid, gid });
    steps.push(Step::Filter(seccomp::program()));
    Ok(steps)
}

pub(crate) fn limits(config: &ContainerConfig) -> impl Iterator<Item = Step> + '_ {
    PROCESS_LIMITS.iter().map(|it| limit(config, it))
}

fn limit(config: &ContainerConfig, default: &ProcessLimit) -> Step {
    let requested = match default.resource {
        Resource::Nofile => config.nofile.map(u64::from),
        Resource::Core => config.core,
        _ => None,
    };
    let (soft, hard) = requested.map_or((default.soft, default.hard), |it| (it, it));
    Step::Limit { resource: default.resource, soft, hard }
}

/// The command line of PID 1 for an OCI runtime, which starts it when the network exists. `exit` is the descriptor for
/// its exit code.
pub(crate) fn init_arguments(config: &ContainerConfig, exit: i32, has_init: bool) -> Vec<String> {
    match &config.init {
        Init::Guest { lifeline, .. } => guest_arguments(*lifeline, exit),
        Init::Command(words) if has_init => command_arguments(words, exit, false),
        Init::Command(words) => words.clone(),
    }
}

fn guest_arguments(lifeline: Option<u64>, exit: i32) -> Vec<String> {
    let words = [paths::PROGRAM.to_owned(), "init".to_owned(), format!("--exit-fd={exit}")];
    words.into_iter().chain(lifeline.map(|it| format!("--lifeline={it}"))).collect()
}

fn command_arguments(words: &[String], exit: i32, gate: bool) -> Vec<String> {
    let gate = gate.then(|| "--gate".to_owned());
    let options = [format!("--exit-fd={exit}"), format!("--log-max={LOG_BYTES}"), "--".to_owned()];
    let first = [paths::INIT.to_owned(), "run".to_owned()];
    first.into_iter().chain(gate).chain(options).chain(words.iter().cloned()).collect()
}

pub(super) fn guest(lifeline: Option<u64>) -> Result<Program> {
    program(paths::PROGRAM, guest_arguments(lifeline, INHERITED_DESCRIPTOR).into_iter())
}

/// The guest's program as the init of a command, or the command itself. Without an init, a name without `/` is looked
/// up in `/bin` only.
pub(super) fn command(words: &[String], has_init: bool) -> Result<Program> {
    if has_init {
        return program(paths::INIT, command_arguments(words, INHERITED_DESCRIPTOR, true).into_iter());
    }
    let first = words.first().map_or("", String::as_str);
    let path = if first.contains('/') { first.to_owned() } else { format!("/bin/{first}") };
    program(&path, words.iter().cloned())
}

fn program(path: &str, words: impl Iterator<Item = String>) -> Result<Program> {
    let argv = words.map(|it| c_text(&it)).collect::<Result<Vec<CString>>>()?;
    Ok(Program { paths: vec![c_text(path)?], argv, env: Vec::new() })
}
