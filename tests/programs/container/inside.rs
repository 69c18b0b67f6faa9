//! The code of this program within the namespaces of a container, before it executes the command.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use crate::state::{Mount, StoredContainer};

/// The namespaces that each container has, as `unshare` and `nsenter` name them.
pub(crate) const ISOLATED: [&str; 4] = ["--mount", "--pid", "--ipc", "--uts"];

/// Devices that a container sees.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// The entry of this process into a container.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) root: PathBuf,
    pub(crate) env: Vec<String>,
    pub(crate) user: String,
    pub(crate) workdir: String,
    pub(crate) capabilities: Vec<String>,
    pub(crate) command: Vec<String>,
}

pub(crate) fn run(what: &str, words: &[String]) -> Result<u8> {
    match (what, words) {
        ("init", [stored, root, ready]) => {
            init(&serde_json::from_slice(&fs::read(stored)?)?, root.as_ref(), ready.as_ref())
        }
        ("enter", [entry]) => enter(&serde_json::from_str(entry)?),
        _ => bail!("unknown"),
    }
}

/// The first process: sets up mounts, limits and user.
fn init(stored: &StoredContainer, root: &Path, ready: &Path) -> Result<u8> {
    rustix::system::sethostname(stored.id.as_bytes())?;
    if stored.networks.is_empty() {
        let _ = Command::new("/usr/sbin/ip").args(["link", "set", "lo", "up"]).status();
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount_bind_recursive(root, root).context("the root")?;
    let at = |path: &str| root.join(path.trim_start_matches('/'));
    own(&at("proc"), "proc", "")?;
    own(&at("sys"), "sysfs", "")?;
    own(&at("dev"), "tmpfs", "mode=0755")?;
    for device in DEVICES {
        bind(&Path::new("/dev").join(device), &at("dev").join(device), false)?;
    }
    own(&at("dev/shm"), "tmpfs", "mode=1777")?;
    own(&at("dev/pts"), "devpts", "newinstance,ptmxmode=0666,mode=0620")?;
    std::os::unix::fs::symlink("pts/ptmx", at("dev/ptmx"))?;
    for (name, fd) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        std::os::unix::fs::symlink(format!("/proc/self/fd{fd}"), at("dev").join(name))?;
    }
    for it in &stored.mounts {
        match it {
            Mount::Bind { source, target, read_only } => bind(source, &at(target), *read_only)?,
            Mount::Tmpfs { target, options } => own(&at(target), "tmpfs", options)?,
        }
    }
    if stored.read_only {
        mount_remount(root, MountFlags::BIND | MountFlags::RDONLY, "")?;
    }
    File::create(ready)?;
    enter(&Entry {
        root: root.to_owned(),
        env: stored.env.clone(),
        user: stored.user.clone(),
        workdir: stored.workdir.clone(),
        capabilities: stored.capabilities.clone(),
        command: stored.command.clone(),
    })
}

/// A file system of its own.
fn own(at: &Path, kind: &str, options: &str) -> Result<()> {
    fs::create_dir_all(at)?;
    let options = std::ffi::CString::new(options)?;
    let flags = MountFlags::NOSUID;
    mount(kind, at, kind, flags, Some(options.as_c_str())).with_context(|| format!("{kind} at {}", at.display()))
}

fn bind(source: &Path, at: &Path, read_only: bool) -> Result<()> {
    if source.is_dir() {
        fs::create_dir_all(at)?;
    } else {
        fs::create_dir_all(at.parent().unwrap_or(at))?;
        if !at.exists() {
            File::create(at)?;
        }
    }
    mount_bind_recursive(source, at).with_context(|| format!("{} at {}", source.display(), at.display()))?;
    if read_only {
        mount_remount(at, MountFlags::BIND | MountFlags::RDONLY, "")?;
    }
    Ok(())
}

/// Becomes the command.
fn enter(entry: &Entry) -> Result<u8> {
    rustix::process::chroot(&entry.root)?;
    std::env::set_current_dir(&entry.workdir).context("the work directory")?;
    drop_capabilities(&entry.capabilities)?;
    let ids = |text: &str| -> Result<(u32, u32)> {
        let (uid, gid) = text.split_once(':').unwrap_or((text, text));
        Ok((uid.parse()?, gid.parse()?))
    };
    let (uid, gid) = if entry.user.is_empty() { (0, 0) } else { ids(&entry.user).unwrap_or((0, 0)) };
    let [program, arguments @ ..] = entry.command.as_slice() else { bail!("no command") };
    // A process of root that changes its user drops its groups.
    let mut command = Command::new(program);
    command.args(arguments).env_clear().uid(uid).gid(gid);
    command.envs(entry.env.iter().filter_map(|it| it.split_once('=')));
    let failed = command.exec();
    writeln!(std::io::stderr(), "Error: failed to find target executable {program}: {failed}")?;
    Ok(if failed.kind() == std::io::ErrorKind::PermissionDenied { 126 } else { 127 })
}

/// A program cannot gain a capability that was not given, as whatever user it runs.
fn drop_capabilities(given: &[String]) -> Result<()> {
    for (name, capability) in CapabilitySet::all().iter_names() {
        let named = |it: &String| it.strip_prefix("CAP_").unwrap_or(it) == name;
        if !given.iter().any(named) && rustix::thread::capability_is_in_bounding_set(capability)? {
            rustix::thread::remove_capability_from_bounding_set(capability)?;
        }
    }
    Ok(())
}
