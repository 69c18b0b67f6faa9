//! Preflight (containers.md 3).

use serde_json::{Value, json};

use super::{with_engine, with_tool};
use crate::engines::ran;

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
