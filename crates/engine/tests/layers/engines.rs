//! Docker, BuildKit and Buildah: images are made, saved, loaded again and mounted.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_host::find_program::find_program;
use coracle_host::process::{Invocation, Stdin, run};
use coracle_types::random_hex;
use tempfile::TempDir;

use crate::alter;

/// Who makes the image.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Maker {
    Docker,
    BuildKit,
    Buildah,
}

/// An image in an archive, and in the engine that has loaded it from there.
pub(crate) struct SavedImage {
    maker: Maker,
    pub(crate) name: String,
    pub(crate) archive: PathBuf,
    _dir: TempDir,
}

/// A directory that shows an image's files until it is dropped.
pub(crate) struct Mounted {
    dir: PathBuf,
    unmount: Vec<OsString>,
    _temp: Option<TempDir>,
}

/// Steps of a build that make and remove entries in each layer.
const DOCKERFILE: &str = r#"
RUN busybox mkdir -p built/sub && busybox touch built/a built/sub/b && busybox ln built/a built/c && busybox chmod 4711 built/a
RUN busybox rm -r built/sub kept && busybox mkdir kept && busybox touch kept/again && busybox mkfifo built/pipe
RUN busybox mknod built/zero c 1 5 && busybox chown 77:88 built/pipe && busybox mv odd/moved odd/moved-again
"#;

/// What BuildKit builds from nothing but files.
const BUILDKIT_FILE: &str = r#"
RUN busybox mkdir -p kept replaced/old opaque/sub deep/er && busybox touch kept/old replaced/old/x opaque/sub/y gone deep/er/z
RUN busybox ln kept/old deep/er/same && busybox ln -s /etc/passwd link && busybox chmod 6755 kept/old && busybox chown -h 5:6 link
RUN busybox rm -r replaced gone opaque && busybox mkdir -p replaced opaque/other && busybox touch opaque/new
RUN busybox mknod null c 1 3 && busybox mkfifo pipe && busybox touch "odd name" "$(busybox printf 'line\nbreak')" && busybox chmod 1777 deep
RUN for i in $(busybox seq 1 30); do busybox echo $i >deep/er/$i; done; busybox rm deep/er/7 kept/old; busybox touch gone
"#;

impl Maker {
    /// Makes the image. `None` without the engine.
    pub(crate) async fn make(self) -> Option<SavedImage> {
        let program = if let Self::Buildah = self { "buildah" } else { "docker" };
        if find_program(program).is_err() {
            return None;
        }
        let name = format!("localhost/coracle-layers-test:{}", random_hex::<4>());
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let archive = dir.path().join("image.tar");
        match self {
            Self::Docker => make_by_docker(&name, dir.path()).await,
            Self::BuildKit => {
                import_busybox(&format!("{name}-base"), dir.path()).await;
                build_by_docker(&format!("{name}-base"), &name, (BUILDKIT_FILE, "1")).await;
                call("docker", &["rmi", "--no-prune", &format!("{name}-base")]).await;
            }
            Self::Buildah => make_by_buildah(&name, dir.path()).await,
        }
        let it = SavedImage { maker: self, name, archive, _dir: dir };
        it.save_and_load().await;
        Some(it)
    }
}

impl SavedImage {
    async fn save_and_load(&self) {
        let archive = self.archive.to_str().unwrap();
        match self.maker {
            Maker::Buildah => {
                call("podman", &["save", "--quiet", "--format=oci-archive", "-o", archive, &self.name]).await;
                call("podman", &["rmi", &self.name]).await;
                call("podman", &["load", "--quiet", "-i", archive]).await;
            }
            Maker::Docker | Maker::BuildKit => {
                call("docker", &["save", "-o", archive, &self.name]).await;
                call("docker", &["rmi", &self.name]).await;
                call("docker", &["load", "--quiet", "-i", archive]).await;
            }
        }
    }

    /// The tree as the image's own engine has unpacked it.
    pub(crate) async fn mount_theirs(&self) -> Mounted {
        if let Maker::Buildah = self.maker {
            let dir = call("podman", &["image", "mount", &self.name]).await.into();
            let unmount = ["podman", "image", "unmount", &self.name].map(OsString::from).to_vec();
            return Mounted { dir, unmount, _temp: None };
        }
        let format = "--format={{.GraphDriver.Data.UpperDir}}:{{.GraphDriver.Data.LowerDir}}";
        let layers = call("docker", &["image", "inspect", format, &self.name]).await;
        Mounted::overlay(&layers.split(':').map(PathBuf::from).collect::<Vec<_>>()).await
    }
}

impl Drop for SavedImage {
    fn drop(&mut self) {
        let program = if let Maker::Buildah = self.maker { "podman" } else { "docker" };
        call_now(program, &["rmi".into(), "--force".into(), self.name.clone().into()]);
    }
}

impl Mounted {
    /// Layers, topmost first.
    pub(crate) async fn overlay(layers: &[PathBuf]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().to_owned();
        let layers: Vec<_> = layers.iter().map(|it| it.to_str().unwrap()).collect();
        let options = format!("lowerdir={}", layers.join(":"));
        call("mount", &["-t", "overlay", "overlay", "-o", &options, dir.to_str().unwrap()]).await;
        let unmount = ["umount", dir.to_str().unwrap()].map(OsString::from).to_vec();
        Self { dir, unmount, _temp: Some(temp) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        call_now(self.unmount[0].to_str().unwrap(), &self.unmount[1..]);
    }
}

/// Layers by commits of running containers, and by the classic builder.
async fn make_by_docker(name: &str, dir: &Path) {
    let step = |at: u8| format!("{name}-{at}");
    import_busybox(&step(0), dir).await;
    let changes: [fn(&Path); 3] = [alter::first, alter::second, alter::third];
    for (at, change) in (0u8..).zip(changes) {
        let container =
            call("docker", &["run", "--detach", "--network=none", &step(at), "/bin/busybox", "sleep", "600"]).await;
        let merged = call("docker", &["inspect", "--format={{.GraphDriver.Data.MergedDir}}", &container]).await;
        change(Path::new(&merged));
        call("docker", &["commit", "--pause", &container, &step(at + 1)]).await;
        call("docker", &["rm", "--force", "--volumes", &container]).await;
    }
    build_by_docker(&step(3), name, (DOCKERFILE, "0")).await;
    for at in 0..4 {
        call("docker", &["rmi", "--no-prune", &step(at)]).await;
    }
}

async fn import_busybox(name: &str, dir: &Path) {
    let root = busybox_root(dir);
    let tar = dir.join("base.tar");
    call("tar", &["-C", root.to_str().unwrap(), "--numeric-owner", "-cf", tar.to_str().unwrap(), "."]).await;
    call("docker", &["import", "--change=ENV PATH=/bin", tar.to_str().unwrap(), name]).await;
}

fn busybox_root(dir: &Path) -> PathBuf {
    let root = dir.join("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::copy(coracle_skips::busybox(), root.join("bin/busybox")).unwrap();
    let _ = std::os::unix::fs::symlink("busybox", root.join("bin/sh"));
    root
}

async fn build_by_docker(base: &str, name: &str, (steps, kit): (&str, &str)) {
    let context = tempfile::tempdir().unwrap();
    std::fs::write(context.path().join("Dockerfile"), format!("FROM {base}\n{steps}")).unwrap();
    let mut build = invocation("docker", &["build", "--quiet", "--network=none", "--tag", name, "."]);
    build.dir = Some(context.path().to_owned());
    build.env.insert("DOCKER_BUILDKIT".into(), kit.into());
    finish(&build).await;
}

/// Layers by commits of a mounted working container.
async fn make_by_buildah(name: &str, dir: &Path) {
    let root = busybox_root(dir);
    let mut base = "scratch".to_owned();
    let base_files = move |at: &Path| {
        std::fs::create_dir_all(at.join("bin")).unwrap();
        std::fs::copy(root.join("bin/busybox"), at.join("bin/busybox")).unwrap();
    };
    let changes: [&dyn Fn(&Path); 4] = [&base_files, &alter::first, &alter::second, &alter::third];
    let mut made = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        let container = call("buildah", &["from", "--pull-never", &base]).await;
        let mounted = call("buildah", &["mount", &container]).await;
        change(Path::new(&mounted));
        base = if at == 3 { name.to_owned() } else { format!("{name}-{at}") };
        call("buildah", &["commit", "--quiet", &container, &base]).await;
        call("buildah", &["rm", &container]).await;
        made.push(base.clone());
    }
    for it in &made[..3] {
        call("podman", &["untag", it]).await;
    }
}

fn invocation(program: &str, words: &[&str]) -> Invocation {
    let mut invocation = Invocation::new(find_program(program).unwrap(), words.iter().copied());
    let env = [("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", "/root")];
    invocation.env = env.map(|(name, value)| (name.to_owned(), value.into())).into();
    invocation
}

/// What a program prints.
async fn call(program: &str, words: &[&str]) -> String {
    finish(&invocation(program, words)).await
}

async fn finish(invocation: &Invocation) -> String {
    let output = run("program", invocation, Stdin::Empty, (Duration::from_secs(300), 100_000)).await.unwrap();
    assert!(output.ok(), "{invocation:?}: {} {}", output.stdout.text(), output.stderr.text());
    output.stdout.text().trim().to_owned()
}

/// Runs a program where nothing can wait, and passes over its failure: another one may be on its way.
#[expect(clippy::disallowed_methods, reason = "a destructor cannot wait for a future")]
fn call_now(program: &str, words: &[OsString]) {
    let _ = std::process::Command::new(program).args(words).output();
}
