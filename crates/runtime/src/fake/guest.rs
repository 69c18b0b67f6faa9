//! A guest in this process: the real supervisor on a machine that is played.
//!
//! Everything above the start of a process is the code that runs in containers: frames, jobs, stored output, limits,
//! waits. What a process is, the fake decides: a reply of its table, or a program of the host.

use std::collections::BTreeMap;
use std::io::{self, Cursor};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{Dial, GuestStream, Liveness, Transport};
use coracle_guest::machine::{
    Exit as Ended, Ids as GuestIds, NewUser, Process, ProcessBackend, SpawnError, SpawnSpec, TreeId,
};
use coracle_guest::{Supervisor, serve};
use coracle_protocol::{EnsureUser, ErrorCode, RpcError, UserInfo, UserSpec};
use coracle_types::{Command, ContainerId, ContainerPath, Error, Exit, Ids, Result};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::files::ContainerFiles;
use super::programs::{ProgramContext, Programs};
use super::{EngineState, FakeRuntime, Reply, programs};

/// Bytes under way on a connection in memory.
const PIPE: usize = 1 << 20;

/// A container as its guest sees it.
#[derive(Debug)]
pub(super) struct FakeGuest {
    /// Not held: the engine is dropped with its last handle, and its containers with it.
    state: Weak<Mutex<EngineState>>,
    id: ContainerId,
    files: Arc<ContainerFiles>,
    env: Vec<String>,
    programs: Programs,
    /// The image has a shell.
    had_shell: bool,
    running: Mutex<BTreeMap<TreeId, CancellationToken>>,
    pids: std::sync::atomic::AtomicU32,
}

impl FakeGuest {
    /// The guest of a container that was just started.
    pub(super) fn supervisor(
        state: Weak<Mutex<EngineState>>,
        (id, files): (ContainerId, Arc<ContainerFiles>),
        (env, programs): (Vec<String>, Programs),
    ) -> Arc<Supervisor> {
        files.forget_memory();
        let spill = std::env::temp_dir();
        let (had_shell, running, pids) = (files.has_shell(), Mutex::default(), 2.into());
        Supervisor::new(Arc::new(Self { state, id, files, env, programs, had_shell, running, pids }), &spill)
    }

    /// The reply in the table, if there is one, and a line in the transcript.
    fn reply(&self, text: &str) -> Option<Reply> {
        let state = self.state.upgrade()?;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.transcripts.entry(self.id.clone()).or_default().push(text.to_owned());
        let programs = self.programs;
        state.next_reply(text).or_else(|| (programs == Programs::None).then(|| super::exec::without_programs(text)))
    }

    fn plays(&self, mark: TreeId) -> CancellationToken {
        let token = CancellationToken::new();
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(mark, token.clone());
        token
    }

    fn mark(&self, mark: TreeId) -> String {
        format!("{}-g{}.", self.id.short(), mark.0)
    }

    fn play(&self, reply: Reply, plan: &SpawnSpec) -> Process {
        let token = self.plays(plan.mark);
        let (ended_sender, exit) = oneshot::channel();
        tokio::spawn(async move {
            let ended = tokio::select! {
                () = tokio::time::sleep(reply.takes) => match reply.exit {
                    Exit::Code(code) => Ended::Code(code),
                    _ => Ended::Signal(15),
                },
                () = token.cancelled() => Ended::Signal(15),
            };
            token.cancel();
            let _ = ended_sender.send(ended);
        });
        Process {
            pid: self.pid(),
            root: true,
            stdin: plan.stdin.then(|| Box::new(tokio::io::sink()) as _),
            stdout: Box::new(Cursor::new(reply.stdout)),
            stderr: Some(Box::new(Cursor::new(reply.stderr))),
            terminal: None,
            exit,
        }
    }

    /// The user of a program, where it differs from the test's own.
    fn user_of(&self, plan: &SpawnSpec) -> Result<Option<Ids>, RpcError> {
        if self.programs != Programs::AsUser {
            return Ok(None);
        }
        let GuestIds { uid, gid, .. } = self.ids(&plan.user)?;
        Ok(Some(Ids { uid, gid }).filter(|it| !it.is_root()))
    }

    fn pid(&self) -> u32 {
        self.pids.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    fn run(&self, command: Command, plan: &SpawnSpec, workdir: PathBuf) -> Result<Process, SpawnError> {
        let user = self.user_of(plan).map_err(SpawnError::Fault)?;
        let mark = self.mark(plan.mark);
        let context = ProgramContext { workdir, user, image_env: &self.env, mark: &mark };
        let mut child = programs::start(command, plan, context)
            .map_err(|err| SpawnError::Fault(RpcError::new(ErrorCode::CannotStart, err.to_string())))?;
        let (ended_sender, exit) = oneshot::channel();
        let pid = child.id().unwrap_or_else(|| self.pid());
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        tokio::spawn(async move {
            let ended = child.wait().await.map(|status| {
                use std::os::unix::process::ExitStatusExt;
                let code = status.code().and_then(|code| u8::try_from(code).ok()).map(Ended::Code);
                code.or(status.signal().map(Ended::Signal)).unwrap_or(Ended::Signal(9))
            });
            let _ = ended.map(|ended| ended_sender.send(ended));
        });
        let empty = || tokio::io::empty().take(0);
        Ok(Process {
            pid,
            root: true,
            stdin: stdin.filter(|_| plan.stdin).map(|it| Box::new(it) as _),
            stdout: stdout.map_or_else(|| Box::new(empty()) as _, |it| Box::new(it) as _),
            stderr: stderr.map(|it| Box::new(it) as _),
            terminal: None,
            exit,
        })
    }
}

#[async_trait]
impl ProcessBackend for FakeGuest {
    async fn start(&self, plan: SpawnSpec) -> Result<Process, SpawnError> {
        if plan.secret.is_some() {
            let fault = RpcError::new(ErrorCode::Invalid, "a played guest gives no secret to programs of this host");
            return Err(SpawnError::Fault(fault));
        }
        let words: Vec<String> = plan.argv.iter().map(|it| String::from_utf8_lossy(it).into_owned()).collect();
        let fault = |code, message: String| SpawnError::Fault(RpcError::new(code, message));
        if self.had_shell && !self.files.has_shell() {
            return Err(fault(ErrorCode::FilesRemoved, "`/bin/sh` was there and is gone".into()));
        }
        if plan.shell && !self.files.has_shell() {
            return Err(fault(ErrorCode::NoShell, "there is no `/bin/sh`".into()));
        }
        let workdir = ContainerPath::parse(&plan.cwd).ok().and_then(|it| self.files.workdir(&it));
        let missing = || fault(ErrorCode::NoDirectory, format!("no directory `{}`", plan.cwd));
        let workdir = workdir.ok_or_else(missing)?;
        let command = if plan.shell { Command::Shell(words.concat()) } else { Command::Argv(words) };
        match self.reply(&super::exec::text(&command)) {
            Some(reply) => Ok(self.play(reply, &plan)),
            None => self.run(command, &plan, workdir),
        }
    }

    async fn end(&self, mark: TreeId, grace: Duration) -> bool {
        if let Some(token) = self.running.lock().unwrap_or_else(PoisonError::into_inner).get(&mark) {
            token.cancel();
            return true;
        }
        programs::end_marked(&self.mark(mark), grace).await
    }

    async fn count(&self, mark: TreeId) -> u32 {
        if self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&mark).is_some() {
            return 0;
        }
        u32::try_from(programs::marked_at_rest(&self.mark(mark)).await.len()).unwrap_or(u32::MAX)
    }

    fn add_user(&self, _: NewUser<'_>) -> Result<(), RpcError> {
        Ok(())
    }

    async fn ensure_user(&self, request: EnsureUser) -> Result<UserInfo, RpcError> {
        let invalid = |_| RpcError::new(ErrorCode::Invalid, "no path");
        let (name, home) = if request.uid == 0 { ("root", "/root") } else { ("agent", "/home/agent") };
        for path in [home, &request.workdir] {
            let path = ContainerPath::parse(path).map_err(invalid)?;
            if self.files.workdir(&path).is_none() {
                let made = std::fs::create_dir_all(self.files.root().join(path.as_str().trim_start_matches('/')));
                made.map_err(|err| RpcError::new(ErrorCode::Io, format!("cannot make `{path}`: {err}")))?;
            }
        }
        let shell = "/bin/sh".to_owned();
        let EnsureUser { uid, gid, .. } = request;
        let workdir = self.files.root().join(request.workdir.trim_start_matches('/'));
        let there = workdir.symlink_metadata().ok().filter(std::fs::Metadata::is_dir);
        let another = there.as_ref().is_some_and(|it| ![0, uid].contains(&it.uid()));
        if there.is_some() && !another {
            // Without the right to change the owner, commands run as the user of the test.
            let _ = std::os::unix::fs::lchown(workdir, Some(uid), Some(gid));
        }
        let writable =
            !another || there.is_some_and(|it| it.mode() & 0o002 != 0) || !rustix::process::geteuid().is_root();
        Ok(UserInfo { name: name.into(), home: home.into(), shell, uid, gid, readable: true, writable })
    }

    fn oom_kills(&self) -> u64 {
        0
    }

    fn root(&self) -> &Path {
        self.files.root()
    }

    fn ids(&self, who: &UserSpec) -> Result<GuestIds, RpcError> {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        match who {
            // Without the right to be another user, each of them is the user of the test.
            UserSpec::Ids { .. } if !uid.is_root() => {
                Ok(GuestIds { uid: uid.as_raw(), gid: gid.as_raw(), groups: Vec::new() })
            }
            UserSpec::Ids { uid, gid } => Ok(GuestIds { uid: *uid, gid: gid.unwrap_or(*uid), groups: Vec::new() }),
            UserSpec::Name(name) if name == "root" => Ok(GuestIds { uid: 0, gid: 0, groups: Vec::new() }),
            UserSpec::Name(name) => Err(RpcError::new(ErrorCode::NoUser, format!("no user `{name}`"))),
        }
    }
}

/// Connects to the guest of a container, for as long as that runs.
#[derive(Debug)]
pub(super) struct FakeDial {
    pub(super) fake: FakeRuntime,
    pub(super) id: ContainerId,
}

#[async_trait]
impl Dial for FakeDial {
    async fn dial(&self) -> Result<GuestStream> {
        let (guest, life, silent) = self.fake.with(|state| {
            let machine = state.machine(&self.id)?;
            let guest = machine.guest.clone().filter(|_| machine.seen.pid.is_some());
            let none = || Error::GuestFailed { reason: "it was made without a guest".into() };
            match guest {
                Some(guest) => Ok((guest, machine.life.clone(), machine.silent)),
                None if machine.seen.running() => Err(none()),
                None => Err(machine.not_running()),
            }
        })?;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let (from, to) = tokio::io::split(theirs);
        let alive = life.clone();
        tokio::spawn(async move {
            let serving = async {
                if silent {
                    // Held, so that a waiting caller gets no exit status.
                    std::future::pending::<()>().await;
                }
                serve(guest, from, to).await
            };
            // In this order: a request to one that just ended gets no answer.
            tokio::select! {
                biased;
                () = life.cancelled() => {}
                _ = serving => {}
            }
        });
        let (reader, writer) = tokio::io::split(ours);
        let lives = alive.clone();
        let liveness: Option<Liveness> = Some(Box::new(move || !lives.is_cancelled()));
        Ok(GuestStream {
            liveness,
            ..GuestStream::plain(reader, ClosableWriter { writer, alive }, Transport::InProcess)
        })
    }
}

/// A way to a guest that takes no byte any more from the moment the guest ends, as a kernel does it.
#[derive(Debug)]
struct ClosableWriter<W> {
    writer: W,
    alive: CancellationToken,
}

impl<W: AsyncWrite + Unpin> AsyncWrite for ClosableWriter<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.alive.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.writer).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(cx)
    }
}
