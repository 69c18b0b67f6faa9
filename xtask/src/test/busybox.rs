//! A static busybox, the root file system of most tests' containers.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use crate::engines::apt;
use crate::guest;
use crate::sh::{sh, target, which};

const PACKAGE: &str = "busybox-static";

/// Where it is on a machine that has the package.
const INSTALLED: &str = "/bin/busybox";

/// Makes sure that the tests find one (`crates/skips`). The package is unpacked, which needs no root, and not installed.
pub(super) fn ensure() -> Result<()> {
    let own = target().join("tools/busybox");
    if is_static(Path::new(INSTALLED)) || is_static(&own) {
        return Ok(());
    }
    if which("apt-get").is_none() || which("dpkg-deb").is_none() {
        bail!("the tests need a static busybox: put one at {INSTALLED} or {}", own.display());
    }
    let dir = target().join("tools/busybox-package");
    fs::create_dir_all(&dir)?;
    apt::download(&[PACKAGE], &dir)
        .with_context(|| format!("the tests need {PACKAGE}: `apt-get install {PACKAGE}`, or `apt-get update` first"))?;
    let mut files = fs::read_dir(&dir)?.flatten().map(|file| file.path());
    let package = files.find(|file| file.extension() == Some("deb".as_ref()));
    let package = package.with_context(|| format!("apt-get downloaded no package into {}", dir.display()))?;
    sh("dpkg-deb", [Path::new("--extract"), &package, &dir]).run()?;
    let found = ["bin/busybox", "usr/bin/busybox"].map(|path| dir.join(path)).into_iter().find(|path| is_static(path));
    let found = found.with_context(|| format!("{} has no static busybox", package.display()))?;
    fs::rename(found, &own)?;
    ensure!(is_static(&own), "{} is not static", own.display());
    Ok(fs::remove_dir_all(&dir)?)
}

fn is_static(program: &Path) -> bool {
    fs::read(program).is_ok_and(|it| guest::ensure_static(&it).is_ok())
}
