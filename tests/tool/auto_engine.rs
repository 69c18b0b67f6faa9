//! Which engine `auto` chooses.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use coracle_types::EngineKind;
use serde_json::{Value, json};

use super::{Tool, with_rootful_engine, without_engine};

/// A call of the same user, whose configuration names no engine.
async fn call_by_auto(tool: &Tool<'_>, options: &[&str], call: Value) -> Value {
    let config = tool.work().join("auto.toml");
    let data = tool.case.engine_data().map(|dir| format!("engine_data = {dir:?}\n")).unwrap_or_default();
    std::fs::write(&config, data).unwrap();
    let (config, call) = (config.to_str().unwrap(), call.to_string());
    let words = [&["--config", config], options, &["call", &call]].concat();
    let output: Output = tool.run(words, b"").await;
    serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{err}: {output:?}"))
}

async fn preflight(tool: &Tool<'_>, options: &[&str]) -> Value {
    call_by_auto(tool, options, json!({ "operation": "preflight", "refresh": true })).await
}

fn choice(preflight: &Value) -> &str {
    let checks = preflight["checks"].as_array().unwrap();
    let choice = checks.iter().find(|check| check["name"] == "engine_choice");
    choice.unwrap_or_else(|| panic!("{preflight:#}"))["detail"].as_str().unwrap()
}

#[tokio::test]
async fn auto_takes_the_embedded_engine_unless_another_one_alone_has_containers() {
    with_rootful_engine("", async |tool| {
        let engine = tool.case.engine();
        if !matches!(engine, EngineKind::Docker | EngineKind::Podman | EngineKind::Embedded) {
            return tool.case.is_not_meant();
        }
        let name = tool.created(json!({})).await;
        let with_one = preflight(tool, &[]).await;
        assert_eq!(with_one["runtime"], engine.as_str(), "{with_one:#}");
        let reason = match engine {
            EngineKind::Embedded => "it is the fastest",
            _ => "it has your containers (1)",
        };
        assert!(choice(&with_one).contains(reason), "{with_one:#}");
        let list = call_by_auto(tool, &[], json!({ "operation": "list" })).await;
        assert_eq!(list["containers"][0]["name"], *name, "{list:#}");
        let gone = call_by_auto(tool, &[], json!({ "operation": "destroy", "container": name })).await;
        assert_eq!(gone["success"], true, "{gone:#}");

        let without = preflight(tool, &[]).await;
        let can_embed = preflight(tool, &["--engine", "embedded"]).await["ready"] == true;
        let is_embedded = without["runtime"] == "embedded";
        assert_eq!(is_embedded, can_embed, "{without:#}");
        assert!(choice(&without).starts_with("`auto` takes "), "{without:#}");
    })
    .await;
}

#[tokio::test]
async fn an_engine_that_hangs_and_has_no_containers_delays_nothing() {
    without_engine("", async |tool| {
        let programs = tool.work().join("bin");
        std::fs::create_dir(&programs).unwrap();
        for name in ["docker", "podman"] {
            let program = programs.join(name);
            let script = format!("#!/bin/sh\n: >{}/called\nexec /bin/sleep 600\n", programs.display());
            std::fs::write(&program, script).unwrap();
            std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        }
        if preflight(tool, &["--engine", "embedded"]).await["ready"] != true {
            return; // there is no engine but those that hang
        }
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", programs.display());
        let config = tool.work().join("auto.toml");
        let words = ["--config", config.to_str().unwrap(), "list", "--json"];
        let output = tool.command(words).env("PATH", path).output();
        let output = tokio::time::timeout(std::time::Duration::from_secs(30), output).await.unwrap().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(!programs.join("called").exists(), "an engine without containers was called");
    })
    .await;
}
