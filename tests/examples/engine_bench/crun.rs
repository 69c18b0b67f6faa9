//! `crun` as a program, with a bundle of the same files: the cost of an OCI runtime.
#![expect(clippy::disallowed_methods, reason = "the engines' own programs are what is compared with")]

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use coracle_types::random_hex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{run, run_detached};
use crate::{Timing, busybox};

pub(crate) struct Crun {
    dir: TempDir,
    /// A process whose mounts `crun` sees, where it would refuse those of this machine.
    mounts: Option<Child>,
}

/// With control groups of version 1, `crun` refuses a hierarchy of version 2 that has controllers.
const HYBRID: &str = "/sys/fs/cgroup/unified";

impl Crun {
    /// `None` where it cannot run.
    pub(crate) fn open() -> Option<Self> {
        let hybrid = Path::new(HYBRID).exists();
        if hybrid && !is_root() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let it = Self { dir, mounts: hybrid.then(without_hybrid) };
        std::fs::create_dir(it.bundle().join("rootfs")).unwrap();
        let mut tar: File = busybox::busybox_with("root:x:0:0:root:/root:/bin/sh\n", |_| {});
        tar.seek(SeekFrom::Start(0)).unwrap();
        tar::Archive::new(tar).unpack(it.bundle().join("rootfs")).unwrap();
        // The runtime's own default, with what the other engines set: no terminal, and a program that waits.
        run("crun", &["spec", "--bundle", &it.text(it.bundle()), "--rootless"][..if is_root() { 3 } else { 4 }]);
        let file = it.bundle().join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        config["process"]["terminal"] = false.into();
        config["process"]["args"] = json!(["/bin/sleep", "1000000"]);
        config["process"]["env"] = json!(["PATH=/bin"]);
        std::fs::write(file, config.to_string()).unwrap();
        Some(it)
    }

    fn bundle(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    fn text(&self, path: PathBuf) -> String {
        path.into_os_string().into_string().unwrap()
    }

    /// `nsenter` costs one or two milliseconds.
    fn crun(&self, words: &[&str]) {
        match &self.mounts {
            None => run_detached("crun", words),
            Some(child) => {
                let target = format!("--target={}", child.id());
                run_detached("nsenter", &[&[&*target, "--mount", "crun"][..], words].concat());
            }
        }
    }

    pub(crate) fn one(&self) -> Timing {
        let (id, root) = (format!("bench-{}", random_hex::<6>()), self.text(self.bundle().join("state")));
        let (root, bundle) = (format!("--root={root}"), format!("--bundle={}", self.text(self.bundle())));
        let begun = Instant::now();
        self.crun(&[&root, "run", "--detach", &bundle, &id]);
        let create = begun.elapsed();
        self.crun(&[&root, "exec", &id, "true"]);
        let first = begun.elapsed();
        let begun = Instant::now();
        self.crun(&[&root, "exec", &id, "true"]);
        let exec = begun.elapsed();
        let begun = Instant::now();
        self.crun(&[&root, "delete", "--force", &id]);
        Timing { create, first, exec, destroy: begun.elapsed() }
    }
}

impl Drop for Crun {
    fn drop(&mut self) {
        if let Some(child) = &mut self.mounts {
            // This is all that it waits for.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// A process with mounts of its own that lack the one that `crun` refuses.
fn without_hybrid() -> Child {
    let script = format!("umount {HYBRID} && echo && exec sleep 100000");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    child
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
