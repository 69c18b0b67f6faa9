//! Plans the process of a command, and starts it.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{PipeReader, PipeWriter};
use std::path::PathBuf;

use coracle_host::process_marker::MARK;
use coracle_types::{Error, Exec, Input, ProcessId, Result};
use rustix::io::Errno;

use super::super::containers::StoredContainer;
use super::super::plan::{c_text, limits};
use super::super::start::group_files;
use super::super::state::RunRecord;
use super::super::{end, host_error};
use super::process::ExecProcess;
use crate::exec_record::ExecRecord;
use crate::isolation::seccomp;
use crate::sys::{
    ChildPlan, FailedAt, FirstProcess, Namespaces, Program, SpawnedPidfd, Step, TRAMPOLINE_DESCRIPTOR, spawn_watched,
    trampoline,
};

/// The lowest descriptor to close: a command gets the standard streams only.
const AFTER_STREAMS: i32 = 3;

/// The error for a trampoline that cannot be created. Without it, root inside could change the engine's program. A kernel
/// setting can forbid executable files in memory.
const NO_TRAMPOLINE: &str =
    "cannot create the file in memory that executes a command (`sysctl vm.memfd_noexec` has to print 0 or 1)";

/// A command, and the container that it is for.
#[derive(Debug)]
pub(super) struct ExecRequest<'a> {
    pub(super) exec: &'a Exec,
    pub(super) mark: &'a str,
    pub(super) run: &'a RunRecord,
    pub(super) process: &'a ProcessId,
}

/// A command that is ready to be started.
#[derive(Debug)]
pub(super) struct ExecPlan {
    /// The directory to record it in, if there is no control group.
    recorded_in: Option<PathBuf>,
    child: ChildPlan,
    stdin: PipeWriter,
    stdout: PipeReader,
    stderr: PipeReader,
}

/// The result of a start.
#[derive(Debug)]
pub(super) enum Outcome {
    Started(ExecProcess),
    NoDirectory,
    /// The program is missing or cannot be executed; with the exit code that a shell has for that.
    NoProgram(u8),
}

/// A running command and its pipes.
#[derive(Debug)]
pub(super) struct StartedExec {
    pub(super) record: Option<ExecRecord>,
    pub(super) spawned: FirstProcess,
    pub(super) stdin: PipeWriter,
    pub(super) stdout: PipeReader,
    pub(super) stderr: PipeReader,
}

impl ExecPlan {
    /// Plans a command. `None` if PID 1 has just ended.
    pub(super) fn new(container: &StoredContainer, request: &ExecRequest<'_>) -> Result<Option<Self>> {
        let Some(process) = end::open(request.process) else { return Ok(None) };
        let pipe = || std::io::pipe().map_err(host_error("cannot create a pipe"));
        let ((child_stdin, stdin), (stdout, child_stdout), (stderr, child_stderr)) = (pipe()?, pipe()?, pipe()?);
        let has_users = request.run.shares_users.is_none();
        let config = &container.config;
        let mut steps: Vec<Step> = has_users.then_some(Step::BecomeRoot).into_iter().collect();
        steps.push(Step::NewSession);
        steps.push(Step::Streams {
            stdin: child_stdin.into(),
            stdout: child_stdout.into(),
            stderr: child_stderr.into(),
        });
        // Root inside may write to the engine's program if the container uses the user's own ids.
        let is_exposed = !has_users || !rustix::process::geteuid().is_root();
        let trampoline = is_exposed.then(trampoline).transpose().map_err(host_error(NO_TRAMPOLINE))?;
        steps.extend(trampoline.map(Step::Trampoline));
        let first_closed = if is_exposed { TRAMPOLINE_DESCRIPTOR + 1 } else { AFTER_STREAMS };
        steps.push(Step::CloseFrom(first_closed.unsigned_abs()));
        steps.extend(limits(config));
        steps.push(Step::WorkingDirectory(c_text(request.exec.workdir.as_str())?));
        let user = request.exec.user;
        let capabilities = if user.is_root() { config.capabilities } else { 0 };
        steps.push(Step::Privileges { capabilities, uid: user.uid, gid: user.gid });
        steps.push(Step::Filter(seccomp::program()));
        let groups = group_files(&request.run.group).map_err(host_error("cannot open the control group"))?;
        let kinds = kinds(has_users, config.network.mode != crate::config::NetworkMode::Host);
        let child = ChildPlan {
            groups,
            user_namespace: None,
            namespaces: Namespaces::Of { process, kinds },
            steps,
            program: program(config.env.as_slice(), request)?,
        };
        let recorded_in = request.run.group.is_empty().then(|| container.dir.execs());
        Ok(Some(Self { recorded_in, child, stdin, stdout, stderr }))
    }

    /// Starts the command. Blocks until the program is executed, or the process that should execute it was killed.
    pub(super) fn start(self, watched: &SpawnedPidfd, input: Option<Input>) -> Result<Outcome> {
        let Self { recorded_in, child, stdin, stdout, stderr } = self;
        match spawn_watched(&child, watched) {
            Ok(spawned) => {
                let pid = spawned.pid.as_raw_nonzero().get().unsigned_abs();
                let record = recorded_in.and_then(|dir| match ExecRecord::write(&dir, pid) {
                    Ok(record) => record,
                    Err(err) => {
                        tracing::warn!(%err, "a command runs without a record");
                        None
                    }
                });
                let started = StartedExec { record, spawned, stdin, stdout, stderr };
                ExecProcess::new(started, input).map(Outcome::Started)
            }
            Err(err) => match (err.at, err.errno) {
                (FailedAt::WorkingDirectory, Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(Outcome::NoDirectory),
                (FailedAt::Program, Errno::NOENT | Errno::NOTDIR) => Ok(Outcome::NoProgram(127)),
                (FailedAt::Program, _) => Ok(Outcome::NoProgram(126)),
                (FailedAt::Elsewhere | FailedAt::WorkingDirectory, errno) => Err(Error::Host {
                    what: format!("the command does not start: cannot {}", err.what),
                    source: errno.into(),
                }),
            },
        }
    }
}

fn kinds(users: bool, network: bool) -> libc::c_int {
    let always =
        libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP;
    always | if users { libc::CLONE_NEWUSER } else { 0 } | if network { libc::CLONE_NEWNET } else { 0 }
}

fn program(image_env: &[String], request: &ExecRequest<'_>) -> Result<Program> {
    let words = request.exec.command.clone().into_argv();
    let mut env: BTreeMap<&str, &str> = image_env.iter().filter_map(|it| it.split_once('=')).collect();
    env.extend(request.exec.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let path = env.get("PATH").copied().unwrap_or_default().to_owned();
    env.insert(MARK, request.mark);
    let env = env.into_iter().map(|(name, value)| c_text(&format!("{name}={value}"))).collect::<Result<_>>()?;
    let first = words.first().map_or("", String::as_str);
    let paths = if first.contains('/') {
        vec![c_text(first)?]
    } else {
        path.split(':').map(|dir| c_text(&format!("{dir}/{first}"))).collect::<Result<_>>()?
    };
    let argv = words.iter().map(|it| c_text(it)).collect::<Result<Vec<CString>>>()?;
    Ok(Program { paths, argv, env })
}
