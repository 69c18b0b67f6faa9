//! Preflight.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use coracle::CallInput;
use coracle_context::{Frontend, Host, Options};
use coracle_prepare::Process;
use coracle_runtime::FakeRuntime;
use coracle_runtime::fake::Verb;
use coracle_types::EngineKind;
use serde_json::{Value, json};

use super::{with_engine, with_tool};
use crate::engines::ran;

/// Verbs that only read.
const READING: &[Verb] = &[Verb::Info, Verb::Inspect, Verb::List, Verb::FindImage, Verb::ListImages];

/// Size, times and mode of each file below a directory but one.
fn files(dir: &Path, but: &Path) -> BTreeMap<PathBuf, (u64, i64, i64, u32)> {
    let (mut found, mut dirs) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for path in std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().path()).filter(|it| it != but) {
            let meta = path.symlink_metadata().unwrap();
            dirs.extend(meta.is_dir().then(|| path.clone()));
            found.insert(path, (meta.size(), meta.mtime_nsec(), meta.ctime_nsec(), meta.mode()));
        }
    }
    found
}

/// Problems of a machine, in any combination.
#[derive(Clone, Copy, Debug)]
struct Ills {
    config: bool,
    silent_engine: bool,
    no_info: bool,
    open_state: bool,
    no_state: bool,
}

#[tokio::test]
async fn s17_preflight_only_reads_after_any_failure() {
    for combination in 0..32_u8 {
        let bit = |n: u8| combination & (1 << n) != 0;
        let ills =
            Ills { config: bit(0), silent_engine: bit(1), no_info: bit(2), open_state: bit(3), no_state: bit(4) };
        let dir = tempfile::tempdir().unwrap();
        let (root, state) = (dir.path().canonicalize().unwrap(), dir.path().canonicalize().unwrap().join("state"));
        for name in ["home", "work", "state", "tmp"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        std::fs::write(root.join("work/file"), "kept").unwrap();
        std::fs::write(root.join("config.toml"), if ills.config { "[exec]\ntimeot = 1\n" } else { "" }).unwrap();
        if ills.open_state {
            std::fs::create_dir(state.join("coracle")).unwrap();
            std::fs::set_permissions(state.join("coracle"), PermissionsExt::from_mode(0o777)).unwrap();
        }
        if ills.no_state {
            std::fs::remove_dir_all(&state).unwrap();
            std::fs::write(&state, "a file in its place").unwrap();
        }
        let fake = FakeRuntime::new();
        let before = files(&root, &state);
        let options = Options { config: Some(root.join("config.toml")), ..Options::default() };
        let process = Process::open(Host::below(&root), &options, Frontend::Call).unwrap().with_fake(fake.clone());
        fake.unavailable(ills.silent_engine);
        if ills.no_info {
            fake.fail_next(Verb::Info);
        }
        let call = json!({ "operation": "preflight", "refresh": true });
        let answer =
            coracle::execute(coracle::operations::ALL, &process, CallInput::Text(call.to_string().into_bytes()))
                .await
                .json;
        let answer = Value::from(answer);
        let well = !(ills.config || ills.silent_engine || ills.no_info || ills.open_state || ills.no_state);
        assert_eq!((&answer["success"], &answer["ready"]), (&true.into(), &well.into()), "{ills:?}: {answer:#}");
        let called = fake.calls();
        assert!(called.iter().all(|it| READING.contains(it)), "{ills:?}: {called:?}");
        assert_eq!(files(&root, &state), before, "{ills:?}");
        assert!(!ills.no_state || state.is_file(), "{ills:?}");
    }
    ran("s17", EngineKind::Fake);
}

#[tokio::test]
async fn s15_a_healthy_machine_is_ready() {
    with_tool("", async |tool| {
        let answer = tool.call(json!({ "operation": "preflight" })).await;
        assert_eq!(answer["ready"], true, "{answer:#}");
        assert_eq!(answer["summary"], "Container runtime ready");
        assert_eq!(answer["runtime"], tool.case.engine().as_str());
        assert!(answer["checks"].as_array().unwrap().iter().all(|it| it["passed"] == true), "{answer:#}");
        ran("s15", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn preflight_says_the_policy_and_what_the_engine_can_do() {
    for policy in ["standard", "strict"] {
        with_tool(&format!("policy = \"{policy}\"\n"), async |tool| {
            let answer = tool.call(json!({ "operation": "preflight" })).await;
            assert_eq!(answer["policy"], policy, "{answer:#}");
            let engine = tool.case.engine();
            let apple = engine == EngineKind::Container;
            let no_stacks = apple || (engine == EngineKind::Embedded && tool.case.is_rootless());
            let can = &answer["capabilities"];
            assert_eq!(
                (&can["commit"], &can["compose"]),
                (&(!apple).into(), &(!no_stacks).into()),
                "{engine}: {can:#}"
            );
        })
        .await;
    }
}

#[tokio::test]
async fn a_configured_engine_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in ["home", "work", "state", "tmp"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    let config = root.join("config.toml");
    std::fs::write(&config, "engine = \"docker\"\nengine_path = \"/nope/docker\"\n").unwrap();
    let options = Options { config: Some(config), ..Options::default() };
    let process = Process::open(Host::below(&root), &options, Frontend::Call).unwrap();
    let call = json!({ "operation": "preflight" }).to_string();
    let answer = Value::from(
        coracle::execute(coracle::operations::ALL, &process, CallInput::Text(call.into_bytes())).await.json,
    );
    assert_eq!(answer["ready"], false, "{answer:#}");
    let check = &answer["checks"][0];
    assert_eq!((&check["name"], &check["passed"]), (&"runtime_installed".into(), &false.into()), "{answer:#}");
    assert_eq!(check["detail"], "no `/nope/docker` program was found");
}

#[tokio::test]
async fn a_bad_configuration_stops_everything_but_preflight_which_tells_it() {
    with_engine("", async |tool| {
        let config = tool.work().join("bad.toml");
        std::fs::write(&config, "[exec]\ntimeot = 3\n").unwrap();
        let call = async |call: Value| -> Value {
            let call = call.to_string();
            let output = tool.run(["--config".as_ref(), config.as_os_str(), "call".as_ref(), call.as_ref()], b"").await;
            serde_json::from_slice(&output.stdout).unwrap()
        };
        let answer = call(json!({ "operation": "list" })).await;
        assert_eq!((&answer["code"], &answer["details"]["line"]), (&"config_invalid".into(), &2.into()), "{answer:#}");
        let answer = call(json!({ "operation": "preflight" })).await;
        assert_eq!((&answer["success"], &answer["ready"]), (&true.into(), &false.into()));
        let check = answer["checks"].as_array().unwrap().iter().find(|it| it["name"] == "configuration").unwrap();
        assert_eq!(check["passed"], false);
    })
    .await;
}

#[tokio::test]
async fn an_engine_whose_daemon_is_down_is_passed_over_and_named() {
    with_engine("", async |tool| {
        let config = tool.work().join("down.toml");
        std::fs::write(&config, "engine = \"docker\"\nengine_host = \"unix:///nonexistent/docker.sock\"\n").unwrap();
        let output = tool
            .run(
                ["--config".as_ref(), config.as_os_str(), "call".as_ref(), r#"{"operation":"preflight"}"#.as_ref()],
                b"",
            )
            .await;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&answer["ready"], &answer["runtime"]), (&false.into(), &Value::Null), "{answer:#}");
        let check = answer["checks"].as_array().unwrap().iter().find(|it| it["name"] == "daemon_running").unwrap();
        assert!(check["passed"] == false && check["guidance"].is_string(), "{check:#}");
    })
    .await;
}
