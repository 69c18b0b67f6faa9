//! Kills by `strace`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::case::Prepared;
use crate::operation::{VICTIM, words};

/// System calls that change what others see. Between two of them nothing changes.
const CHANGES: &str = "mkdir,mkdirat,rmdir,rename,renameat,renameat2,symlink,symlinkat,link,linkat,unlink,unlinkat,chmod,\
    fchmod,fchmodat,chown,fchown,lchown,fchownat,ftruncate,write,pwrite64,sendfile,copy_file_range,fsync,syncfs,flock,\
    mknod,mknodat,setxattr,fsetxattr,lsetxattr,utimensat,clone,clone3,vfork,fork,execve,setns,unshare,fsopen,fsconfig,fsmount,\
    move_mount,open_tree,mount_setattr,mount,umount2,pivot_root,kill,tgkill,pidfd_send_signal,sendto,sendmsg,bind";

const PATIENCE: Duration = Duration::from_secs(30);

/// The n-th call of that name in a thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KillPoint {
    number: usize,
    call: String,
}

/// Runs the operation to its end, and finds all points.
pub(crate) async fn kill_points(prepared: &Prepared) -> Vec<KillPoint> {
    let log = prepared.data.with_file_name("strace.log");
    let mut victim = start(prepared, &["-o", log.to_str().unwrap()]);
    assert!(wait(&mut victim).await.success(), "the operation fails under strace");
    points(&std::fs::read_to_string(log).unwrap())
}

/// Runs the operation until that point, if it is met.
pub(crate) async fn kill_at(prepared: &Prepared, point: &KillPoint) {
    let inject = format!("inject={}:signal=SIGKILL:when={}", point.call, point.number);
    let mut victim = start(prepared, &["-o", "/dev/null", "-e", &inject]);
    wait(&mut victim).await;
}

/// The victim is the child, and `strace` its child: a container that goes on is no reason to wait.
#[expect(clippy::disallowed_methods, reason = "a process of the test")]
fn start(prepared: &Prepared, options: &[&str]) -> Child {
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-qq", "-e", &format!("trace={CHANGES}"), "-e", "signal=none"]).args(options);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "victim"]);
    command.env(VICTIM, words(prepared.operation, &prepared.data));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("tests need `strace`")
}

async fn wait(victim: &mut Child) -> std::process::ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = victim.try_wait().unwrap() {
            return status;
        }
        assert!(begun.elapsed() < PATIENCE, "the victim hangs");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Lines are `PID CALL(…`. The most calls of a name that one thread made are as many points.
fn points(log: &str) -> Vec<KillPoint> {
    let mut counts = BTreeMap::<(&str, &str), usize>::new();
    for line in log.lines() {
        let Some((pid, call)) = line.split_once(' ') else { continue };
        let Some((call, _)) = call.trim_start().split_once('(') else { continue };
        if call.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_') {
            *counts.entry((pid, call)).or_default() += 1;
        }
    }
    let mut most = BTreeMap::<&str, usize>::new();
    for ((_, call), count) in counts {
        let known = most.entry(call).or_default();
        *known = count.max(*known);
    }
    let all = most.into_iter().flat_map(|(call, most)| (1..=most).map(|it| (call.to_owned(), it)));
    all.map(|(call, number)| KillPoint { number, call }).collect()
}

/// Kills what is left of a victim's tracer: it ends with the last process that it traces.
pub(crate) fn processes_with(text: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else { continue };
        let environment = std::fs::read(Path::new("/proc").join(format!("{pid}/environ"))).unwrap_or_default();
        if environment.split(|it| *it == 0).any(|it| String::from_utf8_lossy(it).starts_with(text)) {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}
