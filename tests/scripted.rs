//! The simulated `container` of Apple: its arguments, its answers, and its faults.

use std::time::{Duration, Instant};

use coracle_host::fs::HostPath;
use coracle_runtime::{Access, CreateSpec, Mount, RemovalOutcome};
use coracle_types::{Command, ContainerPath, ContainerStatus, Error, Exec, Exit, Handle, Ids, ImageRef};
use serde_json::{Value, json};

use crate::conformance::placed;
use crate::engines::{Case, Scripted, Way, ran, with_scripted};

const GRACE: Duration = Duration::from_secs(2);

fn sh(script: &str) -> Exec {
    Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root())
}

fn fault(verb: &str, more: &Value) -> Value {
    let mut fault = json!({ "verb": verb });
    fault.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "faults": [fault] })
}

#[tokio::test]
async fn r20_a_full_cycle_in_the_old_form_with_stale_answers_and_a_stubborn_removal_leaves_nothing() {
    with_scripted(async |case, scripted| {
        let stubborn = json!({ "verb": "delete", "delete_fails_times": 3 });
        scripted.plays(&json!({ "old_form": true, "faults": [stubborn] }));
        let running = case.runs(Way::Stream).await;
        assert_eq!(running.printed(sh("echo here; id -u")).await, "here\n0\n");
        // The first query after the stop returns the old state.
        let stale = json!({ "verb": "inspect", "nth": 2, "stale_running": true });
        scripted.plays(&json!({ "old_form": true, "faults": [stubborn, stale] }));
        case.runtime.stop(&running.id, GRACE).await.unwrap();
        assert_eq!(running.seen().await.status, ContainerStatus::Exited);
        let (begun, deletions) = (Instant::now(), scripted.count("delete"));
        assert_eq!(case.runtime.remove(&running.id).await.unwrap(), RemovalOutcome::Now);
        assert_eq!(scripted.count("delete") - deletions, 4);
        assert!(begun.elapsed() >= Duration::from_millis(1700), "{:?}", begun.elapsed());
        assert_eq!(case.runtime.list(&case.mine()).await.unwrap(), []);
        assert_eq!(case.runtime.remove(&running.id).await.unwrap(), RemovalOutcome::AlreadyGone);
        ran("r20", case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_failed_removal_is_reported_after_five_attempts() {
    with_scripted(async |case, scripted| {
        let id = case.runtime.create(&placed(case, case.spec("stays"))).await.unwrap();
        scripted.plays(&fault("delete", &json!({ "delete_fails_times": 9 })));
        let it = case.runtime.remove(&id).await;
        let Err(Error::CleanupFailed { name, excerpt }) = it else { panic!("{it:?}") };
        assert_eq!((name.as_str(), scripted.count("delete")), (id.as_str(), 5));
        assert!(excerpt.as_str().contains("can not be deleted"), "{excerpt}");
    })
    .await;
}

#[tokio::test]
async fn r21_an_old_engine_and_a_stopped_service_are_distinguished() {
    with_scripted(async |case, scripted| {
        scripted.plays(&json!({ "version": "1.0.0" }));
        let it = case.runtime.info().await;
        assert!(matches!(&it, Err(Error::TooOld { found, .. }) if found == "1.0.0"), "{it:?}");
        scripted.plays(&json!({ "service_down": true }));
        let it = case.runtime.info().await;
        assert!(matches!(it, Err(Error::Unavailable { .. })), "{it:?}");
        // A verb that fails checks whether the service runs.
        let it = case.runtime.list(&case.mine()).await;
        assert!(matches!(it, Err(Error::Unavailable { .. })), "{it:?}");
        let it = case.runtime.inspect(&Handle::Name(case.name("none"))).await;
        assert!(matches!(it, Err(Error::Unavailable { .. })), "{it:?}");
    })
    .await;
}

#[tokio::test]
async fn r23_invalid_arguments_start_no_program() {
    with_scripted(async |case, scripted| {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a,b", "a=b"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("a:b"), "").unwrap();
        let before = scripted.calls().len();
        for name in ["a,b", "a=b", "a:b"] {
            let host = HostPath::open(&dir.path().join(name)).unwrap();
            let mount = Mount { host, at: ContainerPath::parse("/w").unwrap(), access: Access::ReadWrite };
            let spec = CreateSpec { mounts: vec![mount], ..case.spec("odd") };
            let it = case.runtime.create(&placed(case, spec)).await;
            assert!(matches!(it, Err(Error::NotEncodable { .. })), "{name}: {it:?}");
        }
        let (id, at) = (coracle_types::ContainerId::parse("x1").unwrap(), ContainerPath::parse("/a:b").unwrap());
        let it = case.runtime.download(&id, &at, tempfile::tempfile().unwrap(), 1000).await;
        assert!(matches!(it, Err(Error::NotEncodable { .. })), "{it:?}");
        assert!(ImageRef::parse("--privileged").is_err());
        assert_eq!(scripted.calls().len(), before);
        ran("r23", case.engine());
    })
    .await;
}

#[tokio::test]
async fn r24_no_environment_value_is_an_argument_and_stdin_is_open_only_on_request() {
    with_scripted(async |case, scripted| {
        for way in [Way::Plain, Way::Stream] {
            let running = case.runs(way).await;
            let mut exec = sh("printf %s \"$TOLD\"");
            exec.env.insert("TOLD".into(), "a value of it".into());
            assert_eq!(running.ran(exec).await.stdout.text(), "a value of it");
            let input = Exec { stdin: Some(coracle_types::Input::Bytes(b"in".to_vec())), ..sh("cat") };
            assert_eq!(running.printed(input).await, "in");
            case.runtime.remove(&running.id).await.unwrap();
        }
        let own = ["HOME", "LC_ALL", "PATH", "PWD", "TMPDIR", "XDG_RUNTIME_DIR", "CORACLE_SCRIPTED_CONTAINER"];
        for call in scripted.calls() {
            let words: Vec<_> = call["argv"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
            assert!(!words.iter().any(|it| it.contains("a value of it")), "{words:?}");
            assert_eq!(call["stdin_open"], words.contains(&"--interactive"), "{words:?}");
            let named = call["env"].as_object().unwrap().keys();
            let strange: Vec<_> =
                named.filter(|it| !own.contains(&it.as_str()) && !it.starts_with("CORACLE_ENV_")).collect();
            assert!(strange.is_empty(), "{strange:?}");
        }
        ran("r24", case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_container_between_two_states_is_inspected_three_more_times_and_then_counts_as_stopped() {
    with_scripted(async |case, scripted| {
        let running = case.runs(Way::Plain).await;
        case.runtime.stop(&running.id, GRACE).await.unwrap();
        for state in ["stopping", "unknown"] {
            let before = scripted.count("inspect");
            scripted.plays(&fault("inspect", &json!({ "state": state })));
            assert_eq!(
                (running.seen().await.status, scripted.count("inspect") - before),
                (ContainerStatus::Exited, 4),
                "{state}"
            );
        }
    })
    .await;
}

async fn started(case: &Case, scripted: &Scripted) -> coracle_types::ContainerId {
    scripted.plays(&json!({}));
    let id = case.runtime.create(&placed(case, case.spec("c"))).await.unwrap();
    case.runtime.start(&id).await.unwrap();
    id
}

#[tokio::test]
async fn errors_are_reported_with_their_cause() {
    with_scripted(async |case, scripted| {
        let id = started(case, scripted).await;
        let handle = Handle::from(&id);
        for cut in [json!({ "truncate_json": 40 }), json!({ "flood_bytes": 1 << 20 })] {
            scripted.plays(&fault("inspect", &cut));
            let it = case.runtime.inspect(&handle).await;
            assert!(matches!(it, Err(Error::Unreadable { .. })), "{it:?}");
        }
        scripted.plays(&fault("inspect", &json!({ "exit": 1, "stderr": "Error: no reason\n", "delay_ms": 50 })));
        let it = case.runtime.inspect(&handle).await;
        assert!(matches!(&it, Err(Error::Engine { excerpt, .. }) if excerpt.as_str().contains("no reason")), "{it:?}");
        scripted.plays(&fault("start", &json!({ "signal": 9 })));
        case.runtime.start(&id).await.unwrap(); // it runs, whatever became of the program
        scripted.plays(&fault("exec", &json!({ "vanish": true })));
        let it = case.runtime.exec(&id, sh("true")).await;
        assert!(matches!(it, Err(Error::NoSuchContainer(_))), "{it:?}");
        assert_eq!(case.runtime.remove(&id).await.unwrap(), RemovalOutcome::AlreadyGone);
    })
    .await;
}

#[tokio::test]
async fn a_program_that_hangs_meets_its_deadline() {
    with_scripted(async |case, scripted| {
        scripted.plays(&fault("list", &json!({ "hang": true })));
        let it = case.runtime.list(&case.mine()).await;
        assert!(matches!(it, Err(Error::TimedOut { verb: "list", .. })), "{it:?}");
    })
    .await;
}

#[tokio::test]
async fn the_end_of_a_container_under_a_link_is_reported() {
    with_scripted(async |case, _| {
        let running = case.runs(Way::Stream).await;
        let (ended, stopped) = tokio::join!(running.exec(sh("sleep 300")), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            case.runtime.stop(&running.id, GRACE).await
        });
        stopped.unwrap();
        assert!(matches!(ended, Err(Error::NotRunning { .. })), "{ended:?}");
        // The same container again: its guest is a new one.
        case.runtime.start(&running.id).await.unwrap();
        let link = running.link_by(Way::Stream).await;
        let begun = Instant::now();
        while link.open().await.is_err() && begun.elapsed() < Duration::from_secs(10) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(link.exec(sh("exit 3")).await.unwrap().exit, Exit::Code(3));
    })
    .await;
}
