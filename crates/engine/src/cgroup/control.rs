//! Freezing, thawing and killing all processes of a container.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use coracle_types::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::group::{ContainerGroup, field, is_gone};
use super::{failed, pause};

/// Timeout for freezing: a process in an uninterruptible wait (a slow disk, a dead NFS server) does not freeze.
const FREEZING: Duration = Duration::from_secs(5);

const KILLING: Duration = Duration::from_secs(10);

const PAUSE: Duration = Duration::from_micros(200);

impl ContainerGroup {
    /// Whether there is a group that can freeze. Without root, version 1 has none.
    pub(crate) fn can_freeze(&self) -> bool {
        self.unified.is_some() || self.by_controller.contains_key("freezer")
    }

    /// Freezes all processes and waits until they are frozen. After an error they run again.
    pub(crate) fn freeze(&self) -> Result<()> {
        let (dir, frozen) = match (&self.unified, self.by_controller.get("freezer")) {
            (Some(dir), _) => (dir, freeze_unified(dir)),
            (None, Some(dir)) => (dir, freeze_version_1(dir)),
            (None, None) => {
                let no_group = io::Error::from(io::ErrorKind::Unsupported);
                return Err(failed(
                    "freeze processes without a control group at",
                    Path::new("/sys/fs/cgroup"),
                    no_group,
                ));
            }
        };
        frozen.map_err(|error| {
            let _ = self.thaw();
            failed("freeze", dir, error)
        })
    }

    /// Whether its processes are frozen or being frozen.
    pub(crate) fn is_frozen(&self) -> bool {
        match (&self.unified, self.by_controller.get("freezer")) {
            (Some(dir), _) => fs::read_to_string(dir.join("cgroup.freeze")).is_ok_and(|it| it.trim() == "1"),
            (None, Some(dir)) => fs::read_to_string(dir.join("freezer.state")).is_ok_and(|it| it.trim() != "THAWED"),
            (None, None) => false,
        }
    }

    /// Thaws all processes. A group that was removed, or never frozen, is no error.
    pub(crate) fn thaw(&self) -> Result<()> {
        let (path, word) = match (&self.unified, self.by_controller.get("freezer")) {
            (Some(dir), _) => (dir.join("cgroup.freeze"), "0"),
            (None, Some(dir)) => (dir.join("freezer.state"), "THAWED"),
            (None, None) => return Ok(()),
        };
        match fs::write(&path, word) {
            Err(error) if !is_gone(&error) && path.exists() => Err(failed("write", &path, error)),
            _ => Ok(()),
        }
    }

    /// Kills all processes, even frozen ones. They may not have ended yet when this returns.
    pub(crate) fn kill(&self) -> Result<()> {
        if let Some(dir) = &self.unified
            && fs::write(dir.join("cgroup.kill"), "1").is_ok()
        {
            return Ok(());
        }
        self.kill_each()
    }

    /// Kills each process, for version 1 and kernels before 5.14. Repeated, since processes fork meanwhile. Zombies are
    /// skipped, or this would never end.
    fn kill_each(&self) -> Result<()> {
        let deadline = Instant::now() + KILLING;
        loop {
            let alive: Vec<_> = self.processes()?.into_iter().filter(|it| is_alive(*it)).collect();
            if alive.is_empty() || Instant::now() > deadline {
                return Ok(());
            }
            self.kill_members(&alive)?;
            self.thaw()?;
            pause(PAUSE);
        }
    }

    /// Kills these processes. Since numbers are reused, each process is opened, and killed only if it still is a member.
    fn kill_members(&self, pids: &[u32]) -> Result<()> {
        let held: Vec<_> = pids.iter().filter_map(|pid| Some((*pid, hold(*pid)?))).collect();
        let members = self.processes()?;
        for (_, process) in held.iter().filter(|(pid, _)| members.contains(pid)) {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        Ok(())
    }
}

/// Opens a process. `None` if it has ended.
fn hold(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|it| !it.1.starts_with(['Z', 'X']))
}

/// Freezes a group of version 2. The kernel reports a change of `cgroup.events` as a priority event.
fn freeze_unified(dir: &Path) -> io::Result<()> {
    let deadline = Instant::now() + FREEZING;
    let events = File::open(dir.join("cgroup.events"))?;
    fs::write(dir.join("cgroup.freeze"), "1")?;
    loop {
        // Reading also arms the next event.
        let text = read_again(&events)?;
        if field(&text, "frozen") == Some(1) || field(&text, "populated") == Some(0) {
            return Ok(());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        poll(&mut [PollFd::new(&events, PollFlags::PRI)], Some(&timeout))?;
    }
}

fn read_again(file: &File) -> io::Result<String> {
    use std::os::unix::fs::FileExt as _;
    let mut buffer = [0; 256];
    let length = file.read_at(&mut buffer, 0)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// Freezes a group of version 1, which has no event for it. The state is written repeatedly, to include processes that were
/// just forked.
fn freeze_version_1(dir: &Path) -> io::Result<()> {
    let deadline = Instant::now() + FREEZING;
    let state = dir.join("freezer.state");
    loop {
        fs::write(&state, "FROZEN")?;
        if fs::read_to_string(&state)?.trim() == "FROZEN" {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        pause(PAUSE);
    }
}
