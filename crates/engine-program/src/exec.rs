//! A command through the engine's own exec, ended with its whole tree at a limit.

use std::time::{Duration, Instant};

use coracle_host::drain::{Drain, DrainOutcome};
use coracle_host::process::{self, Stdin};
use coracle_runtime::plain_exec::{END_TREE, IS_DIR};
use coracle_types::{ContainerId, ContainerPath, Error, Exec, ExecOutput, Exit, Ids, Result, random_hex};
use tokio::process::Child;

use crate::{EngineArgs, RunsCommands, deadline};

/// How often a command is searched for while its client still waits for it.
const ATTEMPTS: usize = 4;

/// The kernel takes no single argument above 128 KiB, and the engine's program gets the command as one.
const MAX_WORD: usize = 96 << 10;

pub async fn exec(runtime: &impl RunsCommands, id: &ContainerId, mut exec: Exec) -> Result<ExecOutput> {
    exec.check_without_guest(runtime.kind())?;
    let (mark, begun) = (random_hex::<16>(), Instant::now());
    let (words, env) = runtime.exec_words(id, &exec, &mark);
    if let Some(long) = words.0.iter().chain(env.iter().map(|it| &it.1)).find(|it| it.len() > MAX_WORD) {
        let source = std::io::Error::other(format!("{} bytes in one argument", long.len()));
        return Err(Error::Host { what: "the command or a variable is longer than 96 KiB".into(), source });
    }
    let stdin = exec.stdin.take().map_or(Stdin::Empty, Stdin::from);
    let mut child = process::spawn(&runtime.program().with_env(words, env), stdin)?;
    let mut drain = Drain::new(&mut child, exec.keep_bytes, exec.live.take());
    let end = drain.until_end(&mut child, &exec.limits, &exec.cancel).await;
    let tree_ended = match end {
        DrainOutcome::Exited(_) => None,
        _ => Some({
            let running = RunningExec { exec: &exec, mark: &mark, drain: &mut drain, child: &mut child };
            end_all(runtime, id, running).await
        }),
    };
    let (stdout, stderr) = drain.finish(&mut child).await;
    let output = ExecOutput::plain(end.into(), (stdout, stderr), tree_ended, begun.elapsed());
    judge(runtime, id, &exec, output).await
}

/// Both engines exit with codes that a command may have given too: 1 and 125 to 255 for a container that is missing or
/// stopped, 126 and 127 for what cannot be entered. So the code decides nothing; the container is inspected.
async fn judge(runtime: &impl RunsCommands, id: &ContainerId, exec: &Exec, output: ExecOutput) -> Result<ExecOutput> {
    let Exit::Code(code) = output.exit else { return Ok(output) };
    if code != 1 && code < 125 {
        return Ok(output);
    }
    let mut container = runtime.inspect(&id.into()).await?;
    if container.running() && code > 128 {
        // Docker reports the end of an exec before the end of its container.
        tokio::time::sleep(Duration::from_millis(200)).await;
        container = runtime.inspect(&id.into()).await?;
    }
    if !container.running() {
        return Err(Error::NotRunning {
            status: container.status,
            exit_code: container.exit_code,
            oom_killed: container.oom_killed,
            output: (output.stdout.total_bytes() > 0).then(|| Box::new(output)),
        });
    }
    if matches!(code, 126 | 127) {
        let words = is_dir(runtime, id, exec.user, &exec.workdir);
        match runtime.program().run("exec", words, deadline::READ).await?.exit {
            0 => {}
            1 => return Err(Error::NoSuchPath(exec.workdir.clone())),
            _ => return Err(Error::NoShell),
        }
    }
    Ok(output)
}

/// A command whose client still runs on the host.
struct RunningExec<'a> {
    exec: &'a Exec,
    mark: &'a str,
    drain: &'a mut Drain,
    child: &'a mut Child,
}

/// A command that was withdrawn before the engine started it has no process to end yet, and its client still waits for
/// it: as long as the client runs, the engine may still start it, so the search is repeated.
async fn end_all(runtime: &impl RunsCommands, id: &ContainerId, running: RunningExec<'_>) -> bool {
    let RunningExec { exec, mark, drain, child } = running;
    for _ in 0..ATTEMPTS {
        // Docker holds back the end of every exec while the output of one is not taken.
        let ending = end_tree(runtime, id, exec.user, mark, exec.limits.grace);
        let ended = drain.while_reading(ending).await;
        if !ended || drain.ends_soon(child).await {
            return ended;
        }
    }
    false
}

/// Ends the processes with the mark, as the user who owns them: root without `SYS_PTRACE` cannot read the environment
/// of another user's process, and that user can signal all of its own.
async fn end_tree(runtime: &impl RunsCommands, id: &ContainerId, user: Ids, mark: &str, grace: Duration) -> bool {
    let tenths = grace.as_millis().div_ceil(100);
    let words = runtime.constant_program(id, user, END_TREE).word(mark).word(tenths.to_string());
    let ended = runtime.program().run("exec", words, grace + Duration::from_secs(20)).await;
    match ended {
        Ok(it) if it.ok() => true,
        Ok(it) => {
            tracing::warn!(exit = it.exit, "some of the command's processes could not be ended");
            false
        }
        Err(err) => {
            tracing::warn!(%err, "the command's processes could not be ended");
            false
        }
    }
}

/// Asks, as that user, whether a directory is there.
pub fn is_dir(runtime: &impl RunsCommands, id: &ContainerId, user: Ids, path: &ContainerPath) -> EngineArgs {
    runtime.constant_program(id, user, IS_DIR).word(path.as_str())
}
