//! Runs a program on the host like a command in a container: with limits, and ended with everything that it started.
//!
//! There is no other isolation: the program may use the host's files and network.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use coracle_types::{Chunk, ExecLimits, ExecOutput, Exit, Input, Result, random_hex};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::drain::Drain;
use super::process::{Invocation, Stdin, spawn};
use super::process_marker::{MARK, end_marked, marked, marked_at_rest, signal};

/// A program and how it is run.
#[derive(Debug)]
pub struct HostProgram {
    /// The program.
    pub invocation: Invocation,
    /// Its input; none is an end of file at once.
    pub stdin: Option<Input>,
    /// Limits of time and output.
    pub limits: ExecLimits,
    /// Captured bytes of each stream: half from its start, half from its end.
    pub keep_bytes: usize,
    /// Ends it when fired.
    pub cancel: CancellationToken,
    /// Receives output while it is printed.
    pub live: Option<mpsc::Sender<Chunk>>,
}

/// Time between TERM and KILL for leftover processes.
const LEFTOVER_GRACE: Duration = Duration::from_millis(100);

impl HostProgram {
    /// Runs it to its end. No process of its tree remains; dropping the future kills the tree.
    ///
    /// # Errors
    /// [`Error::Spawn`](coracle_types::Error::Spawn) if it cannot be started.
    pub async fn run(mut self) -> Result<ExecOutput> {
        let (begun, tree) = (Instant::now(), MarkedTree(random_hex::<16>()));
        self.invocation.env.insert(MARK.into(), tree.0.clone().into());
        let mut child = spawn(&self.invocation, self.stdin.take().map_or(Stdin::Empty, Stdin::from))?;
        let mut drain = Drain::new(&mut child, self.keep_bytes, self.live.take());
        let exit = Exit::from(drain.until_end(&mut child, &self.limits, &self.cancel).await);
        let by_itself = matches!(exit, Exit::Code(_));
        let grace = if by_itself { LEFTOVER_GRACE } else { self.limits.grace };
        let left = u32::try_from(marked_at_rest(&tree.0).await.len()).unwrap_or(u32::MAX);
        signal_group(&child, Signal::TERM);
        // A program that waits for a reader of its output could not end.
        let ended = drain.while_reading(end_marked(&tree.0, grace)).await;
        signal_group(&child, Signal::KILL);
        let (stdout, stderr) = drain.finish(&mut child).await;
        let tree_ended = (!by_itself).then_some(ended);
        let output = ExecOutput::plain(exit, (stdout, stderr), tree_ended, begun.elapsed());
        let status = child.try_wait().ok().flatten().filter(|_| by_itself);
        let left_running = if by_itself { left } else { 0 };
        Ok(ExecOutput { signal: status.and_then(|it| it.signal()), left_running, ..output })
    }
}

/// Signals the group. Its id is the leader's pid, which is valid only until the leader is reaped.
fn signal_group(child: &Child, signal: Signal) {
    if let Some(pid) = child.id().and_then(|it| Pid::from_raw(it.cast_signed())) {
        let _ = kill_process_group(pid, signal);
    }
}

/// All processes with a mark; dropping it kills them.
struct MarkedTree(String);

impl Drop for MarkedTree {
    fn drop(&mut self) {
        signal(&marked(&self.0), Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use coracle_types::LimitKind;

    use super::*;

    fn sh(script: &str) -> HostProgram {
        HostProgram {
            invocation: Invocation::new("/bin/sh", ["-c", script]),
            stdin: None,
            limits: ExecLimits::default(),
            keep_bytes: 1000,
            cancel: CancellationToken::new(),
            live: None,
        }
    }

    fn within(ms: u64, program: HostProgram) -> HostProgram {
        let grace = Duration::from_millis(200);
        HostProgram { limits: ExecLimits { total: Some(Duration::from_millis(ms)), silence: None, grace }, ..program }
    }

    /// Whether a process whose pid a script printed still runs.
    fn is_there(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|it| !it.1.starts_with('Z'))
    }

    #[tokio::test]
    async fn an_exit_and_a_signal_are_reported_with_the_output() {
        let it = sh("cat; echo b >&2; exit 3");
        let it = HostProgram { stdin: Some(Input::Bytes(b"a".to_vec())), ..it }.run().await.unwrap();
        assert_eq!((it.exit, it.signal), (Exit::Code(3), None));
        assert_eq!((it.stdout.text().as_str(), it.stderr.text().as_str()), ("a", "b\n"));
        let it = sh("kill -KILL $$").run().await.unwrap();
        assert_eq!((it.exit, it.signal), (Exit::Code(137), Some(9)));
    }

    #[tokio::test]
    async fn at_a_limit_its_process_tree_is_ended_and_its_output_returned() {
        let begun = Instant::now();
        let script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & while :; do sleep 1; done";
        let it = within(500, sh(script)).run().await.unwrap();
        assert_eq!((it.exit, it.tree_ended), (Exit::TimedOut(LimitKind::Total), Some(true)));
        assert!(!is_there(&it.stdout.text()), "{}", it.stdout.text());
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn background_processes_are_ended() {
        let it = sh("setsid sleep 600 >/dev/null 2>&1 & echo $!").run().await.unwrap();
        assert_eq!((it.exit, it.left_running), (Exit::Code(0), 1));
        assert!(!is_there(&it.stdout.text()));
    }

    #[tokio::test]
    async fn a_dropped_program_is_killed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!("sleep 600 & echo $! >{}; wait", file.path().display());
        let pid = || std::fs::read_to_string(file.path()).unwrap();
        let waiting = async {
            while pid().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            _ = sh(&script).run() => panic!("it ended"),
            () = waiting => {}
        }
        while is_there(&pid()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
