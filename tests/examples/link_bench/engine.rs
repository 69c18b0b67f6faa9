//! An engine with a container on it, and its own program.
#![expect(clippy::disallowed_methods, reason = "the engines' own programs are what is compared with")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use coracle_runtime::cli::{CliRuntime, Dialect, EngineSettings};
use coracle_runtime::{
    ContainerId, ContainerName, ContainerRuntime, CreateSpec, ImageId, ImageRef, NetworkOn, Policy, admit, random_hex,
};
use tempfile::TempDir;

use crate::busybox::{self, IMAGE};
use crate::cases;
use crate::link::{self, Held, Transport};

/// An engine, and what is measured on it.
#[derive(Debug)]
pub(crate) struct Engine {
    dialect: Dialect,
    pub(crate) version: String,
    runtime: Arc<dyn ContainerRuntime>,
    image: ImageId,
    /// The container of all calls but the first ones.
    pub(crate) held: Container,
    socket: Option<Arc<Held>>,
    stream: Option<Arc<Held>>,
    /// What is written.
    pub(crate) data: Vec<u8>,
    coracle: PathBuf,
    _config: TempDir,
}

impl Engine {
    pub(crate) async fn open(name: &str, coracle: &Path) -> Self {
        let dialect = match name {
            "docker" => Dialect::Docker,
            "podman" => Dialect::Podman,
            _ => panic!("no engine `{name}`"),
        };
        let config = tempfile::tempdir().unwrap();
        let runtime: Arc<dyn ContainerRuntime> = Arc::new(connect(dialect, &config));
        let version = runtime.info().await.unwrap().version;
        let image = busybox::ensure(&*runtime).await;
        let held = container(dialect, &*runtime, &image).await;
        cases::prepare(&held);
        let socket = link::hold(&held, Transport::Socket).await.map(Arc::new);
        let stream = link::hold(&held, Transport::Stream).await.map(Arc::new);
        let (data, coracle) = (vec![0; 10 << 20], coracle.to_owned());
        Self { dialect, version, runtime, image, held, socket, stream, data, coracle, _config: config }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.dialect.program()
    }

    pub(crate) fn link(&self, transport: Transport) -> Option<&Arc<Held>> {
        match transport {
            Transport::Socket => self.socket.as_ref(),
            Transport::Stream => self.stream.as_ref(),
        }
    }

    /// A container that was just started.
    pub(crate) async fn container(&self) -> Container {
        container(self.dialect, &*self.runtime, &self.image).await
    }

    /// How long a `coracle` with those words took.
    pub(crate) fn one_shot(&self, words: &[impl AsRef<OsStr>]) -> Duration {
        let begun = Instant::now();
        ended_well(&Command::new(&self.coracle).args(words).stdin(Stdio::null()).output().unwrap());
        begun.elapsed()
    }
}

/// Removed when it is dropped, also where a measurement fails.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) id: ContainerId,
    dialect: Dialect,
}

impl Container {
    /// What a command prints.
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

    /// So many of them side by side.
    pub(crate) fn exec_at_once(&self, words: &[&str], count: u32) {
        let children: Vec<_> = (0..count).map(|_| self.command(&[], words).spawn().unwrap()).collect();
        for child in children {
            ended_well(&child.wait_with_output().unwrap());
        }
    }

    fn command(&self, options: &[&str], words: &[&str]) -> Command {
        let mut command = Command::new(self.dialect.program());
        command.arg("exec").args(options).arg(self.id.as_str()).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let remove = ["rm", "--force", "--volumes", self.id.as_str()];
        // What was measured stands, even if the container stays behind.
        let _ = Command::new(self.dialect.program()).args(remove).output();
    }
}

/// How long the host takes to start a static program and see it end.
pub(crate) fn spawn() -> Duration {
    let begun = Instant::now();
    let status = Command::new("/bin/busybox").arg("true").stdin(Stdio::null()).status().unwrap();
    assert!(status.success());
    begun.elapsed()
}

async fn container(dialect: Dialect, runtime: &dyn ContainerRuntime, image: &ImageId) -> Container {
    let name = ContainerName::parse(format!("bench-{}-{}", std::process::id(), random_hex::<4>())).unwrap();
    let spec = CreateSpec::new(name, ImageRef::parse(IMAGE).unwrap());
    let placed = admit(spec, &Policy::everything()).unwrap().on(image.clone(), NetworkOn::EngineDefault);
    let it = Container { id: runtime.create(&placed).await.unwrap(), dialect };
    runtime.start(&it.id).await.unwrap();
    it
}

fn connect(dialect: Dialect, config: &TempDir) -> CliRuntime {
    let settings = EngineSettings {
        program: None,
        endpoint: None,
        config_dir: config.path().to_owned(),
        home: std::env::var_os("HOME").unwrap_or("/root".into()).into(),
        runtime_dir: std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        temp_dir: std::env::temp_dir(),
    };
    CliRuntime::connect(dialect, &settings).unwrap()
}

fn ended_well(output: &Output) {
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}
