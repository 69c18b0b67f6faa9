//! Tests with real processes of this machine. Tests that need root are skipped without it.

mod ending;
mod users;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::Instant;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::os::machine::{Exit, SessionVariables};
use crate::protocol::TerminalSize;

/// A user that exists on no machine.
const STRANGER: UserSpec = UserSpec::Ids { uid: 61_234, gid: Some(61_235) };
const GRACE: Duration = Duration::from_millis(200);

fn is_root() -> bool {
    let root = geteuid().is_root();
    if !root {
        coracle_skips::skip("needs root for a part of the test");
    }
    root
}

fn container_at(root: &Path) -> Container {
    let (container, reaper) = Container::new(root, vec![b"PATH=/usr/bin:/bin".to_vec()]).unwrap();
    tokio::spawn(reaper.run());
    container
}

fn here() -> Container {
    container_at(Path::new("/"))
}

fn myself() -> UserSpec {
    UserSpec::Ids { uid: geteuid().as_raw(), gid: Some(getegid().as_raw()) }
}

fn argv(args: &[&str]) -> SpawnSpec {
    SpawnSpec {
        argv: args.iter().map(|it| it.as_bytes().to_vec()).collect(),
        shell: false,
        session: SessionVariables::default(),
        env: Vec::new(),
        user: myself(),
        cwd: "/".into(),
        stdin: false,
        terminal: None,
        mark: TreeId(1),
        secret: None,
        bare: false,
    }
}

fn script(text: &str) -> SpawnSpec {
    SpawnSpec { shell: true, ..argv(&[text]) }
}

#[derive(Debug, PartialEq)]
struct Ran {
    exit: Exit,
    out: String,
    err: String,
}

async fn finish(mut process: Process) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut stderr = process.stderr.take();
    let errors = async {
        if let Some(stderr) = &mut stderr {
            stderr.read_to_end(&mut err).await.unwrap();
        }
    };
    let (read, ()) = tokio::join!(process.stdout.read_to_end(&mut out), errors);
    read.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { exit: process.exit.await.unwrap(), out: text(out), err: text(err) }
}

async fn run(plan: SpawnSpec) -> Ran {
    finish(here().start(plan).await.unwrap()).await
}

async fn check(plan: SpawnSpec, exit: Exit, out: &str) {
    let shown = format!("{plan:?}");
    let ran = run(plan).await;
    assert_eq!((ran.exit, &*ran.out), (exit, out), "{shown:.300}: {}", ran.err);
}

async fn start_error(container: &Container, plan: SpawnSpec) -> SpawnError {
    container.start(plan).await.expect_err("not started")
}

fn code(why: &SpawnError) -> ErrorCode {
    match why {
        SpawnError::Fault(fault) => fault.code,
        other => panic!("not a fault: {other:?}"),
    }
}

#[tokio::test]
async fn root_gets_no_path_in_which_the_session_user_could_place_a_program() {
    if !is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let set = |dir: &str, mode| fs::set_permissions(root.path().join(dir), PermissionsExt::from_mode(mode)).unwrap();
    set(".", 0o755);
    for (dir, mode) in [("work/bin", 0o755), ("opt/bin", 0o755), ("tmp", 0o1777), ("shared", 0o775)] {
        fs::create_dir_all(root.path().join(dir)).unwrap();
        set(dir, mode);
    }
    std::os::unix::fs::chown(root.path().join("work"), Some(61_234), None).unwrap();
    let container = container_at(root.path());
    let path_of = |uid, home: &str, user| {
        let path = "PATH=/work/bin:/opt/bin:/opt/none:/work/none:/tmp:/tmp/none:/shared:relative::/usr/bin:/bin";
        let mut session = SessionVariables::new([path, home].map(|it| it.as_bytes().to_vec()).into());
        session.user = user;
        let found = container.environment_of(&UserSpec::Ids { uid, gid: Some(0) }, &session).unwrap();
        String::from_utf8(env::value(&found, b"PATH").unwrap().to_vec()).unwrap()
    };
    for (home, user, of_root) in
        [("/work", Some(61_234), "/root"), ("/opt", Some(61_234), "/opt"), ("/work", None, "/root")]
    {
        let expected = format!("{of_root}/.local/bin:/opt/bin:/opt/none:/usr/bin:/bin");
        assert_eq!(path_of(0, &format!("HOME={home}"), user), expected);
    }
    for uid in [61_234, 0] {
        assert!(path_of(uid, "HOME=/work", Some(uid)).starts_with("/work/.local/bin:/work/bin:/opt/bin:"));
    }
}

#[tokio::test]
async fn the_exit_status_is_reported() {
    check(argv(&["true"]), Exit::Code(0), "").await;
    check(script("exit 7"), Exit::Code(7), "").await;
    check(script("exit 255"), Exit::Code(255), "").await;
    check(script("kill -KILL $$"), Exit::Signal(9), "").await;
    check(script("kill -SEGV $$"), Exit::Signal(11), "").await;
}

#[tokio::test]
async fn arguments_arrive_unchanged() {
    check(argv(&["printf", "%s|", "a b", "", "$HOME", "*", "-n"]), Exit::Code(0), "a b||$HOME|*|-n|").await;
    let ran = run(script("echo one; echo two >&2")).await;
    assert_eq!((&*ran.out, &*ran.err), ("one\n", "two\n"));
    check(script("echo $0"), Exit::Code(0), "/bin/sh\n").await;
}

#[tokio::test]
async fn input_is_empty_or_the_written_bytes() {
    check(argv(&["cat"]), Exit::Code(0), "").await;
    let mut process = here().start(SpawnSpec { stdin: true, ..argv(&["cat"]) }).await.unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(b"text").await.unwrap();
    drop(stdin);
    assert_eq!(finish(process).await.out, "text");
}

#[tokio::test]
async fn a_command_starts_with_default_signals_umask_and_limits() {
    let ran = run(script(
        "grep -E '^Sig(Blk|Ign)' /proc/self/status; umask; ulimit -c; ls /proc/self/fd | wc -l; \
         grep -E 'NoNewPrivs|Seccomp:' /proc/self/status",
    ))
    .await;
    let none = "0000000000000000";
    assert_eq!(ran.out, format!("SigBlk:\t{none}\nSigIgn:\t{none}\n0022\n0\n4\nNoNewPrivs:\t1\nSeccomp:\t2\n"));
    let ran =
        run(script("[ $(ulimit -n) -le 16384 ] && [ $(ulimit -Hn) -le 16384 ] && ps -o sid= -p $$; echo $$")).await;
    let numbers: Vec<_> = ran.out.split_ascii_whitespace().collect();
    assert!(numbers.len() == 2 && numbers[0] == numbers[1], "{ran:?}");
}

/// Children share this process's memory until they execute their program.
#[tokio::test]
async fn a_child_that_switches_its_user_does_not_change_this_process() {
    use rustix::process::{DumpableBehavior, dumpable_behavior};

    let user = if is_root() { STRANGER } else { myself() };
    let status = |name: &str| {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find(|it| it.starts_with(name)).unwrap().to_owned()
    };
    let names = ["Uid:", "Gid:", "NoNewPrivs:", "Seccomp:", "SigBlk:"];
    let before = names.map(status);
    assert_eq!(run(SpawnSpec { user, ..argv(&["true"]) }).await.exit, Exit::Code(0));
    assert_eq!(names.map(status), before);
    // Children of other tests change it for a moment.
    let restored = async {
        while dumpable_behavior().unwrap() != DumpableBehavior::Dumpable {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), restored).await.unwrap();
}

#[tokio::test]
async fn concurrent_commands_each_report_their_own_exit() {
    let container = here();
    let starting = (0..60u64).map(|n| {
        let plan = match n % 3 {
            0 => argv(&["no-such-program"]),
            1 => SpawnSpec { cwd: "/no/such/directory".into(), ..argv(&["true"]) },
            _ => script(&format!("exit {n}")),
        };
        container.start(SpawnSpec { mark: TreeId(n + 1), ..plan })
    });
    let mut starting: Vec<_> = starting.collect();
    // Start each before waiting for any.
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let polled: Vec<_> = starting.iter_mut().map(|it| it.as_mut().poll(&mut cx)).collect();
    for (n, (polled, starting)) in polled.into_iter().zip(starting).enumerate() {
        let started = match polled {
            std::task::Poll::Ready(started) => started,
            std::task::Poll::Pending => starting.await,
        };
        match (n % 3, started) {
            (0, started) => assert_eq!(started.unwrap_err(), SpawnError::NoProgram),
            (1, started) => assert_eq!(code(&started.unwrap_err()), ErrorCode::NoDirectory),
            (_, started) => assert_eq!(started.unwrap().exit.await.unwrap(), Exit::Code(u8::try_from(n).unwrap())),
        }
    }
}

#[tokio::test]
async fn a_program_is_looked_up_in_the_path_of_its_own_environment() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    };
    at("a/tool", "echo refused", 0o644);
    at("b/tool", "#!/bin/sh\necho found $1", 0o755);
    at("b/plain", "echo plain $1", 0o755);
    at("b/lost", "#!/no/such/interpreter\n", 0o755);
    at("b/odd", "\x7fELF rubbish", 0o755);
    let path = |text: &str| format!("PATH={}", text.replace('@', dir.path().to_str().unwrap())).into_bytes();
    let along = |text: &str, all: &[&str]| SpawnSpec { env: vec![path(text)], ..argv(all) };
    check(along("/nowhere:@/a:@/b:/bin", &["tool", "1"]), Exit::Code(0), "found 1\n").await;
    check(along("@/b:/bin", &["plain", "2"]), Exit::Code(0), "plain 2\n").await;
    let inside = SpawnSpec { cwd: dir.path().join("b").to_str().unwrap().into(), ..along("/bin:", &["./tool", "3"]) };
    check(inside.clone(), Exit::Code(0), "found 3\n").await;
    check(SpawnSpec { argv: vec![b"tool".to_vec()], ..inside }, Exit::Code(0), "found\n").await;
    let denied = |why: &str| SpawnError::NoPermission(why.into());
    for (plan, expected) in [
        (along("/nowhere:@/b/tool", &["tool"]), SpawnError::NoProgram),
        (along("@/b", &[""]), SpawnError::NoProgram),
        (along("@/b", &["/nowhere/tool"]), SpawnError::NoProgram),
        (along("@/b", &["/etc/passwd/tool"]), SpawnError::NoProgram),
        (along("@/b", &[&"x".repeat(300)]), SpawnError::NoProgram),
        (along("@/a:/nowhere", &["tool"]), denied("permission denied")),
        (along("@/a:/nowhere", &["/etc"]), denied("permission denied")),
        (along("@/b", &["lost"]), denied("the interpreter or loader named in the file is missing")),
    ] {
        let shown = format!("{plan:?}");
        assert_eq!(start_error(&here(), plan).await, expected, "{shown}");
    }
}

#[tokio::test]
async fn long_arguments_arrive_and_too_long_ones_are_refused() {
    let mut plan = script("echo $# ${#V9999}; printf %s \"$*\" | wc -c");
    plan.shell = false;
    plan.argv.splice(0..0, [b"sh".to_vec(), b"-c".to_vec()]);
    plan.argv.push(b"sh".to_vec());
    plan.argv.extend(std::iter::repeat_n(vec![b'x'; 1023], 1024));
    plan.env = (0..10_000).map(|it| format!("V{it}=twelve bytes").into_bytes()).collect();
    check(plan, Exit::Code(0), "1024 12\n1048575\n").await;
    let argument = SpawnSpec { argv: vec![b"echo".to_vec(), vec![b'x'; 200 << 10]], ..argv(&[]) };
    assert_eq!(code(&start_error(&here(), argument).await), ErrorCode::TooLong);
    let sum = SpawnSpec { argv: vec![vec![b'x'; 100 << 10]; 80], ..argv(&[]) };
    let sum = SpawnSpec { argv: [vec![b"echo".to_vec()], sum.argv].concat(), ..sum };
    assert_eq!(code(&start_error(&here(), sum).await), ErrorCode::TooLong);
}

#[tokio::test]
async fn a_long_script_is_read_from_a_descriptor() {
    let long = format!("{}\necho end; exit 3", "# a comment of the same size\n".repeat(300 << 10 >> 5));
    assert!(long.len() > 250 << 10);
    check(script(&long), Exit::Code(3), "end\n").await;
    if is_root() {
        check(SpawnSpec { user: STRANGER, ..script(&long) }, Exit::Code(3), "end\n").await;
    }
}

#[tokio::test]
async fn a_nul_is_refused() {
    assert_eq!(code(&start_error(&here(), argv(&["echo", "a\0b"])).await), ErrorCode::Invalid);
    assert_eq!(
        code(&start_error(&here(), SpawnSpec { cwd: "/\0".into(), ..argv(&["true"]) }).await),
        ErrorCode::Invalid
    );
}

#[tokio::test]
async fn the_working_directory_is_resolved_beneath_the_root() {
    let root = tempfile::tempdir().unwrap();
    let inside = fs::canonicalize(root.path()).unwrap();
    fs::create_dir_all(inside.join("work/deep")).unwrap();
    fs::write(inside.join("file"), "").unwrap();
    symlink("/work", inside.join("link")).unwrap();
    symlink("/usr", inside.join("outside")).unwrap();
    symlink("/proc/self/root", inside.join("magic")).unwrap();
    let container = container_at(&inside);
    for (cwd, expected) in [("/work", "work"), ("/link/deep", "work/deep"), ("/../../work", "work")] {
        let ran = finish(container.start(SpawnSpec { cwd: cwd.into(), ..argv(&["pwd"]) }).await.unwrap()).await;
        assert_eq!(ran.out.trim_end(), inside.join(expected).to_str().unwrap());
    }
    for cwd in ["/none", "/file", "/outside", "/magic"] {
        let why = start_error(&container, SpawnSpec { cwd: cwd.into(), ..argv(&["true"]) }).await;
        assert_eq!(code(&why), ErrorCode::NoDirectory, "{cwd}");
    }
    let why = start_error(&here(), SpawnSpec { cwd: "/proc/self/cwd".into(), ..argv(&["true"]) }).await;
    assert_eq!(code(&why), ErrorCode::NoDirectory);
}

#[tokio::test]
async fn a_command_runs_as_its_user_without_other_groups_or_capabilities() {
    if !is_root() {
        let why =
            start_error(&here(), SpawnSpec { user: UserSpec::Ids { uid: 0, gid: None }, ..argv(&["true"]) }).await;
        assert_eq!(code(&why), ErrorCode::CannotStart);
        return;
    }
    let stranger = |plan| SpawnSpec { user: STRANGER, ..plan };
    check(stranger(script("id -u; id -g; id -G; echo $USER $HOME")), Exit::Code(0), "61234\n61235\n61235\n61234 /\n")
        .await;
    check(
        stranger(script("grep -h Cap[PE] /proc/self/status | cut -f2 | sort -u")),
        Exit::Code(0),
        "0000000000000000\n",
    )
    .await;
    check(stranger(script("echo out >/dev/stdout; echo err 2>/dev/null >/dev/stderr")), Exit::Code(0), "out\n").await;
    let closed = tempfile::tempdir().unwrap();
    fs::set_permissions(closed.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let why =
        start_error(&here(), stranger(SpawnSpec { cwd: closed.path().to_str().unwrap().into(), ..argv(&["true"]) }))
            .await;
    assert_eq!(code(&why), ErrorCode::NoDirectory);
    let process = here().start(argv(&["true"])).await.unwrap();
    assert!(process.root);
}

#[tokio::test]
async fn a_terminal_can_be_resized() {
    let size = |cols, rows| TerminalSize { cols, rows };
    let on_terminal = |text: &str| SpawnSpec { stdin: true, terminal: Some(size(100, 30)), ..script(text) };
    let mut process = here().start(on_terminal("stty size; tty; read x; stty size </dev/tty")).await.unwrap();
    let mut stdin = process.stdin.take().unwrap();
    process.terminal.take().unwrap().resize(size(50, 20));
    stdin.write_all(b"\n").await.unwrap();
    let ran = finish(process).await;
    assert!(ran.out.contains("/dev/pts/") && ran.out.contains("20 50"), "{ran:?}");
    assert_eq!(ran.exit, Exit::Code(0));
    check(SpawnSpec { stdin: false, ..on_terminal("cat; stty size <&1") }, Exit::Code(0), "30 100\r\n").await;
    let mut process = here().start(on_terminal("stty -echo; echo ready; cat")).await.unwrap();
    let mut stdin = process.stdin.take().unwrap();
    let mut ready = [0; 7];
    process.stdout.read_exact(&mut ready).await.unwrap();
    stdin.write_all(b"half a line").await.unwrap();
    stdin.shutdown().await.unwrap();
    assert_eq!(finish(process).await.out, "half a line");
}

#[tokio::test]
async fn the_filter_is_installed() {
    let unshare = run(argv(&["unshare", "--user", "true"])).await;
    assert!(unshare.exit == Exit::Code(1) && unshare.err.contains("Operation not permitted"), "{unshare:?}");
    let lower = "prlimit --rttime=5 true 2>&1";
    let ran = run(script(lower)).await;
    assert!(ran.exit != Exit::Code(0) && ran.out.contains("Operation not permitted"), "{ran:?}");
}

#[tokio::test]
async fn a_child_that_does_not_start_in_time_is_killed() {
    let container = here();
    let process = container.start(argv(&["sleep", "1000"])).await.unwrap();
    tokio::time::pause();
    let child = container.leaders().values().next().unwrap().child;
    let fault = container.within_start_timeout(child, std::future::pending::<()>()).await.unwrap_err();
    assert_eq!((fault.code, &*fault.message), (ErrorCode::CannotStart, "the command did not start within 10 s"));
    assert_eq!(process.exit.await.unwrap(), Exit::Signal(9));
}

#[tokio::test]
async fn a_command_starts_with_no_signal_blocked() {
    check(argv(&["grep", "SigBlk", "/proc/self/status"]), Exit::Code(0), "SigBlk:\t0000000000000000\n").await;
}

#[tokio::test]
async fn a_secret_can_be_read_once_and_a_bare_environment_is_empty() {
    let shell = "cat <&3; printf .; cat <&3; printf .; cat /proc/self/fd/3 2>/dev/null || printf closed; env | grep -v ^PWD | grep -v ^SHLVL | grep -v ^_";
    let secret = Some(crate::os::machine::SecretBytes::new(b"s3cret".to_vec()));
    let plan = SpawnSpec { secret, bare: true, env: vec![b"ONLY=this".to_vec()], ..argv(&["/bin/sh", "-c", shell]) };
    // A derived `Debug` would print a list of numbers.
    assert!(!format!("{plan:?}").contains("115, 51"));
    check(plan, Exit::Code(0), "s3cret..closedONLY=this\n").await;
}
