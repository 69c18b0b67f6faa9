//! The image of snippets: when it is built, which one is used, and the user's packages.

use std::process::Output;
use std::time::{Duration, Instant};

use coracle_runtime::{ImageCommit, ImageConfig};
use coracle_types::{ContainerId, ImageRef};
use serde_json::{Value, json};

use super::super::{Agent, with_real_agent};
use super::{alone, run, with_snippets};
use crate::engines::{IMAGE, ran};

/// Runs a command of the user with `--json`, and returns the object.
fn object(output: &Output) -> Value {
    let printed = || String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{err}: {}", printed()))
}

#[tokio::test]
async fn r04_an_images_name_is_pinned_until_a_user_trusts_another_image() {
    let name = format!("coracle-test-pin-{}", coracle_types::random_hex::<4>());
    with_real_agent(&format!("[run_code]\nimage = \"{name}\"\n"), async |agent| {
        let runtime = &agent.tool.case.runtime;
        let tag = ImageRef::parse(format!("{name}:latest")).unwrap();
        let first = runtime.find_images(&[ImageRef::parse(IMAGE).unwrap()]).await.unwrap().remove(0).id;
        runtime.tag_image(&first, &tag).await.unwrap();
        let sh = async || run(agent, "1", json!({ "language": "bash" })).await;
        let begun = Instant::now();
        // It has no bash, but was used nevertheless.
        assert_eq!(sh().await["code"], "language_unavailable");
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing was built: {:?}", begun.elapsed());
        let container = agent.container("run").unwrap();

        let commit = ImageCommit {
            container: ContainerId::parse(&container).unwrap(),
            tag: Some(tag.clone()),
            labels: vec![("changed".into(), "1".into())],
            config: ImageConfig::default(),
        };
        let second = runtime.commit_image(&commit).await.unwrap().id;
        assert_eq!(sh().await["code"], "language_unavailable", "what runs goes on");
        assert!(agent.tool.engine(&["rm", "-f", &container]).await.0);
        let changed = sh().await;
        assert_eq!((&changed["code"], &changed["exitCode"]), (&"image_changed".into(), &Value::Null), "{changed:#}");
        assert!(changed["hint"].as_str().unwrap().contains(&format!("coracle images trust {name}")), "{changed:#}");
        assert_eq!(sh().await["code"], "image_changed", "it is no matter of trying again");

        let trust = async |name: &str| object(&agent.tool.run(["images", "trust", name, "--json"], b"").await);
        assert_eq!(trust("busybox").await["code"], "not_found");
        let trusted = trust(&name).await;
        assert_eq!(
            (&trusted["success"], &trusted["id"], &trusted["before"]),
            (&true.into(), &second.as_str().into(), &first.as_str().into()),
            "{trusted:#}"
        );
        assert_eq!(sh().await["code"], "language_unavailable");
        agent.end().await;
        agent.tool.engine(&["rmi", "-f", &format!("{name}:latest")]).await;
        runtime.remove_image(&second).await.unwrap();
        ran("r04", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn r05_the_image_of_snippets_is_built_once_by_the_first_caller() {
    if !coracle_skips::may_download() {
        return;
    }
    let made = format!("coracle-test-made-{}:latest", coracle_types::random_hex::<4>());
    with_real_agent(&format!("[run_code]\nimage = \"{made}\"\n"), async |agent| {
        let _alone = alone(agent).await;
        let other = Agent::new(agent.tool, "agent-2");
        let (first, second) = tokio::join!(
            run(agent, "console.log(Bun.version)", json!({})),
            run(&other, "console.log(1)", json!({ "language": "javascript" })),
        );
        assert_eq!((&first["success"], &second["output"]), (&true.into(), &"1\n".into()), "{first:#} {second:#}");
        assert_eq!(first["output"], "1.4.5\n");
        let image = async |agent: &Agent<'_>| {
            let container = agent.container("run").unwrap();
            agent.tool.engine(&["container", "inspect", "--format", "{{.Image}}", &container]).await.1
        };
        assert_eq!(image(agent).await, image(&other).await, "one build");
        other.end().await;
        agent.end().await;
        agent.tool.engine(&["rmi", "-f", &made]).await;
        ran("r05", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn r10_packages_added_by_the_user_are_available_and_read_only_in_every_session() {
    with_snippets(false, async |agent| {
        let packages = async |words: &[&str]| {
            let begin = ["run", "packages", words[0], "--json"];
            object(&agent.tool.run(begin.iter().chain(&words[1..]), b"").await)
        };
        let before = run(agent, "import six", json!({ "language": "python" })).await;
        assert_eq!(before["code"], "run_failed", "{before:#}");
        assert_eq!(packages(&["add", "python", "--", "-r"]).await["code"], "invalid_input");
        let python = packages(&["add", "python", "six==1.17.0"]).await;
        assert_eq!((&python["success"], &python["added"][0]["name"]), (&true.into(), &"six".into()), "{python:#}");
        let bun = packages(&["add", "typescript", "is-number@7.0.0"]).await;
        assert_eq!((&bun["success"], bun["packages"].as_array().unwrap().len()), (&true.into(), 2), "{bun:#}");

        let it = run(agent, "import six; print(six.__version__)", json!({ "language": "python" })).await;
        assert_eq!((&it["output"], &it["containerRestarted"]), (&"1.17.0\n".into(), &true.into()), "{it:#}");
        let news = &it["warnings"][0]["details"];
        assert_eq!((&news["reason"], &news["kept"]), (&"spec_changed".into(), &json!(["/packages"])), "{it:#}");
        let code = "import isNumber from 'is-number'; console.log(isNumber('7'))";
        let it = run(agent, code, json!({})).await;
        assert_eq!((&it["output"], &it["containerRestarted"]), (&"true\n".into(), &false.into()), "{it:#}");
        let probe = "touch /packages-base/x 2>/dev/null && echo wrote; rm -r /packages-base/python/six.py 2>/dev/null && echo removed; \
                     mkdir -p /packages/python && echo 'x = 1' >/packages/python/six.py; echo done";
        assert_eq!(run(agent, probe, json!({ "language": "bash" })).await["output"], "done\n");
        let other = Agent::new(agent.tool, "agent-2");
        let theirs = run(&other, "import six; print(six.__version__)", json!({ "language": "python" })).await;
        other.end().await;
        assert_eq!(theirs["output"], "1.17.0\n", "{theirs:#}");
        ran("r10", agent.engine());

        let failed = packages(&["add", "python", "six==0.0.0.1"]).await;
        assert_eq!(failed["code"], "packages_failed", "{failed:#}");
        assert!(failed["details"]["log"].as_str().unwrap().contains("six"), "{failed:#}");
        let pruned = agent.tool.call(json!({ "operation": "prune", "dry_run": false, "kinds": ["volumes"] })).await;
        let listed = packages(&["list"]).await;
        assert_eq!(listed["count"], 2, "{listed:#}");
        let volume = listed["packages"][0]["volume"].as_str().unwrap().to_owned();
        assert!(pruned["kept"].to_string().contains(&volume) && !pruned["items"].to_string().contains(&volume), "{pruned:#}");
        assert_eq!(run(agent, code, json!({})).await["output"], "true\n", "what failed changed nothing");

        let cleared = packages(&["clear"]).await;
        assert_eq!((&cleared["success"], cleared["removed"].as_array().unwrap().len()), (&true.into(), 2), "{cleared:#}");
        let gone = run(agent, code, json!({})).await;
        assert_eq!((&gone["success"], &gone["containerRestarted"]), (&false.into(), &true.into()), "{gone:#}");
        agent.tool.call(json!({ "operation": "prune", "dry_run": false, "kinds": ["volumes"] })).await;
        assert!(!agent.tool.engine(&["volume", "inspect", &volume]).await.0, "its volume is gone");
    })
    .await;
}
