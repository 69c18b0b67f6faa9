//! Shared variables of all commands, and files on no disk.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_client::{Link, SecretFile, WriteFile};
use coracle_protocol::{EnsureUser, ErrorCode, FileKind};
use coracle_types::{Error, Exec, Exit, Ids, Input, JobId, Result, Secret, random_hex};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::{AGENT, argv, at, sh, until};
use crate::engines::{Running, Way, engine_program, in_every_way, with_a_guest, with_a_real_guest};

type Variables = BTreeMap<String, Vec<u8>>;

async fn set(link: &Link, variables: &Variables) -> Result<()> {
    let env: Vec<_> = variables.iter().map(|(name, value)| (name.clone(), Secret::new(value.clone()))).collect();
    link.set_session(&env).await
}

fn one(name: &str, value: impl Into<Vec<u8>>) -> Variables {
    [(name.to_owned(), value.into())].into()
}

/// Variables of a command whose name begins with `V`.
async fn seen(running: &Running<'_>, exec: Exec) -> Variables {
    let it = running.ran(Exec { keep_bytes: 4 << 20, ..exec }).await;
    assert!(it.exit == Exit::Code(0), "{it:?}");
    let bytes = it.stdout.bytes();
    let pairs = bytes.split(|it| *it == 0).filter(|it| it.starts_with(b"V")).map(|it| {
        let at = it.iter().position(|it| *it == b'=').unwrap();
        (String::from_utf8(it[..at].to_vec()).unwrap(), it[at + 1..].to_vec())
    });
    pairs.collect()
}

fn refusal<T: std::fmt::Debug>(result: Result<T>) -> ErrorCode {
    match result {
        Err(Error::Refused(fault)) => fault.code,
        other => panic!("{other:?}"),
    }
}

fn secret(name: &str, user: Ids, mode: u32, content: &str) -> SecretFile {
    SecretFile { name: name.into(), user, mode, content: Secret::new(content.into()) }
}

const ENV: [&str; 2] = ["env", "-0"];

#[tokio::test]
async fn every_byte_of_a_value_arrives_in_every_command() {
    with_a_guest(async |running| {
        let mut runner = TestRunner::deterministic();
        let values = prop_oneof![vec(1u8.., 0..40), vec(1u8.., 4000..5000), "[^\0]{0,30}".prop_map(Vec::from)];
        let variables = btree_map("V[A-Z0-9_]{0,8}", values, 0..150);
        for _ in 0..6 {
            let variables = variables.new_tree(&mut runner).unwrap().current();
            set(running.link(), &variables).await.unwrap();
            for user in [Ids::ROOT, AGENT] {
                assert!(seen(running, Exec { user, ..argv(&ENV) }).await == variables, "other values than were set");
            }
        }
        let every = one("V", (1..=255).collect::<Vec<u8>>());
        set(running.link(), &every).await.unwrap();
        assert_eq!(seen(running, sh("env -0")).await, every);
    })
    .await;
}

#[tokio::test]
async fn a_session_is_replaced_whole_and_a_fault_leaves_the_old_one() {
    with_a_guest(async |running| {
        let link = running.link();
        let long = "x".repeat((128 << 10) - 3);
        let old: Variables = [("VA".to_owned(), b"1".to_vec()), ("V".to_owned(), long.clone().into())].into();
        set(link, &old).await.unwrap();
        assert!(seen(running, argv(&ENV)).await == old, "a value as long as the kernel takes one");
        let full: Variables = (0..9).map(|it| (format!("V{it}"), "x".repeat(120_000).into())).collect();
        for (refused, code) in [
            (one("V", format!("{long}x")), ErrorCode::TooLong),
            (one("V=", "x"), ErrorCode::Invalid),
            (one("", "x"), ErrorCode::Invalid),
            (one("V", "x\0"), ErrorCode::Invalid),
            (full, ErrorCode::TooLong),
        ] {
            assert_eq!(refusal(set(link, &refused).await), code);
            assert!(seen(running, argv(&ENV)).await == old, "{code:?}");
        }
        let with_env = Exec { env: [("VA".to_owned(), "own".to_owned())].into(), ..argv(&ENV) };
        assert_eq!(seen(running, with_env).await["VA"], b"own");
        set(link, &one("VB", "2")).await.unwrap();
        assert_eq!(seen(running, argv(&ENV)).await, one("VB", "2"));
        set(link, &Variables::new()).await.unwrap();
        assert_eq!(seen(running, argv(&ENV)).await, Variables::new());
    })
    .await;
}

#[tokio::test]
async fn the_session_is_above_the_image_and_every_link_and_job_has_it() {
    with_a_real_guest(async |running| {
        let variables = [("FROM_IMAGE", "session"), ("PATH", "/opt/bin:/bin"), ("VLINK", "all")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        set(running.link(), &variables.into()).await.unwrap();
        let shown = Exec { user: AGENT, ..sh("echo $FROM_IMAGE $PATH $VLINK") };
        let expected = "session /home/agent/.local/bin:/opt/bin:/bin all\n";
        assert_eq!(running.printed(shown).await, expected);
        let other = running.link_by(running.case.second_way()).await;
        let job = other.start(Exec { user: AGENT, ..sh("echo $VLINK > /tmp/of-job; sleep 300") }, None).await.unwrap();
        until("the job has it", async || running.ran(argv(&["cat", "/tmp/of-job"])).await.stdout.text() == "all\n")
            .await;
        other.cancel(&JobId::parse(&job.job).unwrap(), Duration::ZERO).await.unwrap();
        running.case.runtime.stop(&running.id, Duration::ZERO).await.unwrap();
        running.case.runtime.start(&running.id).await.unwrap();
        until("the guest is there again", async || running.exec(argv(&["true"])).await.is_ok()).await;
        assert_eq!(seen(running, argv(&ENV)).await, Variables::new(), "gone with the guest");
    })
    .await;
}

#[tokio::test]
async fn a_secret_file_is_its_users_alone_and_reached_by_a_link() {
    with_a_real_guest(async |running| {
        let link = running.link();
        link.ensure_user(EnsureUser { uid: 1000, gid: 1000, workdir: "/work".into(), bound: vec![] }).await.unwrap();
        running.printed(argv(&["busybox", "chown", "1000:1000", "/home/agent"])).await;
        for (mode, text) in [(0o600, "first"), (0o400, "second")] {
            let path = link.put_secret(secret("ssh/id", AGENT, mode, text)).await.unwrap();
            assert_eq!(path.as_str(), "/.coracle/run/ssh/id");
            let shown = running.printed(sh("stat -c '%u:%g %a %F' /.coracle/run/ssh /.coracle/run/ssh/id")).await;
            assert_eq!(shown, format!("1000:1000 700 directory\n1000:1000 {mode:o} regular file\n"));
            let to = "/.coracle/run/ssh";
            let made = link.make_link(at(AGENT, "/home/agent/.ssh"), to, true).await.unwrap();
            assert_eq!((made.kind, made.link.as_deref(), made.uid), (FileKind::Link, Some(to), 1000));
            assert_eq!(running.printed(Exec { user: AGENT, ..sh("cat ~/.ssh/id") }).await, text);
            let other = running.ran(Exec { user: Ids { uid: 1001, gid: 1001 }, ..argv(&["cat", path.as_str()]) }).await;
            assert!(other.exit != Exit::Code(0) && other.stdout.total_bytes() == 0, "{other:?}");
        }
        for path in ["/.coracle/run/ssh/id", "/home/agent/.ssh/id"] {
            refusal(link.get(at(AGENT, path), 0, 10).await);
            refusal(link.remove(at(Ids::ROOT, path), false).await);
        }
        assert_eq!(refusal(link.put_secret(secret("ssh/id", Ids::ROOT, 0o600, "")).await), ErrorCode::Denied);
        for name in ["sock", "shell", "a/../b", "/etc/passwd", "worker.sock", ".hidden"] {
            assert_eq!(refusal(link.put_secret(secret(name, AGENT, 0o600, "")).await), ErrorCode::Invalid, "{name}");
        }
        running.case.runtime.stop(&running.id, Duration::ZERO).await.unwrap();
        running.case.runtime.start(&running.id).await.unwrap();
        until("the guest is there again", async || running.exec(argv(&["true"])).await.is_ok()).await;
        assert_eq!(running.printed(sh("ls -d /.coracle/run/ssh 2>/dev/null || echo gone")).await, "gone\n");
    })
    .await;
}

#[tokio::test]
async fn a_file_for_a_command_is_removed_with_its_link_unless_the_command_started() {
    with_a_real_guest(async |running| {
        let listed = async || running.printed(argv(&["ls", "/.coracle/run"])).await;
        for way in [Way::Socket, running.case.second_way()] {
            let other = running.link_by(way).await;
            for name in ["never", "begun"] {
                other.put_command_secret(secret(name, AGENT, 0o400, "x")).await.unwrap();
            }
            let sleeps = Exec { user: AGENT, files: vec!["begun".into()], ..argv(&["sleep", "300"]) };
            let job = other.start(sleeps, None).await.unwrap();
            assert!(listed().await.contains("never"));
            drop(other);
            until("it is gone with the link", async || !listed().await.contains("never")).await;
            assert!(listed().await.contains("begun"), "its command runs");
            running.link().cancel(&JobId::parse(&job.job).unwrap(), Duration::ZERO).await.unwrap();
            until("it is gone with its command", async || !listed().await.contains("begun")).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_secret_file_is_whole_and_at_most_a_mebibyte() {
    with_a_guest(async |running| {
        let user = if running.case.is_real() { AGENT } else { myself() };
        let large = "x".repeat(1 << 20);
        running.link().put_secret(secret("large", user, 0o600, &large)).await.unwrap();
        let too_large = secret("large", user, 0o600, &format!("{large}x"));
        assert_eq!(refusal(running.link().put_secret(too_large).await), ErrorCode::TooLong);
        if running.case.is_real() {
            assert_eq!(
                running.printed(argv(&["wc", "-c", "/.coracle/run/large"])).await,
                "1048576 /.coracle/run/large\n"
            );
        }
    })
    .await;
}

fn myself() -> Ids {
    Ids { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

/// Whether a process of the host has it in its arguments. A container's processes are processes of the host too.
fn on_a_command_line(canary: &str) -> bool {
    let lines = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = lines.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
    lines.any(|it| String::from_utf8_lossy(&it).contains(canary))
}

#[tokio::test]
async fn no_engine_and_no_process_list_shows_a_secret() {
    with_a_real_guest(async |running| {
        let link = running.link();
        let canary = format!("canary-{}", random_hex::<8>());
        set(link, &one("VSECRET", canary.as_str())).await.unwrap();
        link.put_secret(secret("secret", AGENT, 0o600, &canary)).await.unwrap();
        let job = link.start(Exec { user: AGENT, ..argv(&["sleep", "300"]) }, None).await.unwrap();
        assert_eq!(running.printed(sh("echo $VSECRET")).await, format!("{canary}\n"));
        assert!(!on_a_command_line(&canary));
        let engine = running.case.engine();
        let inspected = engine_program(engine.as_str()).args(["inspect", running.id.as_str()]).output().await.unwrap();
        let shown = String::from_utf8_lossy(&inspected.stdout);
        assert!(shown.contains("FROM_IMAGE") && !shown.contains(&canary), "{shown}");
        // Neither has the guest of another container, nor its log.
        let logs = engine_program(engine.as_str()).args(["logs", running.id.as_str()]).output().await.unwrap();
        assert!(!String::from_utf8_lossy(&[logs.stdout, logs.stderr].concat()).contains(&canary));
        link.cancel(&JobId::parse(&job.job).unwrap(), Duration::ZERO).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_name_changes_and_a_mode_is_exact() {
    in_every_way(async |running| {
        if !running.has_guest() {
            return;
        }
        let link = running.link();
        let user = if running.case.is_real() { Ids::ROOT } else { myself() };
        link.make_dir(at(user, "/tmp/d"), 0o755, false).await.unwrap();
        for (mode, exact, expected) in [(0o755, false, 0o755), (0o600, true, 0o600), (0o644, false, 0o600)] {
            let content = Input::Bytes(b"x".to_vec());
            let at = at(user, "/tmp/d/old");
            let put = WriteFile { at, mode: Some(mode), exact, parents: false, replace: true, content };
            assert_eq!(link.put(put).await.unwrap().mode & 0o7777, expected);
        }
        let renamed = link.rename(at(user, "/tmp/d/old"), "new").await.unwrap();
        assert_eq!((&*renamed.name, renamed.kind), ("new", FileKind::File));
        link.make_link(at(user, "/tmp/d/old"), "new", false).await.unwrap();
        assert_eq!(refusal(link.rename(at(user, "/tmp/d/old"), "new").await), ErrorCode::Exists);
        assert_eq!(refusal(link.make_link(at(user, "/tmp/d/new"), "x", false).await), ErrorCode::Exists);
        assert_eq!(refusal(link.make_link(at(user, "/tmp/d"), "x", true).await), ErrorCode::WrongKind);
    })
    .await;
}
