//! The second method: a bootstrap program installs packages from a mirror. Signatures are always checked.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_host::process::{self, Invocation, Stdin};
use coracle_types::Excerpt;

use super::apt::{self, DEBIAN};
use super::bootstrap::Bootstrap;
use super::host::DebianHost;
use super::packages::SEEDS;
use crate::error::BaseError;

/// Debian's current stable release, for a host that is not a Debian.
const STABLE: &str = "trixie";
/// Directories that only root can write.
const PROGRAM_DIRS: [&str; 3] = ["usr/sbin", "usr/bin", "sbin"];
const KEEP_BYTES: usize = 16 << 10;

/// The bootstrap program to run, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mirror {
    program: PathBuf,
    tool: Tool,
    pub(super) distribution: String,
    pub(super) suite: String,
    uri: String,
    arch: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Mmdebstrap,
    Debootstrap,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Mmdebstrap => "mmdebstrap",
            Self::Debootstrap => "debootstrap",
        }
    }
}

/// Selects program, suite and mirror: configured ones, else those of the host's apt, else Debian's.
///
/// # Errors
/// No program, with `why` the first way is closed; a configured value that cannot be used.
pub(super) fn select(recipe: &Bootstrap, arch: &str, why: String) -> Result<Mirror, BaseError> {
    let found =
        [Tool::Mmdebstrap, Tool::Debootstrap].into_iter().find_map(|tool| Some((tool, find(&recipe.root, tool)?)));
    let (tool, program) = found.ok_or(BaseError::NoWay { why })?;
    // A configured mirror is one of Debian's, and has no suite of another distribution.
    let host = DebianHost::inspect(&recipe.root).filter(|it| recipe.mirror.is_none() || it.os.id == "debian");
    let suite = match (&recipe.suite, &host) {
        (Some(suite), _) => checked_suite(suite)?,
        (None, Some(host)) => host.os.codename.clone(),
        (None, None) => STABLE.into(),
    };
    let own = host.as_ref().and_then(|host| apt::host_sources(host).into_iter().find(|it| it.has_suite(&suite)));
    let distribution = match (&host, &own) {
        (Some(host), Some(_)) => host.os.id.clone(),
        _ => "debian".into(),
    };
    let uri = match (&recipe.mirror, own) {
        (Some(uri), _) => checked_mirror(uri)?,
        (None, Some(own)) => own.uri,
        (None, None) => DEBIAN.into(),
    };
    Ok(Mirror { program, tool, distribution, suite, uri, arch: arch.to_owned() })
}

impl Mirror {
    /// Builds the tar, and returns it with a description of its source.
    ///
    /// # Errors
    /// If a program fails or takes too long.
    pub(super) async fn fetch(&self, temp_dir: &Path, deadline: Duration) -> Result<(File, String), BaseError> {
        let work = MirrorWorkDir::new(temp_dir).map_err(BaseError::io("make a temporary directory"))?;
        let (root, tar) = (work.path().join("root"), work.path().join("base.tar"));
        let target = if self.tool == Tool::Mmdebstrap { &tar } else { &root };
        run(self.tool.name(), Invocation::new(&self.program, self.words(target)), work.path(), deadline).await?;
        if self.tool == Tool::Debootstrap {
            run("tar", Invocation::new("/usr/bin/tar", tar_words(&root, &tar)), work.path(), deadline).await?;
        }
        let tar = File::open(&tar).map_err(BaseError::io("open the tar of the base"))?;
        let from = Excerpt::from_bytes(self.uri.as_bytes());
        Ok((tar, format!("made by {} from {from}, suite {}", self.tool.name(), self.suite)))
    }

    fn words(&self, target: &Path) -> Vec<String> {
        // Ubuntu has half of the seeds in `universe`.
        let components = if self.distribution == "ubuntu" { "main,universe" } else { "main" };
        let own = match self.tool {
            Tool::Mmdebstrap => vec![format!("--architectures={}", self.arch), "--format=tar".into()],
            // Without this option debootstrap skips the check if it finds no keyring.
            Tool::Debootstrap => vec![format!("--arch={}", self.arch), "--force-check-gpg".into()],
        };
        let include = format!("--include={},{}", super::packages::REQUIRED.join(","), SEEDS.join(","));
        let shared = ["--variant=minbase".to_owned(), format!("--components={components}"), include];
        // debootstrap does not support `--`. None of these begins with a dash: two were checked, and one is an
        // absolute path.
        let places = [self.suite.clone(), target.display().to_string(), self.uri.clone()];
        own.into_iter().chain(shared).chain(places).collect()
    }
}

/// Leaves out the packages that debootstrap has downloaded.
fn tar_words(root: &Path, tar: &Path) -> Vec<String> {
    let (root, tar) = (root.display(), tar.display());
    let own = ["--create", "--numeric-owner", "--exclude=./var/cache/apt/archives/*.deb"].map(str::to_owned);
    own.into_iter().chain([format!("--file={tar}"), format!("--directory={root}"), ".".into()]).collect()
}

async fn run(program: &'static str, mut it: Invocation, temp: &Path, deadline: Duration) -> Result<(), BaseError> {
    it.env.insert("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into());
    it.env.insert("LC_ALL".into(), "C.UTF-8".into());
    it.env.insert("TMPDIR".into(), temp.into());
    let done = process::run(program, &it, Stdin::Empty, (deadline, KEEP_BYTES)).await?;
    if done.ok() {
        return Ok(());
    }
    Err(BaseError::Program { program, exit: done.exit, excerpt: Excerpt::from_bytes(&done.stderr.bytes()) })
}

fn find(root: &Path, tool: Tool) -> Option<PathBuf> {
    PROGRAM_DIRS.iter().map(|dir| root.join(dir).join(tool.name())).find(|it| it.is_file())
}

/// Checks a suite, which becomes an argument and a part of an image's name.
fn checked_suite(suite: &str) -> Result<String, BaseError> {
    let fit = suite.starts_with(|c: char| c.is_ascii_lowercase())
        && suite.len() <= 32
        && suite.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let why = "lower-case letters, digits and `-`, first a letter, at most 32";
    fit.then(|| suite.to_owned()).ok_or(BaseError::Setting { setting: "suite", value: suite.into(), why })
}

/// Checks a mirror. Text that does not begin like a URL could be an option, a file with sources, or a source itself.
fn checked_mirror(uri: &str) -> Result<String, BaseError> {
    let value = Excerpt::from_bytes(uri.as_bytes()).as_str().to_owned();
    let fit = (uri.starts_with("http://") || uri.starts_with("https://"))
        && value == uri
        && !uri.contains(|c: char| c.is_whitespace() || c.is_control());
    let why = "an `http` or `https` URL without a user part";
    fit.then(|| uri.to_owned()).ok_or(BaseError::Setting { setting: "mirror", value, why })
}

/// A directory that is removed on drop, unless a killed program left something mounted in it: then removing
/// would delete through the mount.
struct MirrorWorkDir(Option<tempfile::TempDir>);

impl MirrorWorkDir {
    fn new(temp_dir: &Path) -> std::io::Result<Self> {
        fs::create_dir_all(temp_dir)?;
        let dir = tempfile::Builder::new().prefix("base-").tempdir_in(temp_dir.canonicalize()?)?;
        Ok(Self(Some(dir)))
    }

    fn path(&self) -> &Path {
        self.0.as_ref().expect("it is there until it is dropped").path()
    }
}

impl Drop for MirrorWorkDir {
    fn drop(&mut self) {
        let Some(dir) = self.0.take() else { return };
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if mounts.contains(&*dir.path().to_string_lossy()) {
            tracing::warn!(dir = %dir.path().display(), "not removed because something is mounted there");
            let _ = dir.keep();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(tool: Tool, distribution: &str) -> Mirror {
        let program = Path::new("/usr/bin").join(tool.name());
        let (suite, uri, arch) = ("noble".into(), "http://mirror/x".into(), "amd64".into());
        Mirror { program, tool, distribution: distribution.into(), suite, uri, arch }
    }

    #[test]
    fn the_same_packages_are_requested_and_signatures_are_checked() {
        let shown = |it: Mirror| it.words(Path::new("/t/out")).join(" ");
        insta::assert_snapshot!(shown(mirror(Tool::Mmdebstrap, "ubuntu")), @"--architectures=amd64 --format=tar --variant=minbase --components=main,universe --include=apt,bash,ca-certificates,curl,git,python3,jq,less,make,netbase,openssh-client,procps,python3-pip,python3-venv,ripgrep,tree,unzip,wget,xz-utils,zip noble /t/out http://mirror/x");
        insta::assert_snapshot!(shown(mirror(Tool::Debootstrap, "debian")), @"--arch=amd64 --force-check-gpg --variant=minbase --components=main --include=apt,bash,ca-certificates,curl,git,python3,jq,less,make,netbase,openssh-client,procps,python3-pip,python3-venv,ripgrep,tree,unzip,wget,xz-utils,zip noble /t/out http://mirror/x");
    }

    #[test]
    fn an_ambiguous_mirror_or_suite_is_refused() {
        for uri in [
            "--setup-hook=x",
            "file:///etc",
            "/etc/passwd",
            "deb http://a b c",
            "https://me:secret@a/debian",
            "http://a\nb",
        ] {
            let refused = checked_mirror(uri).unwrap_err().to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
        assert!(checked_mirror("https://a:8080/debian").is_ok());
        for suite in ["", "-x", "a/b", "Trixie", "a b"] {
            assert!(checked_suite(suite).is_err(), "{suite}");
        }
        assert!(checked_suite("bookworm-backports").is_ok());
    }
}
