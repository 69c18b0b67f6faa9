//! The tool on the simulated `container` of Apple: with a guest, and without a network.

use serde_json::json;

use super::person::Person;
use crate::engines::ran;

#[tokio::test]
async fn r21_the_codes_and_the_hint_reach_the_caller() {
    Person::new("")
        .on_scripted(async |tool, scripted| {
            let exec = json!({ "operation": "exec", "container": "none", "command": "true" });
            scripted.plays(&json!({ "version": "1.0.0" }));
            let answer = tool.call(exec.clone()).await;
            assert_eq!(answer["code"], "engine_too_old", "{answer:#}");
            scripted.plays(&json!({ "service_down": true }));
            let answer = tool.call(exec).await;
            assert_eq!(answer["code"], "engine_unavailable", "{answer:#}");
            assert!(answer["hint"].as_str().unwrap().contains("container system start"), "{answer:#}");
            scripted.plays(&json!({}));
            ran("r21", tool.case.engine());
        })
        .await;
}

#[tokio::test]
async fn r22_unsupported_features_of_apples_engine_are_warned_of_or_refused() {
    Person::new("")
        .on_scripted(async |tool, _| {
            let limits = json!({ "network": "none", "pids_limit": 64, "cpu_limit": 0.5 });
            let answer = tool.create(limits).await;
            assert_eq!(answer["success"], true, "{answer:#}");
            let codes: Vec<_> = answer["warnings"].as_array().unwrap().iter().map(|it| it["code"].clone()).collect();
            assert!(
                codes.contains(&"limit_not_enforced".into()) && codes.contains(&"limit_rounded".into()),
                "{answer:#}"
            );
            assert_eq!(answer["limits"]["cpus"], 1.0, "{answer:#}");
            let name = answer["container"].as_str().unwrap();
            assert_eq!(tool.prints(name, "echo in; id -u >&2").await, "in");
            let snapshot = tool.call(json!({ "operation": "snapshot", "container": name, "name": "kept" })).await;
            assert_eq!(
                (&snapshot["code"], &snapshot["details"]["capability"]),
                (&"unsupported".into(), &"commit".into()),
                "{snapshot:#}"
            );
            let bridge = tool.create(json!({})).await;
            assert_eq!(bridge["code"], "unsupported", "{bridge:#}");
            let gone = tool.call(json!({ "operation": "destroy", "container": name })).await;
            assert_eq!(gone["success"], true, "{gone:#}");
            ran("r22", tool.case.engine());
        })
        .await;
}
