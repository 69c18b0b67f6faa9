//! The guest in real containers, and where it means something in the fake's: what containers.md 9 and 10 and security.md
//! 13 promise of it.

mod bytes;
mod ending;
mod files;
mod filter;
mod flood;
mod images;
mod many;
mod takeover;

use std::path::Path;
use std::time::Duration;

use coracle_runtime::host::fs::HostPath;
use coracle_runtime::link::wire::{At, Who};
use coracle_runtime::{Access, Command, ContainerPath, CreateSpec, Exec, ExecLimits, Ids, Mount};
use tokio::time::{Instant, sleep};

use crate::engines::{Case, Running, Way};

/// The user of most commands of agents.
const AGENT: Ids = Ids { uid: 1000, gid: 1000 };

const MIB: u64 = 1 << 20;

fn sh(script: &str) -> Exec {
    Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root())
}

fn argv(words: &[&str]) -> Exec {
    let words = words.iter().copied().map(str::to_owned).collect();
    Exec::new(Command::Argv(words), Ids::ROOT, ContainerPath::root())
}

fn total(ms: u64) -> ExecLimits {
    ExecLimits { total: Some(Duration::from_millis(ms)), ..ExecLimits::default() }
}

fn at(user: Ids, path: &str) -> At {
    At { user: Who::Ids { uid: user.uid, gid: Some(user.gid) }, path: path.into(), follow: true }
}

/// A container with a guest and with the host's Perl, for what no busybox can do: system calls by number, and sockets
/// with a path.
async fn with_perl(case: &Case) -> Running<'_> {
    let there = |path: &&str| Path::new(path).is_dir();
    let mounts = ["/usr", "/lib", "/lib64"].into_iter().filter(there).map(|dir| Mount {
        host: HostPath::open(Path::new(dir)).unwrap(),
        at: ContainerPath::parse(dir).unwrap(),
        access: Access::ReadOnly,
    });
    let spec = CreateSpec { mounts: mounts.collect(), ..case.spec("perl") };
    case.run(Way::Socket, spec, &case.image).await
}

fn perl(program: &str) -> Exec {
    argv(&["/usr/bin/perl", "-e", program])
}

/// Waits until it is so, for 10 s at most.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < Duration::from_secs(10), "not within 10 s: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Bytes of memory that a process of this host holds.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// The most that guest and test hold beyond what they held before, while something is done.
async fn memory_grows<T>(running: &Running<'_>, work: impl Future<Output = T>) -> (T, u64) {
    let pids = [running.pid1(), std::process::id()];
    let before = pids.map(memory);
    let mut most = 0;
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return (done, most),
            () = sleep(Duration::from_millis(5)) => {
                let now = pids.iter().zip(before).map(|(pid, before)| memory(*pid).saturating_sub(before));
                most = now.fold(most, u64::max);
            }
        }
    }
}

/// Processes of the container that ended and were not taken leave of.
fn zombies(running: &Running<'_>) -> Vec<String> {
    let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = space(&running.pid1().to_string());
    assert!(own.is_some(), "PID 1 is there");
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|it| it.unwrap().file_name().into_string().ok());
    let stats = pids.filter(|it| space(it) == own).filter_map(|it| {
        let stat = std::fs::read_to_string(format!("/proc/{it}/stat")).ok()?;
        stat.rsplit_once(") Z ").is_some().then_some(stat)
    });
    stats.collect()
}
