//! An engine with a container on it, and its own program.
#![expect(clippy::disallowed_methods, reason = "the engines' own programs are what is compared with")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use coracle_client::SocketAt;
use coracle_docker::{CliRuntime, Dialect};
use coracle_engine_program::EngineSettings;
use coracle_runtime::{ContainerRuntime, CreateSpec, GuestDelivery, NetworkAttachment, Policy, admit};
use coracle_types::{ContainerId, ContainerName, Handle, ImageId, ImageRef, ProcessId, random_hex};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::busybox::{self, IMAGE};
use crate::link::{self, Held, Transport};
use crate::memory::Memory;
use crate::tool::{Frontend, Tool};
use crate::{LABEL, cases, leftovers};

/// An engine to measure.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) version: String,
    maker: Maker,
    /// The container of all calls but the first ones.
    pub(crate) held: Container,
    socket: Arc<Held>,
    stream: Arc<Held>,
    /// The content to write.
    pub(crate) data: Vec<u8>,
    guided: Tool,
    plain: Tool,
    /// Containers of `guided`, for calls by socket and by stream.
    one_shot: [String; 2],
    /// A container that the engine's own program created and has not removed yet.
    made: Mutex<Option<Container>>,
    idle: Memory,
}

impl Engine {
    pub(crate) async fn open(name: &str, coracle: &Path) -> Self {
        let maker = Maker::new(name).await;
        let version = maker.runtime.info().await.unwrap().version;
        let held = maker.container().await;
        let socket = Arc::new(link::hold(&*maker.runtime, &held, Transport::Socket).await);
        let idle = Memory::of(held.pid());
        cases::prepare(&held);
        let stream = Arc::new(link::hold(&*maker.runtime, &held, Transport::Stream).await);
        let (guided, plain) = (Tool::new(coracle, name, true), Tool::new(coracle, name, false));
        let one_shot = [Transport::Socket, Transport::Stream].map(|it| guided.container(it));
        let (data, made) = (vec![0; 10 << 20], Mutex::default());
        Self { version, maker, held, socket, stream, data, guided, plain, one_shot, made, idle }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.maker.dialect.kind().as_str()
    }

    pub(crate) fn link(&self, transport: Transport) -> &Arc<Held> {
        match transport {
            Transport::Socket => &self.socket,
            Transport::Stream => &self.stream,
        }
    }

    /// A container that was just started.
    pub(crate) async fn container(&self) -> Container {
        self.maker.container().await
    }

    /// Opens a link to one.
    pub(crate) async fn hold(&self, container: &Container, transport: Transport) -> Held {
        link::hold(&*self.maker.runtime, container, transport).await
    }

    /// The duration of `coracle` with `true`.
    pub(crate) fn one_shot(&self, frontend: Frontend, transport: Transport) -> Duration {
        let [socket, stream] = &self.one_shot;
        self.guided.one_shot(frontend, if transport == Transport::Socket { socket } else { stream })
    }

    /// The tool that creates containers with a guest, or without one.
    pub(crate) fn tool(&self, guest: bool) -> &Tool {
        if guest { &self.guided } else { &self.plain }
    }

    /// Creates a container with the engine's own program, and returns the duration.
    pub(crate) fn create(&self) -> Duration {
        let mut command = Command::new(self.name());
        command.args(["run", "--detach", &ours(), IMAGE, "sleep", "1000000"]).stdin(Stdio::null());
        let begun = Instant::now();
        let output = command.output().unwrap();
        let took = begun.elapsed();
        ended_well(&output);
        let id = ContainerId::parse(String::from_utf8(output.stdout).unwrap().trim()).unwrap();
        let socket = SocketAt { dir: PathBuf::new(), pid1: None };
        let container = Container { id, socket, dialect: self.maker.dialect };
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(container);
        took
    }

    /// Removes the container of [`create`](Self::create), and returns the duration.
    pub(crate) fn destroy(&self) -> Duration {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut command = made.as_ref().expect("`create` comes first").removal();
        let begun = Instant::now();
        let output = command.output().unwrap();
        let took = begun.elapsed();
        ended_well(&output);
        took
    }

    /// Memory of a guest, in KiB: of one that did nothing, of one that did all that was measured, and the most that it
    /// had after a flood besides.
    pub(crate) async fn memory(&self) -> Value {
        let after = Memory::of(self.held.pid());
        let bytes = 100 << 20;
        self.socket.exec(&["head", "-c", &bytes.to_string(), "/dev/zero"]).await;
        let flooded = Memory::of(self.held.pid());
        let [idle, after, most] = [self.idle.now, after.now, flooded.most];
        json!({ "engine": self.name(), "idle": idle, "after": after, "most": most, "flood": bytes })
    }
}

/// The label of everything that this run creates, for the engine's own program.
fn ours() -> String {
    format!("--label={}={}", LABEL, std::process::id())
}

/// Creates containers with a guest.
#[derive(Debug)]
struct Maker {
    dialect: Dialect,
    runtime: Arc<dyn ContainerRuntime>,
    image: ImageId,
    /// The guest's program.
    program: PathBuf,
    dir: TempDir,
}

impl Maker {
    async fn new(name: &str) -> Self {
        let dialect = match name {
            "docker" => Dialect::Docker,
            "podman" => Dialect::Podman,
            _ => panic!("no engine `{name}`"),
        };
        let dir = tempfile::tempdir().unwrap();
        let runtime: Arc<dyn ContainerRuntime> = Arc::new(connect(dialect, &dir));
        let image = busybox::ensure(&*runtime).await.unwrap();
        let found = runtime.find_images(&[ImageRef::parse(IMAGE).unwrap()]).await.unwrap();
        let guest = coracle_context::guest::embedded(&found[0].arch).expect("`cargo xtask guest` was before the build");
        let program = guest.place(&dir.path().join("guest")).unwrap();
        Self { dialect, runtime, image, program, dir }
    }

    async fn container(&self) -> Container {
        let name = ContainerName::parse(format!("bench-{}-{}", std::process::id(), random_hex::<4>())).unwrap();
        let link = self.dir.path().join(name.as_str());
        std::fs::create_dir(&link).unwrap();
        let guest = GuestDelivery::Bound { program: self.program.clone(), link: link.clone() };
        let labels = [(LABEL.to_owned(), std::process::id().to_string())].into();
        let spec = CreateSpec { labels, ..CreateSpec::new(name, ImageRef::parse(IMAGE).unwrap()) };
        let admitted = admit(spec, &Policy::everything()).unwrap().with_guest(Some(guest));
        let placed = admitted.with_image(self.image.clone(), NetworkAttachment::EngineDefault);
        let id = self.runtime.create(&placed).await.unwrap();
        let mut it = Container { id, socket: SocketAt { dir: link, pid1: None }, dialect: self.dialect };
        self.runtime.start(&it.id).await.unwrap();
        let seen = self.runtime.inspect(&Handle::from(&it.id)).await.unwrap();
        it.socket.pid1 = seen.pid.and_then(ProcessId::from_pid);
        it
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        // The id of a container that was created during an interruption is unknown, also where no [`Engine`] is open yet.
        leftovers::remove_labelled(self.dialect.kind().as_str(), &format!("{}={}", LABEL, std::process::id()));
    }
}

/// Removed when it is dropped, also where a measurement fails.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) id: ContainerId,
    pub(crate) socket: SocketAt,
    dialect: Dialect,
}

impl Container {
    /// The output of a command.
    pub(crate) fn exec(&self, words: &[&str]) -> Vec<u8> {
        let output = self.command(&[], words).output().unwrap();
        ended_well(&output);
        output.stdout
    }

    /// A command that reads that.
    pub(crate) fn feed(&self, words: &[&str], stdin: &[u8]) {
        let mut child = self.command(&["--interactive"], words).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin).unwrap();
        ended_well(&child.wait_with_output().unwrap());
    }

    /// Runs so many of them side by side.
    pub(crate) fn exec_at_once(&self, words: &[&str], count: u32) {
        let children: Vec<_> = (0..count).map(|_| self.command(&[], words).spawn().unwrap()).collect();
        for child in children {
            ended_well(&child.wait_with_output().unwrap());
        }
    }

    /// PID 1 on this host.
    fn pid(&self) -> u32 {
        self.socket.pid1.as_ref().expect("the engine is on this host").pid
    }

    fn removal(&self) -> Command {
        let mut command = Command::new(self.dialect.kind().as_str());
        command.args(["rm", "--force"]).stdin(Stdio::null());
        if self.dialect == Dialect::Podman {
            command.arg("--time=0"); // Docker kills at once; Podman would send TERM and wait
        }
        command.arg(self.id.as_str());
        command
    }

    fn command(&self, options: &[&str], words: &[&str]) -> Command {
        let mut command = Command::new(self.dialect.kind().as_str());
        command.arg("exec").args(options).arg(self.id.as_str()).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // The measurement is valid even if the container cannot be removed.
        let _ = self.removal().output();
    }
}

/// The duration of a static program on the host.
pub(crate) fn spawn() -> Duration {
    let begun = Instant::now();
    let status = Command::new("/bin/busybox").arg("true").stdin(Stdio::null()).status().unwrap();
    assert!(status.success());
    begun.elapsed()
}

fn connect(dialect: Dialect, config: &TempDir) -> CliRuntime {
    let settings = EngineSettings {
        program: None,
        endpoint: None,
        config_dir: config.path().to_owned(),
        home: std::env::var_os("HOME").unwrap_or("/root".into()).into(),
        runtime_dir: std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        temp_dir: std::env::temp_dir(),
        api: coracle_engine_program::ApiUse::Auto,
        ssh_config: None,
        ssh_agent: None,
        logins: Default::default(),
    };
    CliRuntime::connect(dialect, &settings).unwrap()
}

pub(crate) fn ended_well(output: &Output) {
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}
