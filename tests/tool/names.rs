//! Names, ownership, sessions.

use std::time::Duration;

use serde_json::json;

use super::{Tool, with_engine, with_tool, without_engine};
use crate::engines::{IMAGE, LABEL, ran};

/// Every operation that names a container.
fn acts(container: &str) -> Vec<serde_json::Value> {
    vec![
        json!({ "operation": "exec", "container": container, "command": "true" }),
        json!({ "operation": "exec_interactive_hint", "container": container }),
        json!({ "operation": "status", "container": container }),
        json!({ "operation": "copy_in", "container": container, "host_path": ".", "container_path": "/tmp/x" }),
        json!({ "operation": "copy_out", "container": container, "host_path": "x", "container_path": "/etc" }),
        json!({ "operation": "destroy", "container": container }),
        json!({ "operation": "destroy", "container": container, "force": true }),
    ]
}

#[tokio::test]
async fn s07_names_that_are_paths_options_or_too_long_touch_nothing() {
    without_engine("", async |tool| {
        let precious = tool.work().join("precious");
        std::fs::create_dir(&precious).unwrap();
        std::fs::write(precious.join("file"), "kept").unwrap();
        let long = "z".repeat(64);
        for name in [precious.to_str().unwrap(), "../../x", "..", "a/b", "-x", "--all", "x;id", "", "a b", &long] {
            for call in acts(name) {
                let answer = tool.call(call.clone()).await;
                assert_eq!(answer["code"], "invalid_name", "{call}: {answer}");
            }
            assert_eq!(tool.create(json!({ "name": name })).await["code"], "invalid_name", "{name}");
        }
        for image in ["-v", "--privileged", "-v/:/host"] {
            assert_eq!(tool.create(json!({ "image": image })).await["code"], "invalid_input", "{image}");
        }
        assert_eq!(std::fs::read_to_string(precious.join("file")).unwrap(), "kept");
        assert!(tool.records().is_empty());
        ran("s07", tool.case.engine());
    })
    .await;
}

/// A container that another program created.
async fn stranger(tool: &Tool<'_>, name: &str, labels: &[String]) -> String {
    let (key, value) = tool.case.label();
    let (own, name) = (format!("--label={key}={value}"), format!("--name={name}"));
    let labels: Vec<_> = labels.iter().map(|it| format!("--label={it}")).collect();
    let mut words = vec!["run", "--detach", "--network=none", &own, &name];
    words.extend(labels.iter().map(String::as_str));
    words.extend([IMAGE, "sleep", "1000"]);
    let (good, id) = tool.engine(&words).await;
    assert!(good, "{id}");
    id
}

#[tokio::test]
async fn s08_a_foreign_container_is_not_managed_for_any_operation() {
    with_engine("", async |tool| {
        let name = tool.case.name("foreign").to_string();
        let id = stranger(tool, &name, &[]).await;
        let look = async || tool.engine(&["inspect", "--format={{.State.Pid}} {{.State.StartedAt}}", &id]).await;
        let before = look().await;
        for handle in [name.as_str(), &id, &id[..12]] {
            for call in acts(handle) {
                let answer = tool.call(call.clone()).await;
                assert_eq!(answer["code"], "not_managed", "{call}: {answer}");
            }
        }
        assert_eq!(look().await, before);
        ran("s08", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s09_a_name_of_a_foreign_container_is_taken_and_that_container_stays() {
    with_engine("", async |tool| {
        let name = tool.case.name("foreign").to_string();
        let id = stranger(tool, &name, &[]).await;
        let answer = tool.create(json!({ "name": name })).await;
        assert_eq!((&answer["code"], &answer["details"]["ours"]), (&"name_taken".into(), &false.into()), "{answer}");
        assert_eq!(tool.engine(&["inspect", "--format={{.State.Running}}", &id]).await.1, "true");
        assert!(tool.records().is_empty());
        ran("s09", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s10_copied_labels_prove_nothing() {
    with_engine("", async |tool| {
        let ours = tool.created(json!({})).await;
        let (_, labels) = tool.engine(&["inspect", "--format={{json .Config.Labels}}", &ours]).await;
        let labels: std::collections::BTreeMap<String, String> = serde_json::from_str(&labels).unwrap();
        let labels: Vec<_> =
            labels.iter().filter(|it| it.0 != LABEL).map(|(key, value)| format!("{key}={value}")).collect();
        let name = tool.case.name("copy").to_string();
        let id = stranger(tool, &name, &labels).await;
        let listed = tool.call(json!({ "operation": "list" })).await;
        assert!(listed["unverified"].as_array().unwrap().contains(&name.clone().into()), "{listed:#}");
        let answer = tool.call(json!({ "operation": "destroy", "container": name })).await;
        assert_eq!(answer["code"], "not_managed", "{answer}");
        let pruned = tool.call(json!({ "operation": "prune", "kinds": ["containers"], "dry_run": false })).await;
        let retained = pruned["kept"].as_array().unwrap().iter().find(|it| it["name"] == name.as_str()).unwrap();
        assert!(retained["reason"].as_str().unwrap().starts_with("unverified"), "{pruned:#}");
        let all = json!({ "operation": "destroy_all", "confirm": true, "scope": "all" });
        assert_eq!(tool.call(all).await["destroyed"], 1);
        assert_eq!(tool.engine(&["inspect", "--format={{.State.Running}}", &id]).await.1, "true");
        ran("s10", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s11_a_lost_or_damaged_record_never_makes_a_command_run_as_root() {
    with_engine("", async |tool| {
        let name = tool.created(json!({ "user": "1234:1234" })).await;
        let file = tool.records().remove(0);
        let whole = std::fs::read(&file).unwrap();
        let id =
            tool.call(json!({ "operation": "status", "container": name })).await["id"].as_str().unwrap().to_owned();
        for cut in [0, 1, whole.len() / 2, whole.len() - 3] {
            std::fs::write(&file, &whole[..cut]).unwrap();
            for handle in [&name, &id] {
                assert_eq!(tool.prints(handle, "id -u").await, "1234", "cut at {cut}");
            }
        }
        std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
        assert_eq!(tool.prints(&name, "id -u").await, "1234");
        ran("s11", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s12_a_new_container_with_the_same_name_is_not_managed() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        assert!(tool.engine(&["rm", "--force", &name]).await.0);
        let id = stranger(tool, &name, &[]).await;
        assert_eq!(tool.exec(&name, "true").await["code"], "not_found");
        let answer = tool.call(json!({ "operation": "destroy", "container": name })).await;
        assert_eq!((&answer["success"], &answer["already_gone"]), (&true.into(), &true.into()), "{answer}");
        assert_eq!(tool.engine(&["inspect", "--format={{.State.Running}}", &id]).await.1, "true");
        ran("s12", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s13_containers_of_another_session_are_used_only_if_the_user_allows_it() {
    for (setting, seen, used) in [("none", 0, "other_session"), ("use", 1, "")] {
        let config = format!("[security]\ncross_session = \"{setting}\"\n");
        with_engine(&config, async |tool| {
            let call = tool.create_call(json!({})).to_string();
            let output = tool.run(["--session", "other", "call", &call], b"").await;
            let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let name = made["container"].as_str().unwrap_or_else(|| panic!("{made:#}"));
            let listed = tool.call(json!({ "operation": "list" })).await;
            assert_eq!(listed["count"], seen, "{listed:#}");
            let code = tool.exec(name, "true").await["code"].as_str().unwrap_or_default().to_owned();
            assert_eq!(code, used);
            let answer = tool.call(json!({ "operation": "destroy", "container": name })).await;
            assert_eq!(answer["code"], "other_session", "{answer}");
            let mine = json!({ "operation": "destroy", "container": name }).to_string();
            assert!(tool.run(["--session", "other", "call", &mine], b"").await.status.success());
            ran("s13", tool.case.engine());
        })
        .await;
    }
}

#[tokio::test]
async fn s14_a_namespace_of_its_own_sees_only_its_own() {
    with_engine("label_namespace = \"amplifier\"\n", async |tool| {
        let name = tool.created(json!({})).await;
        assert!(name.starts_with("amplifier-env-"), "{name}");
        let (_, labels) = tool.engine(&["inspect", "--format={{json .Config.Labels}}", &name]).await;
        assert!(labels.contains("amplifier.managed") && !labels.contains("coracle.managed"), "{labels}");
        let listed = tool.call(json!({ "operation": "list" })).await;
        assert_eq!(listed["count"], 1);
        assert!(tool.state().join("ns/amplifier/containers").exists());
        ran("s14", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s77_destroy_twice_is_quiet_and_what_was_never_ours_is_not_found() {
    with_tool("", async |tool| {
        let name = tool.created(json!({})).await;
        let destroy = json!({ "operation": "destroy", "container": name });
        let begun = std::time::Instant::now();
        assert_eq!(tool.call(destroy.clone()).await["already_gone"], false);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(tool.call(destroy).await["already_gone"], true);
        let never = json!({ "operation": "destroy", "container": "never-ours" });
        assert_eq!(tool.call(never).await["code"], "not_found");
        assert!(tool.records().is_empty());
        ran("s77", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_short_name_is_not_the_begin_of_an_id() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let id =
            tool.call(json!({ "operation": "status", "container": name })).await["id"].as_str().unwrap().to_owned();
        for digits in [&id[..1], &id[..4], &id[..11]] {
            let answer = tool.call(json!({ "operation": "status", "container": digits })).await;
            assert_eq!(answer["code"], "not_found", "{digits}: {answer}");
        }
        assert_eq!(tool.call(json!({ "operation": "status", "container": &id[..12] })).await["container"], name);
    })
    .await;
}
