//! Podman for a person who is not root: an account of ours, and what a login would have made for it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::{apt, podman};
use crate::sh::{Sh, sh};

pub(crate) const NAME: &str = "podman-rootless";

/// The account. `tests/engines/person.rs` knows it by this name.
const PERSON: &str = "coracle-test";

/// Number of ids that `useradd` gives to a person.
const IDS: u64 = 65_536;

/// The first id that `useradd` gives.
const FIRST_ID: u64 = 100_000;

#[derive(Debug)]
pub(crate) struct Person {
    uid: u32,
    gid: u32,
    home: PathBuf,
}

/// Creates the account with its subordinate ids; without root the caller is that account.
pub(super) fn up() -> Result<()> {
    podman::install()?;
    if !apt::is_root() {
        println!("  not root: Podman is rootless as it is");
        return Ok(());
    }
    podman::settings()?;
    let person = account()?;
    person.storage_settings()?;
    // The first call maps the ids, and has the best message if something is missing for it.
    person.runs("podman", &["unshare", "true"]).read().map(|_| ())
}

/// The account with its subordinate ids, and what a login would have made for it.
pub(super) fn account() -> Result<Person> {
    if Person::find().is_none() {
        sh("useradd", ["--system", "--create-home", "--home-dir", &format!("/home/{PERSON}"), PERSON]).run()?;
    }
    let person = Person::find().context("useradd made no account")?;
    for file in ["/etc/subuid", "/etc/subgid"] {
        let text = fs::read_to_string(file).unwrap_or_default();
        if let Some(text) = with_range(&text) {
            println!("  writes {file}");
            fs::write(file, text).with_context(|| format!("write {file}"))?;
        }
    }
    for device in ["/dev/fuse", "/dev/net/tun"] {
        if Path::new(device).exists() {
            mode(Path::new(device), 0o666)?;
        }
    }
    person.directories()?;
    Ok(person)
}

/// Ends what runs for the account. Nothing else of it is a process: there is no daemon, only one that holds the ids.
pub(super) fn down() -> Result<()> {
    match Person::find().filter(|_| apt::is_root()) {
        Some(person) if version().is_some() => {
            person.runs("podman", &["rm", "--all", "--force", "--time=0"]).read()?;
            person.runs("podman", &["system", "migrate"]).read()?;
            println!("{NAME}: nothing of {PERSON} runs any more; the account stays");
        }
        _ => println!("{NAME}: not made by `engines up`, left alone"),
    }
    Ok(())
}

/// The program's version, if it runs for the account.
pub(super) fn version() -> Option<String> {
    let person = Person::find().filter(|_| apt::is_root())?;
    let version = person.runs("podman", &["info", "--format={{.Version.Version}} {{.Host.Security.Rootless}}"]).read();
    version.ok()?.strip_suffix(" true").map(str::to_owned)
}

impl Person {
    pub(crate) fn find() -> Option<Self> {
        let passwd = fs::read_to_string("/etc/passwd").ok()?;
        let line = passwd.lines().find_map(|it| it.strip_prefix(PERSON)?.strip_prefix(':'))?;
        let fields: Vec<&str> = line.split(':').collect();
        Some(Self { uid: fields.get(1)?.parse().ok()?, gid: fields.get(2)?.parse().ok()?, home: fields.get(4)?.into() })
    }

    /// A program with this person's rights and an environment as after a login.
    pub(crate) fn runs(&self, program: &str, words: &[&str]) -> Sh {
        let (uid, gid) = (format!("--reuid={}", self.uid), format!("--regid={}", self.gid));
        let (home, runtime) = (format!("HOME={}", self.home.display()), format!("XDG_RUNTIME_DIR={}", self.runtime()));
        let login = ["--clear-groups", "env", "-i", "PATH=/usr/bin:/bin:/usr/sbin:/sbin"];
        let before = [&*uid, &gid].into_iter().chain(login).chain([&*home, &runtime, program]);
        sh("setpriv", before.chain(words.iter().copied())).dir(Path::new("/"))
    }

    /// Where this person's temporary files are.
    pub(crate) fn temp_dir(&self) -> PathBuf {
        self.home.join("tmp")
    }

    /// A copy of a program that this person can run: directories of root's may be closed to others.
    pub(crate) fn copy_of(&self, program: &Path) -> Result<PathBuf> {
        let copy = self.temp_dir().join(program.file_name().context("a program has a name")?);
        fs::copy(program, &copy).with_context(|| format!("copy {}", program.display()))?;
        mode(&copy, 0o755)?;
        Ok(copy)
    }

    fn runtime(&self) -> String {
        format!("/run/user/{}", self.uid)
    }

    fn directories(&self) -> Result<()> {
        let runtime = PathBuf::from(self.runtime());
        fs::create_dir_all(&runtime)?;
        self.owns(&runtime)?;
        mode(&runtime, 0o700)?;
        // Tests put their temporary files into `tmp`: names in the one of all people are root's already.
        for dir in ["tmp", ".config", ".config/containers"] {
            let dir = self.home.join(dir);
            fs::create_dir_all(&dir)?;
            self.owns(&dir)?;
        }
        Ok(())
    }

    fn storage_settings(&self) -> Result<()> {
        let file = self.home.join(".config/containers/storage.conf");
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let text = self.storage(is_native(&kernel));
        if fs::read_to_string(&file).is_ok_and(|it| it == text) {
            return Ok(());
        }
        println!("  writes {}", file.display());
        fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
        self.owns(&file)
    }

    /// With full paths, so that a process with another `HOME` uses the same images: each test has a home of its own.
    fn storage(&self, native: bool) -> String {
        let (home, runtime) = (self.home.display(), self.runtime());
        let paths =
            format!("graphroot = \"{home}/.local/share/containers/storage\"\nrunroot = \"{runtime}/containers\"\n");
        let fuse = "[storage.options.overlay]\nmount_program = \"/usr/bin/fuse-overlayfs\"\n";
        format!("[storage]\ndriver = \"overlay\"\n{paths}{}", if native { "" } else { fuse })
    }

    fn owns(&self, path: &Path) -> Result<()> {
        chown(path, Some(self.uid), Some(self.gid)).with_context(|| format!("give {} to {PERSON}", path.display()))
    }
}

/// Why the account cannot run the programs that were built here.
pub(crate) fn reaches(program: &Path) -> Result<()> {
    let person = Person::find().with_context(|| format!("there is no account {PERSON}"))?;
    if !person.runs("test", &["-x", &program.to_string_lossy()]).succeeds() {
        bail!("{PERSON} may not run {}: some directory above it is closed to others", program.display());
    }
    Ok(())
}

/// Linux mounts layers without root from 5.13 on. FUSE does it elsewhere, several times slower.
fn is_native(kernel: &str) -> bool {
    let mut numbers = kernel.split(['.', '-']).map_while(|it| it.trim().parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(5), Some(13))
}

/// The file with a range for the account, behind all others; none if it has one.
fn with_range(text: &str) -> Option<String> {
    if text.lines().any(|it| it.starts_with(&format!("{PERSON}:"))) {
        return None;
    }
    let end = |line: &str| {
        let (start, count) = line.split_once(':')?.1.split_once(':')?;
        Some(start.parse::<u64>().ok()? + count.trim().parse::<u64>().ok()?)
    };
    let start = text.lines().filter_map(end).fold(FIRST_ID, u64::max);
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    Some(format!("{text}{gap}{PERSON}:{start}:{IDS}\n"))
}

fn mode(path: &Path, mode: u32) -> Result<()> {
    let set = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    set.with_context(|| format!("set the mode of {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ids_is_unused_and_given_once() {
        assert_eq!(with_range("").as_deref(), Some("coracle-test:100000:65536\n"));
        let text = with_range("ada:100000:65536\nbob:300000:10").expect("a range");
        assert_eq!(text, "ada:100000:65536\nbob:300000:10\ncoracle-test:300010:65536\n");
        assert_eq!(with_range(&text), None);
    }

    #[test]
    fn layers_need_no_fuse_from_linux_5_13_on() {
        for (kernel, native) in [("6.1.0-13-amd64\n", true), ("5.13.0", true), ("5.10.0-9", false), ("4.19", false)] {
            assert_eq!(is_native(kernel), native, "{kernel}");
        }
    }
}
