//! The Debian package, written here: `dpkg-deb` of another version would compress otherwise.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};
use md5::{Digest as _, Md5};

use super::{Release, notices};
use crate::archive::{ArchiveFile, gzip, tar_gz};
use crate::sh::{root, sh};

/// Name and content of the package.
pub(super) fn package(release: &Release) -> Result<ArchiveFile> {
    let files = files(release)?;
    let size: usize = files.iter().map(|it| it.content.len().div_ceil(1024)).sum();
    let control = text("control")?
        .replace("@VERSION@", &release.version)
        .replace("@ARCH@", release.platform.debian)
        .replace("@SIZE@", &size.to_string());
    let control = [ArchiveFile::new("control", control), ArchiveFile::new("md5sums", md5sums(&files)?)];
    let time = release.time;
    let mut package = b"!<arch>\n".to_vec();
    member(&mut package, "debian-binary", b"2.0\n", time);
    member(&mut package, "control.tar.gz", &tar_gz("./", &control, time)?, time);
    member(&mut package, "data.tar.gz", &tar_gz("./", &files, time)?, time);
    let name = format!("coracle_{}_{}.deb", release.version, release.platform.debian);
    Ok(ArchiveFile::new(name, package))
}

fn text(name: &str) -> Result<String> {
    fs::read_to_string(root().join("packaging/debian").join(name))
        .with_context(|| format!("read packaging/debian/{name}"))
}

/// The files of the prefix below `/usr`, at Debian's places, and what Debian asks for.
fn files(release: &Release) -> Result<Vec<ArchiveFile>> {
    let mut files = vec![ArchiveFile::program("usr/bin/coracle", release.program.clone())];
    for it in &release.texts {
        if it.path.starts_with("share/man/") {
            files.push(ArchiveFile::new(format!("usr/{}.gz", it.path), gzip(&it.content)?));
        } else {
            let path = it.path.replace("share/zsh/site-functions", "share/zsh/vendor-completions");
            files.push(ArchiveFile::new(format!("usr/{path}"), it.content.clone()));
        }
    }
    let doc = "usr/share/doc/coracle";
    files.push(ArchiveFile::new(format!("{doc}/copyright"), text("copyright")?));
    // Our own licences are in `copyright`, and a second copy is not wanted.
    for it in release.notices.iter().filter(|it| it.path == notices::NAME) {
        files.push(ArchiveFile::new(format!("{doc}/{}.gz", it.path), gzip(&it.content)?));
    }
    files.push(ArchiveFile::new(format!("{doc}/changelog.gz"), gzip(changelog(release)?.as_bytes())?));
    files.push(ArchiveFile::new("usr/share/lintian/overrides/coracle", text("lintian-overrides")?));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// One entry: the project's own changelog has the rest.
fn changelog(release: &Release) -> Result<String> {
    let (version, at) = (&release.version, format!("--date=@{}", release.time));
    let date = sh("date", ["--utc", "--rfc-email", &at]).env("LC_ALL", "C").read()?;
    let control = text("control")?;
    let maintainer = control.lines().find_map(|it| it.strip_prefix("Maintainer: "));
    let maintainer = maintainer.context("packaging/debian/control names no maintainer")?;
    Ok(format!(
        "coracle ({version}) unstable; urgency=medium\n\n  * Release {version}; CHANGELOG.md has the changes.\n\n \
         -- {maintainer}  {date}\n"
    ))
}

fn md5sums(files: &[ArchiveFile]) -> Result<String> {
    let mut sums = String::new();
    for it in files {
        writeln!(sums, "{}  {}", hex::encode(Md5::digest(&it.content)), it.path)?;
    }
    Ok(sums)
}

/// A member of an `ar` archive.
fn member(package: &mut Vec<u8>, name: &str, content: &[u8], time: u64) {
    let header = format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 100_644, content.len());
    package.extend(header.as_bytes());
    package.extend(content);
    if content.len() % 2 == 1 {
        package.push(b'\n');
    }
}
