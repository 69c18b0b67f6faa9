//! Commands in a fake container: from the table of replies, or as programs of the host.

use std::path::PathBuf;
use std::time::Duration;

use coracle_types::{Capture, Chunk, Command, ContainerId, Error, Exec, ExecOutput, Exit, LimitKind, Result, Stream};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::containers::FakeContainer;
use super::programs::Programs;
use super::{EngineState, FakeRuntime, programs};

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its exit status.
    pub exit: Exit,
    /// Its output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// How long it runs, silently, after its output. Limits and cancels of the command end it before.
    pub takes: Duration,
}

impl Reply {
    /// A command that ends at once.
    #[must_use]
    pub fn new(exit: Exit, stdout: &str, stderr: &str) -> Self {
        Self { exit, stdout: stdout.into(), stderr: stderr.into(), takes: Duration::ZERO }
    }

    /// The same after a delay.
    #[must_use]
    pub fn after(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }
}

/// A command that may begin: everything that has to be there is there.
struct PreparedExec {
    /// The working directory on the host.
    workdir: PathBuf,
    life: CancellationToken,
    /// Environment of the image.
    env: Vec<String>,
    reply: Option<Reply>,
    programs: Programs,
}

impl FakeRuntime {
    /// Answers a command from now on: the words of an argv joined with blanks, or the text of a script.
    pub fn reply(&self, command: &str, exit: Exit, stdout: &str, stderr: &str) {
        self.replies(command, [Reply::new(exit, stdout, stderr)]);
    }

    /// Answers a command with one reply after the other; the last one stays.
    pub fn replies(&self, command: &str, replies: impl IntoIterator<Item = Reply>) {
        self.with(|state| state.replies.insert(command.to_owned(), replies.into_iter().collect()));
    }

    /// The commands that were begun in a container, one a line (line breaks inside as `\n`), without user, work
    /// directory and environment. It can be read after the container is gone.
    #[must_use]
    pub fn transcript(&self, id: &ContainerId) -> String {
        let lines = self.with(|state| state.transcripts.get(id).cloned().unwrap_or_default());
        lines.iter().map(|it| it.replace('\n', "\\n") + "\n").collect()
    }

    pub(super) async fn run(&self, id: &ContainerId, mut exec: Exec) -> Result<ExecOutput> {
        let text = text(&exec.command);
        let PreparedExec { workdir, life, env, reply, programs } = self.with(|state| state.begin(id, &exec, &text))?;
        let output = match reply {
            Some(reply) => answer(reply, &mut exec, &life).await,
            None if programs != Programs::None => programs::run(id, exec, workdir, &env, &life).await?,
            None => answer(without_programs(&text), &mut exec, &life).await,
        };
        self.unless_ended(id, &life, output)
    }

    /// A command that was ended with its container is no result.
    fn unless_ended(&self, id: &ContainerId, life: &CancellationToken, output: ExecOutput) -> Result<ExecOutput> {
        if !life.is_cancelled() || output.exit != Exit::Cancelled {
            return Ok(output);
        }
        let mut failure =
            self.with(|state| state.machine(id).map(FakeContainer::not_running)).unwrap_or_else(|gone| gone);
        if let Error::NotRunning { output: partial, .. } = &mut failure {
            *partial = Some(Box::new(output));
        }
        Err(failure)
    }
}

impl EngineState {
    fn begin(&mut self, id: &ContainerId, exec: &Exec, text: &str) -> Result<PreparedExec> {
        let machine = self.machine(id)?;
        if !machine.seen.running() {
            return Err(machine.not_running());
        }
        if !machine.files.has_shell() {
            return Err(Error::NoShell);
        }
        let workdir = machine.files.workdir(&exec.workdir);
        let workdir = workdir.ok_or_else(|| Error::NoSuchPath(exec.workdir.clone()))?;
        let (life, env) = (machine.life.clone(), machine.seen.env.clone());
        self.transcripts.entry(id.clone()).or_default().push(text.to_owned());
        Ok(PreparedExec { workdir, life, env, reply: self.next_reply(text), programs: self.programs })
    }

    pub(super) fn next_reply(&mut self, text: &str) -> Option<Reply> {
        let replies = self.replies.get_mut(text)?;
        if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() }
    }
}

pub(super) fn text(command: &Command) -> String {
    match command {
        Command::Argv(words) => words.join(" "),
        Command::Shell(script) => script.clone(),
    }
}

/// The reply to a command without an entry. Callers use `true` to check whether commands run at all.
pub(super) fn without_programs(text: &str) -> Reply {
    if text == "true" {
        return Reply::new(Exit::Code(0), "", "");
    }
    let sentence = format!("the fake engine starts no programs and has no reply for `{text}`\n");
    Reply::new(Exit::Code(127), "", &sentence)
}

/// Plays a reply: prints, then runs for a while, in the limits of the command.
async fn answer(reply: Reply, exec: &mut Exec, life: &CancellationToken) -> ExecOutput {
    let begun = Instant::now();
    let stdout = print(Stream::Stdout, reply.stdout, exec).await;
    let stderr = print(Stream::Stderr, reply.stderr, exec).await;
    exec.live = None;
    let (exit, tree_ended) = match end_early(reply.takes, exec, life).await {
        Some(early) => (early, Some(true)),
        None => (reply.exit, (!matches!(reply.exit, Exit::Code(_))).then_some(true)),
    };
    ExecOutput::plain(exit, (stdout, stderr), tree_ended, begun.elapsed())
}

async fn print(stream: Stream, bytes: Vec<u8>, exec: &Exec) -> Capture {
    let mut capture = Capture::new(exec.keep_bytes);
    capture.push(&bytes);
    if let Some(live) = exec.live.as_ref().filter(|_| !bytes.is_empty()) {
        // A closed receiver is ignored.
        let _ = live.send(Chunk { stream, bytes, offset: 0 }).await;
    }
    capture
}

/// How a silent command of that duration is ended early, if it is.
async fn end_early(takes: Duration, exec: &Exec, life: &CancellationToken) -> Option<Exit> {
    let limits = [(exec.limits.total, LimitKind::Total), (exec.limits.silence, LimitKind::Silence)];
    let within = |(limit, kind): (Option<Duration>, LimitKind)| Some((limit.filter(|it| *it < takes)?, kind));
    let first = limits.into_iter().filter_map(within).min_by_key(|(limit, _)| *limit);
    tokio::select! {
        biased;
        () = exec.cancel.cancelled() => Some(Exit::Cancelled),
        () = life.cancelled() => Some(Exit::Cancelled),
        () = sleep(first.map_or(takes, |(limit, _)| limit)) => first.map(|(_, kind)| Exit::TimedOut(kind)),
    }
}

#[cfg(test)]
mod tests {
    use coracle_types::Capability;

    use super::super::trials::{running, sh};
    use super::*;
    use crate::ContainerRuntime;

    async fn ran(fake: &FakeRuntime, id: &ContainerId, script: &str) -> (Exit, String, String) {
        let it = fake.exec(id, sh(script)).await.unwrap();
        (it.exit, it.stdout.text(), it.stderr.text())
    }

    #[tokio::test]
    async fn commands_are_answered_from_the_table_and_noted() {
        let (fake, id) = running().await;
        fake.reply("git status", Exit::Code(128), "out", "err");
        assert_eq!(ran(&fake, &id, "git status").await, (Exit::Code(128), "out".into(), "err".into()));
        assert_eq!(ran(&fake, &id, "true").await.0, Exit::Code(0));
        let (exit, _, stderr) = ran(&fake, &id, "a\nb").await;
        assert_eq!(exit, Exit::Code(127));
        assert!(stderr.contains("starts no programs"), "{stderr}");
        fake.remove(&id).await.unwrap();
        assert_eq!(fake.transcript(&id), "git status\ntrue\na\\nb\n");
    }

    #[tokio::test]
    async fn a_command_that_needs_a_guest_is_refused_and_not_begun() {
        let (fake, id) = running().await;
        let refused = fake.exec(&id, Exec { bare: true, ..sh("true") }).await;
        assert!(matches!(refused, Err(Error::Unsupported { capability: Capability::Guest, .. })), "{refused:?}");
        assert_eq!(fake.transcript(&id), "");
    }

    #[tokio::test]
    async fn several_replies_come_in_turn_and_the_last_stays() {
        let (fake, id) = running().await;
        fake.replies("check", [1, 1, 0].map(|code| Reply::new(Exit::Code(code), "", "")));
        let mut codes = Vec::new();
        for _ in 0..4 {
            codes.push(ran(&fake, &id, "check").await.0);
        }
        assert_eq!(codes, [1, 1, 0, 0].map(Exit::Code));
    }
}
