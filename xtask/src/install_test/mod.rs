//! `cargo xtask install-test [DIR]`: what `dist` made, installed as a newcomer would on machines that have nothing.
//!
//! The machines are directories of this one with namespaces of their own: a bare Debian, and busybox with musl. They have no
//! registry, so the first container's image comes from a file.

mod machine;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use self::machine::Machine;
use crate::engines::apt;
use crate::sh::{sh, target};

/// From the installer to a container that has run a command.
const LIMIT: Duration = Duration::from_secs(10);

const PACKAGES: &[&str] = &["busybox-static", "debootstrap", "python3-pip", "unzip"];

const FIRST_CONTAINER: &str = include_str!("first-container.sh");
const DEBIAN_PACKAGE: &str = include_str!("debian-package.sh");
const PIP: &str = include_str!("pip.sh");
const NPM: &str = include_str!("npm.sh");
const NPM_UNPACKED: &str = include_str!("npm-unpacked.sh");

pub(crate) fn run(words: &[String]) -> Result<()> {
    let dir = match words {
        [] => target().join("dist"),
        [dir] => PathBuf::from(dir),
        _ => bail!("usage: cargo xtask install-test [DIR]"),
    };
    let release = dir.canonicalize().with_context(|| format!("{}: `cargo xtask dist` makes it", dir.display()))?;
    ensure!(apt::is_root(), "only root can make machines of directories");
    apt::ensure(PACKAGES)?;
    let work = target().join("install-test");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    musl_pip_takes_the_wheel(&release, &work)?;
    let debian = Machine::debian(&work, &release)?;
    let musl = Machine::musl(&work, &release)?;
    debian.save_as_image(&work)?;
    let mut times = vec![];
    for machine in [&debian, &musl] {
        machine.add_image(&work)?;
        machine.run("the installer and the first container", FIRST_CONTAINER)?;
        times.push((machine.name, machine.seconds()?));
    }
    debian.add_node(&work)?;
    debian.run("the npm package", NPM)?;
    // The Node that PyPI has for musl ends with a segmentation fault where Debian's musl is.
    musl.run("the program of the npm package", NPM_UNPACKED)?;
    debian.run("the Debian package", DEBIAN_PACKAGE)?;
    debian.run("the wheel", PIP)?;
    fs::remove_dir_all(&work)?;
    println!();
    for (name, seconds) in &times {
        println!("{name}: {seconds:.1} s from the installer to the first container");
    }
    let slow = times.iter().find(|(_, seconds)| *seconds > LIMIT.as_secs_f64());
    ensure!(slow.is_none(), "at most {LIMIT:?} are allowed");
    Ok(())
}

/// There is no Python for musl on this machine, but its pip knows wheels of that name, which a newer musl takes as well.
fn musl_pip_takes_the_wheel(release: &Path, work: &Path) -> Result<()> {
    let platform = format!("musllinux_1_1_{}", std::env::consts::ARCH);
    let words = ["-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--only-binary=:all:", "--platform"];
    sh("python3", words).words([&platform, "--target"]).words([work.join("none"), file(release, ".whl")?]).run()
}

/// The only file with that ending.
fn file(dir: &Path, ending: &str) -> Result<PathBuf> {
    let mut files =
        fs::read_dir(dir)?.flatten().map(|it| it.path()).filter(|it| it.display().to_string().ends_with(ending));
    let one = files.next().with_context(|| format!("no *{ending} in {}", dir.display()))?;
    ensure!(files.next().is_none(), "more than one *{ending} in {}", dir.display());
    Ok(one)
}
