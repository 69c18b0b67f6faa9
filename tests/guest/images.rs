//! All kinds of images, even one with a single program.

use std::time::Duration;

use coracle_client::Transport;
use coracle_protocol::{EnsureUser, FileKind, UserInfo};
use coracle_types::{ContainerPath, Error, Exec, Exit, Ids, Input, LimitKind};

use super::{AGENT, argv, at, sh, total, until};
use crate::engines::{
    Case, Lack, Running, WITHOUT_WAITING, Way, tar_of, with_a_guest, with_a_real_guest, with_real_engines,
};

/// An image `FROM scratch`: its only file is a static program, which is no shell.
async fn from_scratch(case: &Case) -> Running<'_> {
    let tar = tar_of(|tar| {
        let busybox = std::fs::read("/bin/busybox").unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(busybox.len() as u64);
        tar.append_data(&mut header, "busybox", &busybox[..]).unwrap();
    });
    let image = crate::conformance::import(case, &case.tag("scratch"), tar).await;
    case.run(Way::Socket, case.spec("scratch"), &image.id).await
}

fn as_user(user: Ids, exec: Exec) -> Exec {
    Exec { user, ..exec }
}

/// A variable as `env` shows it.
fn variable<'a>(env: &'a str, name: &str) -> Option<&'a str> {
    env.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix('='))
}

#[tokio::test]
async fn words_run_without_any_shell_as_root_and_as_an_agent() {
    with_real_engines(async |case| {
        let running = from_scratch(case).await;
        for user in [Ids::ROOT, AGENT] {
            let printed = running.printed(as_user(user, argv(&["/busybox", "id", "-u"]))).await;
            assert_eq!(printed, format!("{}\n", user.uid));
            let ended = running.ran(as_user(user, argv(&["/busybox", "false"]))).await;
            assert_eq!(ended.exit, Exit::Code(1));
            let missing = running.ran(as_user(user, argv(&["/missing"]))).await;
            assert_eq!(missing.exit, Exit::Code(127));
            let script = running.exec(as_user(user, sh("true"))).await;
            assert!(matches!(script, Err(Error::NoShell)), "{script:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn home_is_that_of_the_passwd_file() {
    with_a_real_guest(async |running| {
        for (user, name, home) in [(Ids::ROOT, "root", "/root"), (AGENT, "agent", "/home/agent")] {
            let env = running.printed(as_user(user, argv(&["env"]))).await;
            let reported =
                ["HOME", "USER", "LOGNAME", "SHELL", "LANG"].map(|it| variable(&env, it).unwrap_or_default());
            assert_eq!(reported, [home, name, name, "/bin/sh", "C.UTF-8"], "{env}");
            assert!(variable(&env, "PATH").unwrap().ends_with("/bin"), "{env}");
        }
    })
    .await;
}

/// The user exists, owns its home, and starts in the given directory.
async fn check_settled(running: &Running<'_>, settled: &UserInfo) {
    let env = as_user(AGENT, argv(&["/busybox", "env"]));
    let env = running.printed(Exec { workdir: ContainerPath::parse("/work/deep").unwrap(), ..env }).await;
    assert_eq!((variable(&env, "HOME"), variable(&env, "USER")), (Some(&*settled.home), Some(&*settled.name)));
    for path in [&*settled.home, "/work/deep"] {
        let entry = running.link().stat(at(Ids::ROOT, path)).await.unwrap();
        assert_eq!((entry.kind, entry.uid, entry.gid), (FileKind::Dir, 1000, 1000), "{path}");
    }
    let touched = as_user(AGENT, argv(&["/busybox", "touch", "/work/deep/file"]));
    assert_eq!(running.printed(touched).await, "");
}

#[tokio::test]
async fn a_user_a_home_and_a_directory_are_made_where_there_is_nothing() {
    with_real_engines(async |case| {
        let running = from_scratch(case).await;
        let settle = EnsureUser { uid: 1000, gid: 1000, workdir: "/work/deep".into(), bound: vec![] };
        let settled = running.link().ensure_user(settle.clone()).await.unwrap();
        assert_eq!((settled.uid, settled.gid, settled.readable, settled.writable), (1000, 1000, true, true));
        check_settled(&running, &settled).await;
        let passwd = running.printed(argv(&["/busybox", "cat", "/etc/passwd", "/etc/group"])).await;
        assert_eq!(running.link().ensure_user(settle).await.unwrap(), settled);
        let again = running.printed(argv(&["/busybox", "cat", "/etc/passwd", "/etc/group"])).await;
        assert_eq!(again, passwd, "a user that is there is not made again");
    })
    .await;
}

#[tokio::test]
async fn a_user_that_the_image_has_keeps_its_name_and_home() {
    with_a_guest(async |running| {
        let settle = EnsureUser { uid: 1000, gid: 1000, workdir: "/work".into(), bound: vec![] };
        let settled = running.link().ensure_user(settle).await.unwrap();
        assert_eq!((&*settled.name, &*settled.home, &*settled.shell), ("agent", "/home/agent", "/bin/sh"));
        assert!(settled.readable && settled.writable);
    })
    .await;
}

#[tokio::test]
async fn a_guest_that_was_uploaded_is_reached_by_the_stream() {
    with_real_engines(async |case| {
        if case.lacks(Lack::Stream) {
            return;
        }
        let running = case.runs(Way::Uploaded).await;
        for user in [Ids::ROOT, AGENT] {
            let input = Some(Input::Bytes(vec![b'x'; 3 << 20]));
            let counted = running.printed(Exec { stdin: input, ..as_user(user, sh("id -u; wc -c")) }).await;
            assert_eq!(counted, format!("{}\n{}\n", user.uid, 3 << 20));
            let ended = running.ran(Exec { limits: total(300), ..as_user(user, sh("sleep 300 & sleep 300")) }).await;
            assert_eq!((ended.exit, ended.tree_ended), (Exit::TimedOut(LimitKind::Total), Some(true)));
        }
        let (_, passwd) = running.link().get(at(AGENT, "/etc/passwd"), 0, 1 << 20).await.unwrap();
        assert!(passwd.starts_with(b"root:"));
        assert_eq!(running.link().transport(), Some(Transport::Stream));
        let begun = std::time::Instant::now();
        case.runtime.stop(&running.id, Duration::from_secs(60)).await.unwrap();
        assert!(begun.elapsed() < WITHOUT_WAITING, "PID 1 leaves by itself: {:?}", begun.elapsed());
        case.runtime.start(&running.id).await.unwrap();
        until("the guest is there again", async || running.exec(argv(&["true"])).await.is_ok()).await;
    })
    .await;
}
