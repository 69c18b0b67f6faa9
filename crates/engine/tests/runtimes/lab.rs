//! An engine of its own with a runtime, an image of busybox and the guest.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coracle_client::{LinkSettings, SocketAt};
use coracle_engine::{EmbeddedRuntime, EngineOptions, OciRuntime, RegistryOptions};
use coracle_host::find_program::find_program;
use coracle_runtime::{
    ContainerRuntime as _, CreateSpec, ExecTarget, GuestDelivery, ImageImport, ImageStore as _, Limits,
    NetworkAttachment, Policy, admit,
};
use coracle_types::{
    ByteSize, Command, ContainerId, ContainerName, ContainerPath, Error, Exec, Ids, ImageId, ImageRef, random_hex,
};
use tempfile::TempDir;

const APPLETS: &str = "sh cat echo id ps grep sleep true ip";

/// The limit of each container's memory.
pub(crate) const MEMORY_MIB: u64 = 300;

/// A guest answers soon after its start; with gVisor on a busy machine later.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Lab {
    pub(crate) runtime: EmbeddedRuntime,
    pub(crate) image: ImageId,
    guest: PathBuf,
    dir: TempDir,
}

/// A container that runs.
pub(crate) struct LabContainer {
    pub(crate) id: ContainerId,
    pub(crate) guest: ExecTarget,
}

pub(crate) fn sh(script: &str) -> Exec {
    Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root())
}

pub(crate) fn argv(words: &[&str]) -> Exec {
    let words = words.iter().copied().map(str::to_owned).collect();
    Exec::new(Command::Argv(words), Ids::ROOT, ContainerPath::root())
}

/// An archive of plain files.
pub(crate) fn tar(files: &[(&str, &str)]) -> File {
    build(|tar| {
        for (name, text) in files {
            append(tar, name, 0o644, text.as_bytes());
        }
    })
}

fn append(tar: &mut tar::Builder<&mut File>, name: &str, mode: u32, bytes: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes.len() as u64);
    tar.append_data(&mut header, name, bytes).unwrap();
}

fn build(fill: impl FnOnce(&mut tar::Builder<&mut File>)) -> File {
    let mut file = tempfile::tempfile().unwrap();
    let mut builder = tar::Builder::new(&mut file);
    fill(&mut builder);
    builder.finish().unwrap();
    drop(builder);
    file.rewind().unwrap();
    file
}

fn busybox() -> File {
    let program = std::fs::read(coracle_skips::busybox()).unwrap();
    build(|tar| {
        append(tar, "bin/busybox", 0o755, &program);
        for applet in APPLETS.split(' ') {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_mode(0o777);
            tar.append_link(&mut header, format!("bin/{applet}"), "busybox").unwrap();
        }
    })
}

/// The guest as `cargo xtask guest` leaves it.
fn guest(dir: &Path) -> Option<PathBuf> {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest");
    let packed = ["", ".fast"].iter().map(|kind| built.join(format!("coracle-guest-{arch}{kind}.gz")));
    let packed = packed.filter_map(|it| File::open(it).ok()).next()?;
    let mut program = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut program).unwrap();
    let path = dir.join("guest");
    File::create(&path).unwrap().write_all(&program).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Some(path)
}

impl Lab {
    /// `None` without root, the runtime or a guest.
    pub(crate) async fn new(runtime: impl Into<Option<OciRuntime>>) -> Option<Self> {
        let runtime = runtime.into();
        if !rustix::process::geteuid().is_root() {
            coracle_skips::skip(coracle_skips::NEEDS_ROOT);
            return None;
        }
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let guest = guest(dir.path());
        let has_program = runtime.is_none_or(|it| find_program(it.program()).is_ok());
        let Some(guest) = guest.filter(|_| has_program) else {
            coracle_skips::skip(coracle_skips::NEEDS_ENGINE);
            return None;
        };
        let options = EngineOptions {
            data_dir: dir.path().join("data"),
            guest: Some(guest.clone()),
            home: dir.path().to_owned(),
            registries: RegistryOptions::default(),
        };
        let runtime = EmbeddedRuntime::open_with_runtime(options, runtime).unwrap();
        let import = ImageImport {
            tar: busybox(),
            tag: ImageRef::parse("localhost/runtimes:1").unwrap(),
            env: vec![("PATH".into(), "/bin".into())],
            labels: Vec::new(),
        };
        let image = runtime.import_image(import).await.unwrap().id;
        Some(Self { image, runtime, guest, dir })
    }

    pub(crate) async fn run(&self, network: NetworkAttachment) -> Option<LabContainer> {
        self.run_image(&self.image, network).await
    }

    /// A container that is not started, with a guest or without.
    pub(crate) async fn create(&self, with_guest: bool, network: NetworkAttachment) -> ContainerId {
        let link = self.dir.path().join(format!("link-{}", random_hex::<4>()));
        std::fs::create_dir(&link).unwrap();
        let name = ContainerName::parse("created").unwrap();
        let spec = CreateSpec::new(name, ImageRef::parse("localhost/runtimes:1").unwrap());
        let guest = with_guest.then(|| GuestDelivery::Bound { program: self.guest.clone(), link });
        let placed = admit(spec, &Policy::everything()).unwrap().with_guest(guest);
        self.runtime.create(&placed.with_image(self.image.clone(), network)).await.unwrap()
    }

    /// `None` where the runtime cannot work with this machine's control groups.
    pub(crate) async fn run_image(&self, image: &ImageId, network: NetworkAttachment) -> Option<LabContainer> {
        let link = self.dir.path().join(format!("link-{}", random_hex::<4>()));
        std::fs::create_dir(&link).unwrap();
        let name = ContainerName::parse("lab").unwrap();
        let limits = Limits { memory: Some(ByteSize::mib(MEMORY_MIB)), pids: Some(100), ..Limits::default() };
        let spec = CreateSpec { limits, ..CreateSpec::new(name, ImageRef::parse("localhost/runtimes:1").unwrap()) };
        let guest = GuestDelivery::Bound { program: self.guest.clone(), link: link.clone() };
        let placed = admit(spec, &Policy::everything()).unwrap().with_guest(Some(guest));
        let id = self.runtime.create(&placed.with_image(image.clone(), network)).await.unwrap();
        match self.runtime.start(&id).await {
            Err(Error::Engine { excerpt, .. }) if excerpt.to_string().contains("hybrid mode not supported") => {
                self.check_nothing_left(&id);
                self.runtime.remove(&id).await.unwrap();
                coracle_skips::skip("crun refuses control groups of both versions");
                return None;
            }
            started => started.unwrap(),
        }
        let guest = self.guest_of(&id, SocketAt { dir: link, pid1: None }).await;
        Some(LabContainer { id, guest })
    }

    async fn guest_of(&self, id: &ContainerId, socket: SocketAt) -> ExecTarget {
        let begun = Instant::now();
        loop {
            let link = self.runtime.link(id, Some(socket.clone()), LinkSettings::default()).await.unwrap();
            let opened = link.open().await;
            if opened.is_ok() {
                return ExecTarget::Guest(link);
            }
            assert!(begun.elapsed() < PATIENCE, "no guest answers: {opened:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What a command without the guest prints.
    pub(crate) async fn plain(&self, id: &ContainerId, exec: Exec) -> String {
        self.runtime.exec(id, exec).await.unwrap().stdout.text()
    }

    /// What a start leaves that is killed before the runtime lets the program go.
    pub(crate) fn mark_as_starting(&self, id: &ContainerId) {
        let container = self.dir.path().join("data/containers").join(id.as_str());
        assert!(!container.join("starting").exists());
        std::fs::write(container.join("starting"), "").unwrap();
    }

    /// Neither mounts nor a bundle of a container that does not run.
    pub(crate) fn check_nothing_left(&self, id: &ContainerId) {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let left: Vec<_> = mounts.lines().filter(|it| it.contains(id.as_str())).collect();
        assert!(left.is_empty(), "{left:?}");
        let run = std::fs::read_dir("/run").unwrap().flatten().filter(|it| it.path().join(id.as_str()).exists());
        assert_eq!(run.count(), 0);
    }
}
