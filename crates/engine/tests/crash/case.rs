//! A data directory, what an operation finds in it, and what has to be true after its process was killed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coracle_runtime::{
    ContainerRuntime as _, ImageImport, ImageStore as _, LabelFilter, NetworkCreate, Networks as _, VolumeCreate,
    Volumes as _,
};
use coracle_types::{
    Command, ContainerId, ContainerName, ContainerPath, ContainerStatus, Exec, Exit, Handle, Ids, ImageRef,
    NetworkName, VolumeName,
};
use tempfile::TempDir;

use crate::operation::{self, CONTAINER, IMAGE, NETWORK, Operation, archive, open};
use crate::remains;
use crate::strace::KillPoint;

pub(crate) struct Case {
    _dir: TempDir,
    pub(crate) data: PathBuf,
}

/// Ready for the victim.
pub(crate) struct Prepared {
    pub(crate) operation: Operation,
    pub(crate) data: PathBuf,
    pub(crate) container: Option<ContainerId>,
}

/// The engine's own groups stay for its next container.
impl Drop for Case {
    fn drop(&mut self) {
        for dir in remains::group_parents(&self.data) {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

impl Case {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let data = dir.path().join("data");
        let runtime = open(&data);
        let tag = ImageRef::parse(IMAGE).unwrap();
        let path = ("PATH".to_owned(), "/bin".to_owned());
        let import = ImageImport { tar: busybox(), tag, env: vec![path], labels: Vec::new() };
        let image = runtime.import_image(import).await.unwrap();
        // The image that is copied is made of other layers.
        let network = NetworkName::parse(NETWORK).unwrap();
        let network = NetworkCreate { name: network, labels: Vec::new(), internal: false, reach: true };
        runtime.create_network(&network).await.unwrap();
        let volume = VolumeCreate { name: VolumeName::parse("data").unwrap(), labels: Vec::new(), size: None };
        runtime.create_volume(&volume).await.unwrap();
        runtime.export_image(&image.id, File::create(archive(&data)).unwrap()).await.unwrap();
        Self { _dir: dir, data }
    }

    pub(crate) async fn prepare(&self, operation: Operation) -> Prepared {
        let runtime = open(&self.data);
        let mut container = None;
        if !matches!(operation, Operation::Create | Operation::CopyImage | Operation::NetworksAndVolumes) {
            let id = runtime.create(&operation::spec(&runtime, CONTAINER).await).await.unwrap();
            if operation != Operation::Start {
                runtime.start(&id).await.unwrap();
            }
            if matches!(operation, Operation::Commit | Operation::Fork) {
                runs(&runtime, &id, "mkdir -p /new/dir && echo text >/new/dir/file && rm /bin/wget").await;
            }
            // Whose network devices are looked for.
            std::fs::write(self.data.with_file_name("ids"), id.as_str()).unwrap();
            container = Some(id);
        }
        Prepared { operation, data: self.data.clone(), container }
    }

    /// What the next calls find, and how they end it all.
    pub(crate) async fn check(&self, prepared: &Prepared, point: &KillPoint) {
        let context = format!("{:?} killed at {point:?}", prepared.operation);
        let runtime = open(&self.data);
        let listed = runtime.list(&LabelFilter::default()).await.unwrap();
        remains::check(&self.data, &listed).await.unwrap_or_else(|it| panic!("{context}: {it}"));
        let verified = runtime.verify_images(true).await.unwrap();
        assert!(verified.damage.is_empty(), "{context}: {:?}", verified.damage);
        match prepared.operation {
            Operation::Create | Operation::CopyImage | Operation::NetworksAndVolumes => {}
            Operation::Start | Operation::Stop => {
                let id = prepared.container.as_ref().unwrap();
                runtime.start(id).await.unwrap_or_else(|it| panic!("{context}: {it}"));
                runs(&runtime, id, "grep -q crash /etc/hosts && test -d /data && grep -q eth0 /proc/net/dev").await;
            }
            Operation::Commit | Operation::Fork => {
                let id = prepared.container.as_ref().unwrap();
                for it in listed.iter().map(|it| &it.id) {
                    runtime.start(it).await.unwrap_or_else(|it| panic!("{context}: {it}"));
                    runs(&runtime, it, "cat /new/dir/file").await;
                }
                assert!(listed.iter().any(|it| it.id == *id), "{context}");
            }
            Operation::Remove => {
                for it in &listed {
                    assert_eq!(it.status, ContainerStatus::Running, "{context}: half removed");
                }
            }
        }
        for it in &listed {
            // Under its name, and no other container has it.
            let handle = Handle::Name(ContainerName::parse(it.name.as_str()).unwrap());
            assert_eq!(runtime.inspect(&handle).await.unwrap().id, it.id, "{context}");
        }
        self.finish(prepared).await;
    }

    /// Removes what an operation made.
    pub(crate) async fn finish(&self, _: &Prepared) {
        let runtime = open(&self.data);
        for it in runtime.list(&LabelFilter::default()).await.unwrap() {
            runtime.remove(&it.id).await.unwrap();
        }
        for name in [operation::COPIED, operation::COMMITTED] {
            runtime.untag_image(&ImageRef::parse(name).unwrap()).await.unwrap();
        }
        for it in runtime.list_images(&LabelFilter::default()).await.unwrap() {
            if !it.tags.iter().any(|it| it == IMAGE) {
                runtime.remove_image(&it.id).await.unwrap();
            }
        }
        runtime.remove_volume(operation::VOLUME).await.unwrap();
        runtime.remove_network("crash-other").await.unwrap();
        remains::check(&self.data, &[]).await.unwrap();
    }
}

/// A container that stands still does not answer.
pub(crate) async fn runs(runtime: &coracle_engine::EmbeddedRuntime, id: &ContainerId, script: &str) {
    let words = ["sh", "-c", script].map(str::to_owned).to_vec();
    let exec = Exec::new(Command::Argv(words), Ids::ROOT, ContainerPath::root());
    let output = tokio::time::timeout(Duration::from_secs(5), runtime.exec(id, exec)).await;
    let output = output.unwrap_or_else(|_| panic!("`{script}` hangs")).unwrap();
    assert_eq!(output.exit, Exit::Code(0), "{script}: {output:?}");
}

fn busybox() -> File {
    let program = std::fs::read(coracle_skips::busybox()).unwrap();
    let mut tar = tar::Builder::new(tempfile::tempfile().unwrap());
    let mut add = |path: &str, kind, content: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        if kind == tar::EntryType::Symlink {
            header.set_size(0);
            return tar.append_link(&mut header, path, "busybox").unwrap();
        }
        tar.append_data(&mut header, path, content).unwrap();
    };
    add("bin/busybox", tar::EntryType::Regular, &program);
    for applet in ["sh", "sleep", "mkdir", "rm", "cat", "grep", "wget", "test"] {
        add(&format!("bin/{applet}"), tar::EntryType::Symlink, b"");
    }
    add("data", tar::EntryType::Directory, b"");
    add("data/of-image", tar::EntryType::Regular, b"content");
    let mut file = tar.into_inner().unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    file
}

/// Waits for what the kernel does after the end of a process.
pub(crate) async fn eventually<T>(mut found: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let begun = Instant::now();
    loop {
        match found() {
            Err(_) if begun.elapsed() < Duration::from_secs(2) => tokio::time::sleep(Duration::from_millis(5)).await,
            done => return done,
        }
    }
}

/// The names in a directory.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
