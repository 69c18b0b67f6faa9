//! Tests the guest's program as PID 1 of a PID namespace.
#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "the tests start the program as an engine does")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const GUEST: &str = env!("CARGO_BIN_EXE_coracle-guest");

/// A PID namespace; descriptor 5 is the exit file.
struct Namespace {
    dir: TempDir,
}

impl Namespace {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts `coracle-guest` with these arguments in shell syntax. The namespace ends with the returned process.
    fn start(&self, args: &str) -> Child {
        self.shell(&self.script(args)).spawn().unwrap()
    }

    fn script(&self, args: &str) -> String {
        let user = if rustix::process::geteuid().is_root() { "" } else { "--user --map-root-user" };
        format!("exec unshare {user} --pid --fork --kill-child -- {GUEST} {args} 5>exit")
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).current_dir(self.dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &str) -> Output {
        self.start(args).wait_with_output().unwrap()
    }

    fn exit(&self) -> String {
        fs::read_to_string(self.file("exit")).unwrap()
    }

    /// Waits for a file that a process inside writes.
    fn wait_for(&self, name: &str) {
        wait_until(|| self.file(name).exists());
    }
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "timeout");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn children(of: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    listed.split_whitespace().map(|it| it.parse().unwrap()).collect()
}

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap().success());
}

/// PID 1 is the only child of `unshare`.
fn signal_pid_1(unshare: &Child, name: &str) {
    signal(children(unshare.id())[0], name);
}

#[test]
fn the_exit_code_of_the_program_is_written_to_the_exit_file() {
    for (program, code) in [
        ("true", 0),
        ("sh -c 'exit 42'", 42),
        ("sh -c 'kill -KILL $$'", 137),
        ("no-such-program", 127),
        ("/no/such/program", 127),
        ("/etc/passwd", 126),
        ("/", 126),
    ] {
        let namespace = Namespace::new();
        let output = namespace.run(&format!("run --exit-fd=5 -- {program}"));
        assert_eq!((output.status.code(), &*namespace.exit()), (Some(code), &*code.to_string()), "{program}");
        assert_eq!(output.stderr.is_empty(), code < 126 || code == 137, "{program}: {output:?}");
    }
}

#[test]
fn commands_inherit_no_descriptor_of_the_engine() {
    let namespace = Namespace::new();
    let probe = "for it in 3 4 5 6 7; do ( : >&$it ) 2>/dev/null || echo closed; done";
    let output = namespace.run(&format!("run --exit-fd=5 -- sh -c '{probe}'"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "closed\n".repeat(5));
}

#[test]
fn signals_are_forwarded_and_remaining_processes_are_ended() {
    let namespace = Namespace::new();
    let program = "trap \"echo usr1; touch received\" USR1; trap \"echo term; exit 7\" TERM; \
        ( trap \"\" TERM; echo left behind; touch ready; while :; do sleep 0.05; done ) & \
        ( trap \"touch ended; exit\" TERM; while :; do sleep 0.05; done ) & \
        while :; do sleep 0.05; done";
    let mut unshare = namespace.start(&format!("run --exit-fd=5 --log-max=1000000 --grace=1 -- sh -c '{program}'"));
    namespace.wait_for("ready");
    signal_pid_1(&unshare, "USR1");
    namespace.wait_for("received");
    signal_pid_1(&unshare, "TERM");
    assert_eq!(unshare.wait().unwrap().code(), Some(7));
    assert_eq!(namespace.exit(), "7");
    let log = String::from_utf8(unshare.wait_with_output().unwrap().stdout).unwrap();
    assert!(log.starts_with("left behind\nusr1\nterm\n"), "{log}");
    assert!(namespace.file("ended").exists());
}

#[test]
fn the_log_contains_both_outputs_completely_and_in_order() {
    let namespace = Namespace::new();
    let output = namespace
        .run("run --log-max=100000000 -- sh -c 'for it in 1 2 3; do echo $it; echo $it >&2; done; seq 200000'");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let log = String::from_utf8(output.stdout).unwrap();
    assert!(log.starts_with("1\n1\n2\n2\n3\n3\n1\n2\n") && log.ends_with("\n199999\n200000\n"));
    assert_eq!(log.lines().count(), 200_006);
}

#[test]
fn the_program_gets_its_directory_and_user() {
    let namespace = Namespace::new();
    let user = if rustix::process::geteuid().is_root() { "--user=12:34" } else { "" };
    let output = namespace.run(&format!("run {user} --workdir=/usr -- sh -c 'pwd; id -u; id -G'"));
    let expected = if user.is_empty() { "/usr\n0\n" } else { "/usr\n12\n34\n" };
    assert!(String::from_utf8_lossy(&output.stdout).starts_with(expected), "{output:?}");
    assert_eq!(namespace.run("run --exit-fd=5 --workdir=/no/dir -- true").status.code(), Some(1));
    assert_eq!(namespace.exit(), "1");
}

/// Does not use a shell, which would reset an inherited signal mask.
#[test]
fn the_program_starts_with_no_signal_blocked() {
    let output = Namespace::new().run("run -- grep SigBlk /proc/self/status");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "SigBlk:\t0000000000000000\n");
}

#[test]
fn orphans_are_reaped() {
    let namespace = Namespace::new();
    let orphans = "for it in $(seq 50); do ( true & ) ; done; touch ready; while ! test -e done; do sleep 0.05; done";
    let mut unshare = namespace.start(&format!("run -- sh -c '{orphans}'"));
    namespace.wait_for("ready");
    let pid_1 = children(unshare.id())[0];
    wait_until(|| children(pid_1).len() == 1);
    fs::write(namespace.file("done"), "").unwrap();
    assert!(unshare.wait().unwrap().success());
}

#[test]
fn it_refuses_to_run_as_another_pid_and_invalid_arguments() {
    let namespace = Namespace::new();
    let out = Command::new(GUEST).args(["run", "--", "touch"]).arg(namespace.file("ran")).output().unwrap();
    assert!(!out.status.success() && !namespace.file("ran").exists());
    for args in ["run true", "run --exit-fd=x -- true", "run --log-max= -- true", "init --exit-fd"] {
        assert_eq!(namespace.run(args).status.code(), Some(1), "{args}");
    }
}

#[test]
fn a_supervisor_that_cannot_start_writes_its_exit_code() {
    let namespace = Namespace::new();
    let output = namespace.run("init --lifeline=5 --exit-fd=5");
    assert_eq!((output.status.code(), &*namespace.exit()), (Some(1), "1"), "{output:?}");
}

#[test]
fn a_gated_program_starts_after_the_byte_and_does_not_read_it() {
    let namespace = Namespace::new();
    for (opened, code, printed) in [("printf 1", 0, "read nothing\n"), ("true", 125, "")] {
        let script = format!(
            "{opened} | ({})",
            namespace.script("run --gate --exit-fd=5 -- sh -c 'read it || echo read nothing'")
        );
        let output = namespace.shell(&script).output().unwrap();
        assert_eq!((&*namespace.exit(), &*String::from_utf8_lossy(&output.stdout)), (&*code.to_string(), printed));
    }
    let script = format!("sleep 60 | ({}); true", namespace.script("run --gate --exit-fd=5 -- touch ran"));
    let mut shell = namespace.shell(&script).spawn().unwrap();
    wait_until(|| children(shell.id()).into_iter().any(|it| !children(it).is_empty()));
    let unshare = children(shell.id()).into_iter().find(|it| !children(*it).is_empty()).unwrap();
    let pid_1 = children(unshare)[0];
    let status = || fs::read_to_string(format!("/proc/{pid_1}/status")).unwrap();
    // Until it handles them, the kernel does not deliver signals to PID 1. `unshare` blocks some meanwhile, too.
    wait_until(|| status().contains("Name:\tcoracle-guest") && !status().contains("SigBlk:\t0000000000000000"));
    signal(pid_1, "TERM");
    wait_until(|| namespace.exit() == "143");
    // `unshare` ends now; only `sleep` remains.
    wait_until(|| children(shell.id()).len() == 1);
    signal(children(shell.id())[0], "KILL");
    shell.wait().unwrap();
    assert!(!namespace.file("ran").exists());
}
