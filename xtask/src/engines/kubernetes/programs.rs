//! The programs of a cluster: packages that are installed, packages that are unpacked, and those that are built.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::super::apt;
use super::layout::Layout;
use crate::sh::{sh, var, which};

/// Built from Debian's source package, which has no binary package of them.
const BUILT: [&str; 5] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"];

/// Not installed: they bring servers that would start by themselves, or network plugins that Podman would find.
const UNPACKED: [&str; 3] = ["etcd-server", "containernetworking-plugins", "docker-registry"];

/// Only for the build.
const COMPILER: [&str; 2] = ["golang-1.19-go", "golang-1.19-src"];

/// Of the host, if the programs are missing.
const INSTALLED: [(&str, &str); 5] = [
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("ip", "iproute2"),
    ("openssl", "openssl"),
    ("busybox", "busybox-static"),
];

/// The same for the build. Without `rsync` it fails at a program that it copied in a wrong place.
const BUILD_INSTALLED: [&str; 4] = ["dpkg-dev", "make", "patch", "rsync"];

/// Installs, unpacks and builds what is missing.
pub(super) fn ensure(layout: &Layout) -> Result<()> {
    let missing: Vec<&str> = INSTALLED.iter().filter(|it| which(it.0).is_none()).map(|it| it.1).collect();
    if !missing.is_empty() {
        apt::ensure(&missing)?;
    }
    if !layout.unpacked("usr/bin/docker-registry").exists() {
        unpack(&UNPACKED, &layout.unpacked(""))?;
    }
    if BUILT.iter().all(|it| layout.program(it).exists()) {
        return Ok(());
    }
    ensure!(
        apt::Os::here().codename == "bookworm",
        "only the source package of Debian 12 (bookworm) is known to build here: put {} into {}",
        BUILT.join(", "),
        layout.program("").display()
    );
    build(layout)
}

/// Downloads packages and unpacks them below `root`.
fn unpack(packages: &[&str], root: &Path) -> Result<()> {
    let downloads = root.join("downloads");
    fs::create_dir_all(&downloads).with_context(|| format!("create {}", downloads.display()))?;
    apt::download(packages, &downloads)?;
    for package in files(&downloads)? {
        sh("dpkg-deb", [Path::new("--extract"), &package, root]).run()?;
    }
    remove(&downloads)
}

/// Compiles Kubernetes, which takes minutes and 4 GB, and keeps only the programs.
fn build(layout: &Layout) -> Result<()> {
    apt::ensure(&BUILD_INSTALLED)?;
    let work = layout.build();
    if work.exists() {
        remove(&work)?; // of a build that failed
    }
    let sources = work.join("source");
    fs::create_dir_all(&sources).with_context(|| format!("create {}", sources.display()))?;
    unpack(&COMPILER, &work.join("go"))?;
    apt::unpack_source("kubernetes", &sources)?;
    let tree = files(&sources)?.into_iter().find(|it| it.is_dir()).context("the source package has no directory")?;
    compile(&work, &tree)?;
    let programs = layout.program("");
    fs::create_dir_all(&programs).with_context(|| format!("create {}", programs.display()))?;
    for name in BUILT {
        let built = tree.join("_output/bin").join(name);
        fs::copy(&built, layout.program(name)).with_context(|| format!("copy {}", built.display()))?;
    }
    remove(&work)
}

fn compile(work: &Path, tree: &Path) -> Result<()> {
    let go = work.join("go/usr/lib/go-1.19");
    let paths = tree.join(".go");
    fs::create_dir_all(paths.join("src/k8s.io"))?;
    std::os::unix::fs::symlink(tree, paths.join("src/k8s.io/kubernetes"))?;
    let path = format!("{}:{}", go.join("bin").display(), var("PATH").unwrap_or_default());
    let what = format!("WHAT={}", BUILT.map(|it| format!("cmd/{it}")).join(" "));
    let make = sh("make", [what.as_str(), "GOLDFLAGS=-s -w"]).dir(tree).env("PATH", path).env("CGO_ENABLED", "0");
    make.env("GOROOT", &go).env("GOPATH", &paths).env("GOCACHE", work.join("cache")).env("GOFLAGS", "").run()
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))?;
    Ok(entries.flatten().map(|it| it.path()).collect())
}

/// Go's modules are directories that may not be written, so not even their owner removes them without `chmod`.
fn remove(dir: &Path) -> Result<()> {
    fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))
}
