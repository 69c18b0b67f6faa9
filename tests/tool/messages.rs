//! Messages of the command line for a person, and of a call for an agent.

use std::process::Output;

use serde_json::json;

use super::{Tool, with_rootful_engine};

fn texts(output: &Output) -> (String, String) {
    let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The text on standard error of a command line that has to fail.
async fn refused(tool: &Tool<'_>, words: &[&str]) -> String {
    let output = tool.run(words, b"").await;
    let (stdout, stderr) = texts(&output);
    assert!(!output.status.success() && stdout.is_empty(), "{words:?}: {stdout}{stderr}");
    stderr
}

#[tokio::test]
async fn a_stopped_container_is_started_by_a_user_and_replaced_by_an_agent() {
    with_rootful_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        assert!(tool.engine(&["kill", &name]).await.0);
        let person = refused(tool, &["exec", &name, "--", "true"]).await;
        assert!(person.contains(&format!("`coracle start {name}` starts it again")), "{person}");
        assert!(!person.contains("the person"), "{person}");
        let hint = tool.exec(&name, "true").await["hint"].to_string();
        assert!(hint.contains("`destroy` it") && hint.contains("`create` another"), "{hint}");
    })
    .await;
}

#[tokio::test]
async fn a_limit_names_its_setting_and_its_file_to_a_user() {
    with_rootful_engine("", async |tool| {
        let file = tool.root.path().join("config.toml").canonicalize().unwrap();
        let (file, image) = (file.display().to_string(), crate::engines::IMAGE);
        let create = ["create", "--image", image, "--mount-cwd=false", "--port", "80:80"];
        let person = refused(tool, &create).await;
        assert!(person.contains("leave it out to get a free one"), "{person}");
        assert!(person.contains("change `security.port_min` in "), "{person}");
        let named = person.split("`security.port_min` in ").nth(1).unwrap().trim();
        assert_eq!(std::path::Path::new(named).canonicalize().unwrap().display().to_string(), file);
        let call = json!({ "ports": [{ "container": 80, "host": 80 }] });
        let agent = tool.create(call).await;
        assert_eq!(agent["details"]["rule"], "port.low", "{agent:#}");
        assert!(agent["hint"].as_str().unwrap().contains("only the user can change"), "{agent:#}");
        let mounts = json!({ "mounts": [{ "host": tool.work(), "container": "/etc" }] });
        let covered = tool.create(mounts).await;
        assert_eq!((&covered["code"], &covered["details"]["rule"]), (&"invalid_input".into(), &"mount.target".into()));
        assert!(covered["hint"].as_str().unwrap().contains("`/data`"), "{covered:#}");
    })
    .await;
}

#[tokio::test]
async fn steps_are_printed_in_a_pipe_and_a_commands_streams_are_its_own() {
    with_rootful_engine("", async |tool| {
        let name = tool.case.name("told").to_string();
        let run = tool.case.container_label().1;
        let label = format!("{}={run}", crate::engines::LABEL);
        let words =
            ["create", "--name", &name, "--image", crate::engines::IMAGE, "--mount-cwd=false", "--label", &label];
        let (stdout, stderr) = texts(&tool.run(words, b"").await);
        assert!(stdout.contains(&format!("{name} is ready")), "{stdout}{stderr}");
        assert!(stderr.lines().any(|it| it == format!("making {name}")), "{stderr}");
        let ran = tool.run(["exec", &name, "--", "sh", "-c", "printf out; printf err >&2"], b"").await;
        assert_eq!(texts(&ran), ("out".to_owned(), "err".to_owned()));
        let job = ["exec-background", &name, "--", "printf", "half a line"];
        let job = texts(&tool.run(job, b"").await).0.trim().to_owned();
        tool.run(["job-wait", &name, &job], b"").await;
        let read = texts(&tool.run(["job-read", &name, &job, "--limit", "4"], b"").await);
        assert_eq!(read.0, "half");
        assert!(read.1.starts_with("\n7 bytes more"), "{:?}", read.1);
        let (stdout, stderr) = texts(&tool.run(["destroy", &name], b"").await);
        assert!(stdout.starts_with(&format!("{name} destroyed (")) && stdout.trim_end().ends_with(" s)"), "{stdout}");
        assert!(stderr.contains("removing"), "{stderr}");
    })
    .await;
}

#[tokio::test]
async fn listed_containers_name_their_engine() {
    with_rootful_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let listed = tool.call(json!({ "operation": "list" })).await;
        let row = listed["containers"].as_array().unwrap().iter().find(|it| it["name"] == name.as_str()).unwrap();
        assert_eq!((&row["engine"], &row["compose_services"]), (&tool.case.engine().as_str().into(), &json!([])));
        let (stdout, _) = texts(&tool.run(["list"], b"").await);
        let heads: Vec<_> = stdout.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(heads, ["NAME", "STATUS", "IMAGE", "PORTS", "KIND", "SERVICES", "CREATED", "ENGINE", "SESSION"]);
    })
    .await;
}

#[tokio::test]
async fn the_engine_of_tests_is_accepted_and_not_offered() {
    with_rootful_engine("", async |tool| {
        let help = texts(&tool.run(["list", "--help"], b"").await).0;
        assert!(help.contains("podman") && !help.contains("fake"), "{help}");
        let refused = refused(tool, &["--engine", "warp", "list"]).await;
        assert!(refused.contains("kubernetes]") && !refused.contains("fake"), "{refused}");
        let listed = texts(&tool.run(["--engine", "fake", "list"], b"").await).0;
        assert!(listed.contains("no containers"), "{listed}");
    })
    .await;
}
