//! Containers that are forked while they run. They need root, and a static busybox.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::time::Duration;

use coracle_archive::oci::LayerEncoding;
use coracle_runtime::{
    ContainerRuntime as _, CreateSpec, Image, ImageCommit, ImageConfig, ImageImport, ImageStore as _,
    NetworkAttachment, Placed, Policy, admit,
};
use coracle_types::{
    Command, ContainerId, ContainerName, ContainerPath, Error, Exec, Exit, Handle, Ids, ImageRef, random_hex,
};
use rustix::process::geteuid;
use sha2::{Digest as _, Sha256};

use crate::store::{DiffId, LayerLimits, NewImage, NewLayer};
use crate::{EmbeddedRuntime, EngineOptions};

/// An engine with one image.
pub(crate) struct Fixture {
    dir: tempfile::TempDir,
    pub(crate) runtime: EmbeddedRuntime,
    image: Image,
}

impl Fixture {
    /// `None`, with a report, where no container can run.
    pub(crate) async fn open() -> Option<Self> {
        if !geteuid().is_root() {
            coracle_skips::skip(coracle_skips::NEEDS_ROOT);
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let runtime = EmbeddedRuntime::open(EngineOptions::example(dir.path())).unwrap();
        let tag = ImageRef::parse("localhost/fork-test:1").unwrap();
        let image = ImageImport { tar: busybox(), tag, env: vec![("PATH".into(), "/bin".into())], labels: Vec::new() };
        let image = runtime.import_image(image).await.unwrap();
        Some(Self { dir, runtime, image })
    }

    pub(crate) fn spec(&self) -> Placed {
        self.placed(&self.image)
    }

    fn placed(&self, image: &Image) -> Placed {
        let name = ContainerName::parse(format!("fork-{}", random_hex::<4>())).unwrap();
        let spec = CreateSpec::new(name, image.id.clone().into());
        admit(spec, &Policy::everything()).unwrap().with_image(image.id.clone(), NetworkAttachment::None)
    }

    pub(crate) async fn start(&self) -> ContainerId {
        let id = self.runtime.create(&self.placed(&self.image)).await.unwrap();
        self.runtime.start(&id).await.unwrap();
        id
    }

    async fn fork(&self, parent: &ContainerId) -> ContainerId {
        let id = self.runtime.fork(parent, &self.placed(&self.image)).await.unwrap();
        self.runtime.start(&id).await.unwrap();
        id
    }

    pub(crate) async fn print(&self, id: &ContainerId, script: &str) -> String {
        let exec = Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root());
        let output = self.runtime.exec(id, exec).await.unwrap();
        assert_eq!((output.exit, output.stderr.text().as_str()), (Exit::Code(0), ""), "{script}");
        output.stdout.text().trim_end().to_owned()
    }

    pub(crate) async fn remove(&self, containers: &[&ContainerId]) {
        for id in containers {
            self.runtime.remove(id).await.unwrap();
        }
        assert_eq!(self.leftovers(), Vec::<String>::new());
    }

    /// The content of the directories of containers and of the trash.
    fn leftovers(&self) -> Vec<String> {
        let names = ["containers", "trash", "containers/names"].map(|it| {
            let entries = std::fs::read_dir(self.dir.path().join("data").join(it)).unwrap();
            entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        });
        names.concat().into_iter().filter(|it| !it.starts_with("names")).collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // After a failed test, too: a directory whose containers run cannot be removed.
        let engine = self.runtime.engine();
        for container in crate::container::list(engine, &coracle_runtime::LabelFilter::default()).unwrap_or_default() {
            if let Ok(Some(process)) = container.process() {
                let pid = rustix::process::Pid::from_raw(process.pid.cast_signed());
                let _ = pid.map(|it| rustix::process::kill_process(it, rustix::process::Signal::KILL));
            }
        }
    }
}

fn busybox() -> File {
    let mut tar = tar::Builder::new(tempfile::tempfile().unwrap());
    let entry = |kind, mode| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(0);
        header
    };
    for dir in ["bin", "data", "tmp"] {
        tar.append_data(&mut entry(tar::EntryType::Directory, 0o755), dir, std::io::empty()).unwrap();
    }
    let program = std::fs::read(coracle_skips::busybox()).unwrap();
    let mut header = entry(tar::EntryType::Regular, 0o755);
    header.set_size(program.len() as u64);
    tar.append_data(&mut header, "bin/busybox", &*program).unwrap();
    for applet in ["sh", "sleep", "cat", "ls", "seq", "echo", "rm", "mkdir", "kill", "mv", "stat"] {
        tar.append_link(&mut entry(tar::EntryType::Symlink, 0o777), format!("bin/{applet}"), "busybox").unwrap();
    }
    tar.append_data(&mut entry(tar::EntryType::Regular, 0o644), "data/of-image", std::io::empty()).unwrap();
    let mut file = tar.into_inner().unwrap();
    file.rewind().unwrap();
    file
}

/// Numbers from 1, one in each line, each written by one call.
pub(crate) fn is_prefix(text: &str) -> usize {
    for (at, line) in text.lines().enumerate() {
        assert_eq!(line, (at + 1).to_string());
    }
    text.lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_loses_nothing_that_it_writes_and_the_fork_has_a_prefix() {
    let Some(it) = Fixture::open().await else { return };
    let parent = it.start().await;
    // Through a descriptor that stays open, from a directory that was entered before.
    let writer = "cd /data; i=0; exec 3>>log; while ! [ -e stop ]; do i=$((i+1)); echo $i >&3; sleep 0.001; done; echo $i >part; mv part done";
    it.print(&parent, &format!("({writer}) >/dev/null 2>&1 &")).await;
    it.print(&parent, "while ! [ -s /data/log ]; do sleep 0.01; done").await;
    let mut forks = Vec::new();
    let mut seen = 0;
    for _ in 0..5 {
        let fork = it.fork(&parent).await;
        let lines = is_prefix(&it.print(&fork, "cat /data/log").await);
        assert!(lines > 0 && lines >= seen, "{lines} after {seen}");
        seen = lines;
        // It is the fork's own.
        it.print(&fork, "echo other >/data/log; rm /data/of-image").await;
        forks.push(fork);
    }
    it.print(&parent, "touch /data/stop; while ! [ -e /data/done ]; do sleep 0.01; done").await;
    let written = is_prefix(&it.print(&parent, "cat /data/log").await);
    assert_eq!(it.print(&parent, "cat /data/done").await, written.to_string());
    assert!(written > seen, "{written} after {seen}");
    assert_eq!(it.print(&parent, "ls /data").await, "done\nlog\nof-image\nstop");
    it.remove(&forks.iter().chain([&parent]).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_outlives_its_parent_and_is_forked_and_committed_itself() {
    let Some(it) = Fixture::open().await else { return };
    let parent = it.start().await;
    it.print(&parent, "mkdir /data/dir; echo 1 >/data/dir/a; rm /data/of-image").await;
    let fork = it.fork(&parent).await;
    it.remove_only(&parent).await;
    it.print(&fork, "echo 2 >/data/dir/b").await;
    let second = it.fork(&fork).await;
    it.print(&second, "echo 3 >/data/dir/c; rm /data/dir/a").await;
    assert_eq!(it.print(&fork, "cat /data/dir/*; ls /data").await, "1\n2\ndir");
    let commit =
        ImageCommit { container: second.clone(), tag: None, config: ImageConfig::default(), labels: Vec::new() };
    let image = it.runtime.commit_image(&commit).await.unwrap();
    let restored = it.runtime.create(&it.placed(&image)).await.unwrap();
    it.runtime.start(&restored).await.unwrap();
    assert_eq!(it.print(&restored, "cat /data/dir/*; ls /data").await, "2\n3\ndir");
    it.remove(&[&fork, &second, &restored]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_at_rest_is_forked_and_a_name_that_is_taken_leaves_nothing() {
    let Some(it) = Fixture::open().await else { return };
    let parent = it.start().await;
    it.print(&parent, "echo kept >/data/text").await;
    it.runtime.stop(&parent, Duration::ZERO).await.unwrap();
    let spec = it.placed(&it.image);
    let fork = it.runtime.fork(&parent, &spec).await.unwrap();
    assert!(matches!(it.runtime.fork(&parent, &spec).await, Err(Error::NameTaken(_))));
    it.runtime.start(&fork).await.unwrap();
    assert_eq!(it.print(&fork, "cat /data/text").await, "kept");
    let missing = ContainerId::parse("d".repeat(64)).unwrap();
    assert!(matches!(it.runtime.fork(&missing, &it.placed(&it.image)).await, Err(Error::NoSuchContainer(_))));
    let found = it.runtime.inspect(&Handle::from(&fork)).await.unwrap();
    assert_eq!((found.image, found.name), (it.image.id.clone(), spec.spec().name.to_string()));
    it.remove(&[&parent, &fork]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_of_an_image_with_a_layer_twice_starts_and_is_forked() {
    let Some(it) = Fixture::open().await else { return };
    let image = it.add_image_with_a_layer_twice();
    let parent = it.runtime.create(&it.placed(&image)).await.unwrap();
    it.runtime.start(&parent).await.unwrap();
    let fork = it.runtime.fork(&parent, &it.placed(&image)).await.unwrap();
    it.runtime.start(&fork).await.unwrap();
    for id in [&parent, &fork] {
        assert_eq!(it.print(id, "echo /othe[r] /data/*").await, "/other /data/of-image");
    }
    it.remove(&[&parent, &fork]).await;
}

impl Fixture {
    /// The layer of its programs, another one, and the first again.
    fn add_image_with_a_layer_twice(&self) -> Image {
        let mut addition = self.runtime.engine().store.begin_addition().unwrap();
        let add = |mut blob: File| {
            let mut bytes = Vec::new();
            blob.read_to_end(&mut bytes).unwrap();
            blob.rewind().unwrap();
            let diff_id = DiffId::from_bytes(Sha256::digest(&bytes).into());
            let layer = NewLayer { diff_id, blob, compression: LayerEncoding::Plain, limits: LayerLimits::default() };
            addition.add_layer(layer).unwrap().diff_id
        };
        let mut other = tar::Builder::new(tempfile::tempfile().unwrap());
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(0);
        other.append_data(&mut header, "other", std::io::empty()).unwrap();
        let mut other = other.into_inner().unwrap();
        other.rewind().unwrap();
        let [twice, once] = [busybox(), other].map(add);
        let configuration = serde_json::json!({
            "architecture": self.image.arch, "os": "linux", "config": { "Env": ["PATH=/bin"] },
            "rootfs": { "type": "layers", "diff_ids": [twice, once, twice] },
        });
        let configuration = configuration.to_string().into_bytes();
        addition.add_image(NewImage { configuration, ..NewImage::default() }).unwrap()
    }

    async fn remove_only(&self, id: &ContainerId) {
        self.runtime.remove(id).await.unwrap();
    }
}
