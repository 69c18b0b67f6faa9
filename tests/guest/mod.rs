//! The guest in real containers, and where useful in those of the fake.

mod bytes;
mod ending;
mod files;
mod filter;
mod flood;
mod images;
mod many;
mod relay;
mod removed;
mod session;
mod setid;
pub(crate) mod shell;
mod space;
mod takeover;
mod users;
mod wait;
mod walk;

use std::path::Path;
use std::time::Duration;

use coracle_protocol::{FileRef, UserSpec};
use coracle_types::{Command, ContainerId, ContainerPath, Exec, ExecLimits, Ids};
use tokio::time::{Instant, sleep};

use crate::engines::{Case, Running, Way, tar_of};

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

fn at(user: Ids, path: &str) -> FileRef {
    FileRef { user: UserSpec::Ids { uid: user.uid, gid: Some(user.gid) }, path: path.into(), follow: true }
}

/// The path of the host's Perl inside.
const PERL: &str = "/perl";

/// Libraries that a Perl may need. Which of them there are depends on the system.
const LIBRARIES: [&str; 5] = ["libc.so.6", "libm.so.6", "libcrypt.so.1", "libdl.so.2", "libpthread.so.0"];

/// A container with a guest and with the host's Perl, for what no busybox can do: system calls by number, and sockets
/// with a path.
async fn with_perl(case: &Case) -> Running<'_> {
    let running = case.runs(Way::Socket).await;
    add_perl(&running).await;
    running
}

pub(crate) async fn add_perl(running: &Running<'_>) {
    add_perl_to(running.case, &running.id).await;
}

/// As [`add_perl`], for a container of another owner.
pub(crate) async fn add_perl_to(case: &Case, container: &ContainerId) {
    let (arch, loader) = if cfg!(target_arch = "aarch64") {
        ("aarch64", "/lib/ld-linux-aarch64.so.1")
    } else {
        ("x86_64", "/lib64/ld-linux-x86-64.so.2")
    };
    let found = |name: &&str| {
        let dirs = [format!("/lib/{arch}-linux-gnu"), "/lib64".into()];
        dirs.iter().map(|dir| Path::new(dir).join(name)).find(|it| it.is_file())
    };
    let libraries = LIBRARIES.iter().filter_map(|it| Some((*it, found(it)?)));
    let files: Vec<_> = libraries.chain([("perl", "/usr/bin/perl".into()), ("ld.so", loader.into())]).collect();
    let tar = tar_of(|tar| {
        for (name, path) in files {
            let path = path.canonicalize().expect("these tests need /usr/bin/perl, as Debian and Ubuntu have it");
            tar.append_path_with_name(path, format!("{}/{name}", &PERL[1..])).unwrap();
        }
    });
    case.runtime.upload(container, &ContainerPath::root(), tar).await.unwrap();
}

pub(crate) fn perl(program: &str) -> Exec {
    let words = perl_command(program);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    // Its image has no locale, of which Perl would complain.
    Exec { env: [("LC_ALL".to_owned(), "C".to_owned())].into(), ..argv(&words) }
}

pub(crate) fn perl_command(program: &str) -> [String; 6] {
    [&format!("{PERL}/ld.so"), "--library-path", PERL, &format!("{PERL}/perl"), "-e", program].map(str::to_owned)
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

/// The most additional memory of guest and test during an operation.
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

/// Zombies of the container.
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
