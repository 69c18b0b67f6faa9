//! `cargo xtask dist`: everything that a release offers for the platform of this machine, in `target/dist`.
//!
//! Compiling and packaging are apart: `--binary FILE` packs a program that is there. The same program and commit give the
//! same bytes.

mod checksums;
mod compile;
mod components;
mod container_image;
mod debian;
mod notices;
mod platform;
mod sbom;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

pub(crate) use self::checksums::sha256;
use self::platform::Platform;
use self::sbom::Materials;
use crate::archive::{ArchiveFile, tar_gz};
use crate::package;
use crate::sh::{root, sh, target, var, which};

const USAGE: &str = "usage: cargo xtask dist [--binary FILE] [--out DIR] [--url URL] | --index DIR [--url URL]";

/// Where a release is downloaded from, unless `--url` says.
const URL: &str = "https://github.com/OWNER/coracle/releases/download/v";

/// The scripts for shells: the shell, and where it looks for the script below a prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/coracle"),
    ("zsh", "share/zsh/site-functions/_coracle"),
    ("fish", "share/fish/vendor_completions.d/coracle.fish"),
];

/// What is packed.
#[derive(Debug)]
struct Release {
    version: String,
    platform: Platform,
    /// The time of all files, in seconds since 1970.
    time: u64,
    program: Vec<u8>,
    /// Completions and pages for `man`, with their paths below a prefix.
    texts: Vec<ArchiveFile>,
    /// The licences, ours and those of others.
    notices: Vec<ArchiveFile>,
}

#[derive(Debug, Default)]
struct DistOptions {
    binary: Option<PathBuf>,
    out: Option<PathBuf>,
    index: Option<PathBuf>,
    url: Option<String>,
}

pub(crate) fn run(words: &[String]) -> Result<()> {
    let options = parse(words)?;
    let version = env!("CARGO_PKG_VERSION");
    let url = options.url.clone().unwrap_or_else(|| format!("{URL}{version}"));
    if let Some(dir) = &options.index {
        return checksums::write(dir, version, &url);
    }
    let platform = Platform::here()?;
    if let Some(out) = &options.out {
        ensure_replaceable(out)?;
    }
    let program = match &options.binary {
        Some(it) => it.canonicalize().with_context(|| it.display().to_string())?,
        None => compile::run(platform)?,
    };
    let out = empty_directory(&options.out.unwrap_or_else(|| target().join("dist")), &program)?;
    let content = fs::read(&program)?;
    let (materials, components) = (Materials::new(platform.triple)?, components::of(&content, platform));
    let release = Release {
        version: version.to_owned(),
        platform,
        time: time()?,
        texts: texts(&program)?,
        notices: notices::files(&materials, &components)?,
        program: content,
    };
    write(&release, &out)?;
    let bill = sbom::text(version, &materials, &components);
    fs::write(out.join(format!("{}.cdx.json", platform.base(version))), bill)?;
    package::pack(&program, &release.notices, &out)?;
    checksums::write(&out, version, &url)?;
    lint(&release, &out)?;
    println!("{}", fs::read_to_string(out.join("SHA256SUMS"))?.trim_end());
    Ok(())
}

/// Builds the program of a release for this machine.
pub(crate) fn build() -> Result<PathBuf> {
    compile::run(Platform::here()?)
}

/// The licences for a program of this machine.
pub(crate) fn notices(program: &Path) -> Result<Vec<ArchiveFile>> {
    let platform = Platform::here()?;
    notices::files(&Materials::new(platform.triple)?, &components::of(&fs::read(program)?, platform))
}

fn parse(words: &[String]) -> Result<DistOptions> {
    let mut options = DistOptions::default();
    for pair in words.chunks(2) {
        let [option, value] = pair else { bail!(USAGE) };
        match option.as_str() {
            "--binary" => options.binary = Some(value.into()),
            "--out" => options.out = Some(value.into()),
            "--index" => options.index = Some(value.into()),
            "--url" => options.url = Some(value.trim_end_matches('/').to_owned()),
            _ => bail!(USAGE),
        }
    }
    Ok(options)
}

/// Fails for a directory with files that are not of a release, since it is emptied.
fn ensure_replaceable(out: &Path) -> Result<()> {
    let is_free = !out.exists() || fs::read_dir(out)?.next().is_none() || checksums::is_release(out)?;
    ensure!(is_free, "{} is not empty and not of `dist`: name another directory or empty it", out.display());
    Ok(())
}

/// Makes the directory for the files of a release. What is in it goes, so the program must not lie there.
fn empty_directory(out: &Path, program: &Path) -> Result<PathBuf> {
    if out.exists() {
        let real = out.canonicalize()?;
        ensure!(!program.starts_with(&real), "{} lies in {}, which is emptied", program.display(), out.display());
        fs::remove_dir_all(out)?;
    }
    fs::create_dir_all(out)?;
    Ok(out.canonicalize()?)
}

/// That of the last commit, or what packagers set.
fn time() -> Result<u64> {
    let seconds = match var("SOURCE_DATE_EPOCH") {
        Some(it) => it,
        None => sh("git", ["log", "-1", "--format=%ct"]).read()?,
    };
    seconds.parse().with_context(|| format!("{seconds} is no time in seconds"))
}

/// What the program writes about itself.
fn texts(program: &Path) -> Result<Vec<ArchiveFile>> {
    let mut texts = vec![];
    for (shell, path) in COMPLETIONS {
        let script = sh(program, ["completions", shell]).output()?;
        ensure!(script.status.success(), "{}: no completions for {shell}", program.display());
        texts.push(ArchiveFile::new(path, script.stdout));
    }
    let dir = target().join(format!("man-{}", std::process::id()));
    let pages = sh(program, [Path::new("man-pages"), &dir]).read().and_then(|_| pages(&dir));
    let _ = fs::remove_dir_all(&dir); // a leftover of a build is not worth a failure
    texts.extend(pages?);
    Ok(texts)
}

fn pages(dir: &Path) -> Result<Vec<ArchiveFile>> {
    let mut pages = vec![];
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = format!("share/man/man1/{}", entry.file_name().to_string_lossy());
        pages.push(ArchiveFile::new(path, fs::read(entry.path())?));
    }
    ensure!(!pages.is_empty(), "the program writes no pages for man");
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(pages)
}

/// The archive, the installer, and on Linux the Debian package and the image.
fn write(release: &Release, out: &Path) -> Result<()> {
    let installer = installer(&release.version)?;
    let mut files = vec![tarball(release, &installer)?, installer];
    if release.platform.is_linux {
        files.push(debian::package(release)?);
        files.push(container_image::archive(release)?);
    }
    for it in files {
        fs::write(out.join(&it.path), &it.content).with_context(|| format!("write {}", it.path))?;
    }
    Ok(())
}

fn installer(version: &str) -> Result<ArchiveFile> {
    let text = fs::read_to_string(root().join("packaging/install.sh")).context("read packaging/install.sh")?;
    Ok(ArchiveFile::program("install.sh", text.replace("@VERSION@", version)))
}

fn tarball(release: &Release, installer: &ArchiveFile) -> Result<ArchiveFile> {
    let mut files = release.texts.clone();
    files.push(ArchiveFile::program("bin/coracle", release.program.clone()));
    files.push(installer.clone());
    files.extend(release.notices.iter().cloned());
    for name in ["README.md", "CHANGELOG.md"] {
        files.push(ArchiveFile::new(name, fs::read(root().join(name))?));
    }
    let prefix = format!("{}/", release.platform.base(&release.version));
    Ok(ArchiveFile::new(release.platform.tarball(&release.version), tar_gz(&prefix, &files, release.time)?))
}

/// Debian's own check of the package, where it is installed.
fn lint(release: &Release, out: &Path) -> Result<()> {
    if !release.platform.is_linux {
        return Ok(());
    }
    if which("lintian").is_none() {
        println!("  the Debian package is not checked: no lintian on this machine");
        return Ok(());
    }
    let name = format!("coracle_{}_{}.deb", release.version, release.platform.debian);
    sh("lintian", ["--fail-on=error,warning", "--allow-root", &name]).dir(out).run()
}
