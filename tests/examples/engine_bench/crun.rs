//! `crun` as a program, with a bundle of the same files: what an engine pays that calls an OCI runtime.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::Instant;

use coracle_runtime::random_hex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Timing;
use crate::busybox;
use crate::program::{run, run_detached};

pub(crate) struct Crun {
    dir: TempDir,
}

impl Crun {
    pub(crate) fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let it = Self { dir };
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
        it
    }

    fn bundle(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    fn text(&self, path: PathBuf) -> String {
        path.into_os_string().into_string().unwrap()
    }

    pub(crate) fn one(&self) -> Timing {
        let (id, root) = (format!("bench-{}", random_hex::<6>()), self.text(self.bundle().join("state")));
        let (root, bundle) = (format!("--root={root}"), format!("--bundle={}", self.text(self.bundle())));
        let begun = Instant::now();
        run_detached("crun", &[&root, "run", "--detach", &bundle, &id]);
        let create = begun.elapsed();
        run("crun", &[&root, "exec", &id, "true"]);
        let first = begun.elapsed();
        let begun = Instant::now();
        run("crun", &[&root, "exec", &id, "true"]);
        let exec = begun.elapsed();
        let begun = Instant::now();
        run("crun", &[&root, "delete", "--force", &id]);
        Timing { create, first, exec, destroy: begun.elapsed() }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
