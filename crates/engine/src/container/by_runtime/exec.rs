//! Runs a command in a container with a kernel of its own, with the runtime's program, whose standard streams are the
//! command's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use coracle_host::drain::{Drain, DrainOutcome, RunningProgram as _};
use coracle_host::process_marker::MARK;
use coracle_types::{Command, Error, Exec, ExecOutput, Exit, Result, random_hex};
use rustix::process::getrlimit;

use super::super::containers::StoredContainer;
use super::super::exec::without_program;
use super::super::host_error;
use super::super::plan::limits;
use super::calls;
use super::run_directory::RunDirectory;
use crate::engine::Engine;
use crate::oci::{BundleParts, ProcessRequest, RuntimeCalls, process};
use crate::oci_runtime::OciRuntime;

/// Files of one command, which are removed when this is dropped.
#[derive(Debug)]
struct CommandFiles {
    process: PathBuf,
    pid: PathBuf,
    log: PathBuf,
}

impl CommandFiles {
    fn new(place: &RunDirectory) -> Self {
        let mark = random_hex::<8>();
        let file = |kind| place.command_file(&mark, kind);
        Self { process: file("json"), pid: file("pid"), log: file("log") }
    }
}

impl Drop for CommandFiles {
    fn drop(&mut self) {
        for file in [&self.process, &self.pid, &self.log] {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Why the runtime could not start a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartFailure {
    NoDirectory,
    /// With the exit code that a shell has for it.
    NoProgram(u8),
    Other,
}

/// Runs a command until it ends or reaches a limit. The container must be running.
pub(in super::super) async fn exec(
    engine: &Arc<Engine>,
    container: &StoredContainer,
    runtime: OciRuntime,
    mut exec: Exec,
) -> Result<ExecOutput> {
    let begun = Instant::now();
    let files = CommandFiles::new(&RunDirectory::new(engine, &container.config.id));
    write_process(container, &exec, &files)?;
    let calls = calls(engine, container, runtime)?.with_log(files.log.clone());
    let mut program = calls.exec(&files.process, &files.pid, exec.stdin.take())?;
    let mut drain = Drain::new(&mut program, exec.keep_bytes, exec.live.take());
    let end = drain.until_end(&mut program, &exec.limits, &exec.cancel).await;
    let tree_ended = match end {
        DrainOutcome::Exited(_) => None,
        // The runtime can only kill the command's first process; those that it started may run on.
        _ => {
            drain.while_reading(end_process(&calls, &files)).await;
            program.end().await;
            Some(false)
        }
    };
    let (stdout, stderr) = drain.finish(&mut program).await;
    if let DrainOutcome::Exited(code) = end
        && code != 0
        && let Some(message) = calls.logged_error()
    {
        return match start_failure(&message) {
            StartFailure::NoDirectory => Err(Error::NoSuchPath(exec.workdir)),
            StartFailure::NoProgram(_) if matches!(exec.command, Command::Shell(_)) => Err(Error::NoShell),
            StartFailure::NoProgram(code) => Ok(without_program(&exec, code, begun.elapsed())),
            StartFailure::Other => {
                let excerpt = coracle_types::Excerpt::from_bytes(message.as_bytes());
                Err(Error::Engine { verb: "exec", exit: code, excerpt })
            }
        };
    }
    Ok(ExecOutput::plain(Exit::from(end), (stdout, stderr), tree_ended, begun.elapsed()))
}

/// Classifies a runtime's error message, since the exit code does not tell the reason.
fn start_failure(message: &str) -> StartFailure {
    let says = |words: &[&str]| words.iter().any(|it| message.contains(it));
    if says(&["working directory", "chdir"]) {
        StartFailure::NoDirectory
    } else if says(&["permission denied"]) {
        StartFailure::NoProgram(126)
    } else if says(&["not found", "no such file", "failed to load"]) {
        StartFailure::NoProgram(127)
    } else {
        StartFailure::Other
    }
}

fn write_process(container: &StoredContainer, exec: &Exec, files: &CommandFiles) -> Result<()> {
    let config = &container.config;
    let mut env: BTreeMap<&str, &str> = config.env.iter().filter_map(|it| it.split_once('=')).collect();
    env.extend(exec.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let mark = random_hex::<16>();
    env.insert(MARK, &mark);
    let env: Vec<_> = env.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let words = exec.command.clone().into_argv();
    let parts = BundleParts::new(limits(config).collect(), &files.process, |it| getrlimit(it).maximum);
    let request = ProcessRequest {
        words: &words,
        env: &env,
        workdir: exec.workdir.as_str(),
        user: exec.user,
        capabilities: if exec.user.is_root() { config.capabilities } else { 0 },
    };
    let text = serde_json::to_vec(&process(&request, &parts)).map_err(std::io::Error::from);
    let written = text.and_then(|it| private(&files.process, &it));
    written.map_err(host_error("cannot write the description of the command"))
}

/// Writes a file that only its owner may read: the environment may contain secrets.
fn private(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::File::options().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

async fn end_process(calls: &RuntimeCalls, files: &CommandFiles) {
    let pid = std::fs::read_to_string(&files.pid).ok().and_then(|it| it.trim().parse().ok());
    if let Some(pid) = pid
        && let Err(err) = calls.kill_process(pid).await
    {
        tracing::warn!(%err, "the command could not be ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of gVisor, from 2022 and 2024.
    #[test]
    fn a_command_that_cannot_start_is_distinguished_from_one_that_failed() {
        for (message, expected) in [
            (
                "executing processes for container: error finding executable \"nosuch\" in PATH []: no such file or directory",
                StartFailure::NoProgram(127),
            ),
            ("failed to load /etc/passwd: permission denied", StartFailure::NoProgram(126)),
            ("failed to find initial working directory \"/nosuch\": no such file", StartFailure::NoDirectory),
            ("connecting to control server: broken pipe", StartFailure::Other),
        ] {
            assert_eq!(start_failure(message), expected, "{message}");
        }
    }
}
