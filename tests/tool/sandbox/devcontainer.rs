//! Sandboxes of a repository's `devcontainer.json`.

use serde_json::{Value, json};

use super::{Bench, WITH_GIT, call, calls, ran, says, with_bench};
use crate::engines::{Lack, has_real_engine, skip};
use crate::servers::registry::Registry;

const AUTO: &str = "\n[sandbox]\ndevcontainer = \"auto\"\n";

/// A value that no image may contain.
const CANARY: &str = "canary-7be2d8a1f4";

/// A file with nearly all supported fields. `data` is a directory of the host.
fn file(data: &str) -> String {
    format!(
        r#"{{ // People write comments.
  "name": "web",
  "build": {{ "dockerfile": "Dockerfile", "context": "..", "args": {{ "WHO": "dev" }} }},
  "features": {{ "./tool": {{ "greeting": "it's $HOME; \"here\"" }} }},
  "remoteUser": "dev",
  "workspaceFolder": "/workspaces/${{localWorkspaceFolderBasename}}",
  "mounts": ["source=cache,target=/home/dev/cache,type=volume", "type=tmpfs,target=/scratch",
    {{ "type": "bind", "source": "{data}", "target": "/data" }}],
  "containerEnv": {{ "COLOUR": "green", "HTTPS_PROXY": "http://elsewhere" }},
  "remoteEnv": {{ "BOTH": "${{containerEnv:COLOUR}}-${{containerEnv:TOOL}}" }},
  "onCreateCommand": "echo on >> /workspace/order",
  "updateContentCommand": ["sh", "-c", "echo update >> /workspace/order"],
  "postCreateCommand": {{ "a": "id -u > /workspace/who; pwd > /workspace/where; echo $BOTH > /workspace/env", "b": "echo post >> /workspace/order" }},
  "postStartCommand": "echo start >> /workspace/order",
  "forwardPorts": [3000],
  "overrideCommand": false, /* and trailing commas */
}}
"#
    )
}

fn dockerfile() -> String {
    format!(
        "FROM {WITH_GIT}\nARG WHO\nRUN mkdir -p /etc /home/$WHO && echo \"$WHO:x:1234:1234::/home/$WHO:/bin/sh\" >> /etc/passwd \\\n \
         && chown 1234:1234 /home/$WHO\nCOPY . /opt/all\n"
    )
}

/// A branch for this engine, with these files.
async fn branch(bench: &Bench<'_>, name: &str, files: &[(&str, &str)]) -> String {
    let name = bench.id(name);
    bench.server.commit("web", &name, files).await;
    name
}

async fn created(bench: &Bench<'_>, id: &str, base: &str) -> Value {
    bench.worktree(&["create", &bench.url(), "--workflow", id, "--base", base]).await
}

fn stages(answer: &Value) -> Vec<&str> {
    let commands = answer["devcontainer"]["commands"].as_array().unwrap();
    commands.iter().map(|it| it["stage"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn x65_a_repositorys_file_is_used_and_reported_and_a_second_start_runs_one_command() {
    with_bench(AUTO, async |bench| {
        if bench.tool.case.lacks(Lack::Build) {
            return;
        }
        let data = bench.tool.work().join("data");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("given"), "from the host").unwrap();
        let (file, dockerfile, secret) = (file(data.to_str().unwrap()), dockerfile(), format!("TOKEN={CANARY}\n"));
        let feature = r#"{ "id": "tool", "version": "1.0.0", "options": { "greeting": { "type": "string", "default": "x" } },
            "containerEnv": { "TOOL": "1" } }"#;
        let files = [
            (".devcontainer/devcontainer.json", file.as_str()),
            (".devcontainer/Dockerfile", &dockerfile),
            (".devcontainer/tool/devcontainer-feature.json", feature),
            (".devcontainer/tool/install.sh", "#!/bin/sh\necho \"$GREETING\" > /greeting\nid -u >> /greeting\n"),
            (".devcontainer/tool/.env", &secret),
            ("src/main.txt", "seen"),
            (".env", &secret),
            ("deploy/id_rsa", &secret),
            ("tls/server.key", &secret),
        ];
        let base = branch(bench, "dev", &files).await;
        let id = bench.id("dressed");
        let made = created(bench, &id, &base).await;
        let reported = &made["devcontainer"];
        assert_eq!((&reported["file"], &reported["built"]), (&json!(".devcontainer/devcontainer.json"), &json!(true)), "{made:#}");
        assert_eq!((&reported["user"], &reported["features"]), (&json!("dev (1234:1234)"), &json!(["./tool"])), "{reported:#}");
        let all = ["onCreateCommand", "updateContentCommand", "postCreateCommand", "postCreateCommand", "postStartCommand"];
        assert_eq!(stages(&made), all, "{reported:#}");
        assert!(reported["failed"].is_null(), "{reported:#}");
        assert!(reported["warnings"].to_string().contains("overrideCommand"), "{reported:#}");
        assert_eq!((&reported["forward_ports"], reported["mounts"].as_array().unwrap().len()), (&json!(["3000"]), 3), "{reported:#}");
        assert!(reported["kept_out"].as_array().unwrap().contains(&json!(".env")), "{reported:#}");

        let inside = async |script: &str| bench.inside("1234:1234", script).await;
        assert_eq!(inside("cat /workspace/order").await, "on\nupdate\npost\nstart");
        assert_eq!(inside("cat /workspace/who /workspace/where /workspace/env").await, format!("1234\n/workspace/worktrees/{id}\ngreen-1"));
        assert_eq!(inside("cat /greeting").await, "it's $HOME; \"here\"\n0");
        assert_eq!(inside("cat /workspaces/web/src/main.txt; stat -c %u /workspaces/web/src").await, "seen1234");
        assert_eq!(inside("cat /data/given; touch /data/x 2>/dev/null || echo kept; touch /scratch/x && echo written").await, "from the hostkept\nwritten");
        assert_eq!(inside("echo x > /home/dev/cache/x; cat /workspace/.volumes/cache/x").await, "x");

        let agent = "id -u; grep CapEff /proc/self/status; echo $BOTH $HTTPS_PROXY $HOME; touch kept";
        bench.model.then([calls([call("shell_execute", json!({ "command": ["sh", "-c", agent] }))]), says("done")]);
        let (ended_well, events) = bench.works(&id, "Look around.").await;
        let printed = events.get(2).map_or_else(String::new, |it| it["output"].to_string());
        let seen = ["1234", "0000000000000000", "green-1 http://127.0.0.1:3128 /home/dev"];
        assert!(ended_well && seen.iter().all(|it| printed.contains(it)), "{events:#?}");

        assert_eq!(stages(&created(bench, &id, &base).await), [""; 0], "nothing runs twice");
        let container = bench.container().await;
        assert!(bench.tool.engine(&["kill", &container]).await.0);
        assert_eq!(stages(&created(bench, &id, &base).await), ["postStartCommand"]);
        assert_eq!(inside("cat /workspace/order").await, "on\nupdate\npost\nstart\nstart");

        x64(bench, reported["image"].as_str().unwrap()).await;
        // The same files give the same image, immediately.
        let again = created(bench, &bench.id("again"), &base).await;
        assert_eq!(again["devcontainer"]["image"], reported["image"], "{again:#}");
        ran("x65", bench.tool.case.engine());
    })
    .await;
}

/// No layer has content of files named like keys, or git's files.
async fn x64(bench: &Bench<'_>, image: &str) {
    let tar = bench.tool.temp().join("image.tar");
    let path = tar.to_str().unwrap();
    assert!(bench.tool.engine(&["save", "-o", path, image]).await.0);
    let bytes = std::fs::read(&tar).unwrap();
    std::fs::remove_file(&tar).unwrap();
    let holds = |what: &str| memchr::memmem::find(&bytes, what.as_bytes()).is_some();
    assert!(holds("opt/all/src/main.txt"), "what is looked for could be seen");
    for what in [CANARY, "opt/all/.git/", "opt/all/.env", "opt/all/deploy/id_rsa", "opt/all/tls/server.key"] {
        assert!(!holds(what), "{what}");
    }
}

#[tokio::test]
async fn x66_fields_without_permission_are_refused_before_anything_is_created() {
    with_bench(AUTO, async |bench| {
        let cases = [
            (r#"{ "initializeCommand": "touch /tmp/ran" }"#, "initializeCommand", "devcontainer.host_command"),
            (r#"{ "privileged": true }"#, "privileged", "devcontainer.privileged"),
            (r#"{ "runArgs": ["--privileged"] }"#, "runArgs", "devcontainer.run_args"),
            (r#"{ "mounts": ["source=/,target=/host,type=bind"] }"#, "mounts", "mount.denied"),
            (r#"{ "mounts": ["source=/opt/coracle,target=/host,type=bind"] }"#, "mounts", "mount.root"),
            (
                r#"{ "features": { "ghcr.io/devcontainers/features/go:1": {} } }"#,
                "features.ghcr.io/devcontainers/features/go:1",
                "devcontainer.feature",
            ),
            (r#"{ "build": { "dockerfile": "../../x" } }"#, "build.dockerfile", "devcontainer.context"),
        ];
        for (number, (text, property, rule)) in cases.into_iter().enumerate() {
            let base = branch(bench, &format!("bad-{number}"), &[(".devcontainer.json", text)]).await;
            let words = ["create", &bench.url(), "--workflow", "refused", "--base", &base];
            let answer = bench.tries(&words).await;
            assert_eq!(answer["code"], "devcontainer_refused", "{text}: {answer:#}");
            assert_eq!(
                (&answer["details"]["property"], &answer["details"]["rule"]),
                (&json!(property), &json!(rule)),
                "{answer:#}"
            );
        }
        let base = branch(bench, "broken", &[(".devcontainer.json", "{\n  \"image\": 7\n}")]).await;
        let answer = bench.tries(&["create", &bench.url(), "--workflow", "refused", "--base", &base]).await;
        assert_eq!(
            (&answer["code"], &answer["details"]["line"]),
            (&json!("devcontainer_invalid"), &json!(2)),
            "{answer:#}"
        );
        assert_eq!(bench.sandboxes().await, [""; 0], "nothing was made");
        ran("x66", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn x65_a_failed_command_stops_the_following_ones_and_is_reported() {
    with_bench(AUTO, async |bench| {
        let text = format!(
            r#"{{ "image": "{WITH_GIT}", "remoteUser": "root", "onCreateCommand": "echo why; exit 3", "postCreateCommand": "true",
                "postStartCommand": "true" }}"#
        );
        let base = branch(bench, "fails", &[(".devcontainer.json", &text)]).await;
        let made = created(bench, "fails", &base).await;
        let reported = &made["devcontainer"];
        assert_eq!((stages(&made), &reported["failed"]["exit_code"]), (vec!["onCreateCommand"], &json!(3)), "{made:#}");
        assert!(reported["failed"]["output"].as_str().unwrap().contains("why"), "{reported:#}");
        assert!(reported["warnings"].to_string().contains("commands run as `agent`"), "{reported:#}");
        let again = created(bench, "fails", &base).await;
        assert_eq!((stages(&again), &again["devcontainer"]["failed"]["exit_code"]), (vec![], &json!(3)), "{again:#}");
        ran("x65_failing", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn x03_a_nonexistent_image_is_reported_and_nothing_is_created() {
    with_bench("\n[sandbox.profiles.other]\nimage = \"127.0.0.1:9/none:1\"\n", async |bench| {
        let answer = bench.tries(&["create", &bench.url(), "--workflow", "none", "--profile", "other"]).await;
        assert_eq!(answer["code"], "pull_failed", "{answer:#}");
        assert_eq!(bench.sandboxes().await, [""; 0]);
        ran("x03", bench.tool.case.engine());
    })
    .await;
}

/// A feature's layer: its metadata and its script.
fn layer(about: &Value, script: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in [("./devcontainer-feature.json", about.to_string()), ("./install.sh", script.to_owned())] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap()
}

#[tokio::test]
async fn x65_a_feature_of_a_registry_is_fetched_and_is_the_same_one_from_then_on() {
    if !has_real_engine() {
        return skip(coracle_skips::NEEDS_ENGINE);
    }
    let Some(registry) = Registry::start().await else { return };
    let about = |id: &str, after: &str| {
        json!({ "id": id, "version": "1.0.0", "installsAfter": [after],
            "options": { "greeting": { "type": "string", "default": "hello" } } })
    };
    let (first, second) = (registry.name("team/first"), registry.name("team/second"));
    let says = |what: &str| {
        format!("#!/bin/sh\necho {what} $GREETING $_REMOTE_USER $_REMOTE_USER_HOME $_CONTAINER_USER >> /order\n")
    };
    // In the order of their names the second would be last.
    let of_first = registry.push("team/first", "1", &layer(&about("first", &second), &says("first"))).await;
    let of_second =
        registry.push("team/second", "1", &layer(&about("second", "elsewhere.io/x"), &says("second"))).await;
    let asks = format!("{AUTO}features_allow = [\"{}\"]\n", registry.name("team/*"));
    with_bench(&asks, async |bench| {
        if bench.tool.case.lacks(Lack::Build) {
            return;
        }
        // Another engine may have left another one.
        registry.push("team/first", "1", &layer(&about("first", &second), &says("first"))).await;
        let text = json!({ "image": WITH_GIT, "remoteUser": "agent",
            "features": { format!("{first}:1"): {}, format!("{second}:1"): { "greeting": "hi $HOME" } } });
        let base = branch(bench, "registry", &[(".devcontainer.json", &text.to_string())]).await;
        let id = bench.id("fetched");
        let made = created(bench, &id, &base).await;
        let reported = &made["devcontainer"];
        assert_eq!(
            reported["features"],
            json!([format!("{first}:1@{of_first}"), format!("{second}:1@{of_second}")]),
            "{made:#}"
        );
        let order = bench.inside("10002:10002", "cat /order").await;
        let lines: Vec<_> = order.lines().collect();
        assert_eq!(lines.len(), 2, "{order}");
        assert!(
            lines[0].starts_with("second hi $HOME agent ") && lines[1].starts_with("first hello agent "),
            "{order}"
        );

        // Another one replaces it for new commands, but not for running ones.
        let image = reported["image"].as_str().unwrap().to_owned();
        let newer = registry.push("team/first", "1", &layer(&about("first", &second), &says("newer"))).await;
        assert_ne!(newer, of_first);
        let container = bench.container().await;
        assert!(bench.tool.engine(&["rm", "-f", &container]).await.0);
        bench.tool.engine(&["rmi", "-f", &image]).await;
        let again = created(bench, &id, &base).await;
        assert_eq!(
            (&again["devcontainer"]["image"], &again["devcontainer"]["features"]),
            (&json!(image), &reported["features"])
        );
        assert!(bench.inside("10002:10002", "cat /order").await.contains("first hello"));
        let other = created(bench, &bench.id("newer"), &base).await;
        assert_ne!(other["devcontainer"]["image"], json!(image));
        assert!(other["devcontainer"]["features"].to_string().contains(&newer), "{other:#}");
        bench.worktree(&["remove", &id]).await;

        // A missing or invalid feature, one that needs another, or one that is not allowed.
        registry.push("team/odd", "1", b"nothing").await;
        registry.push("team/needs", "1", &layer(&json!({ "id": "needs", "dependsOn": { "x.io/y:1": {} } }), "")).await;
        let cases = [
            (format!("{first}:7"), "fetch_failed"),
            (format!("{first}@sha256:{}", "0".repeat(64)), "fetch_failed"),
            (registry.name("team/odd:1"), "devcontainer_invalid"),
            (registry.name("team/needs:1"), "devcontainer_refused"),
            (registry.name("other/first:1"), "devcontainer_refused"),
        ];
        for (number, (name, code)) in cases.into_iter().enumerate() {
            let text = json!({ "image": WITH_GIT, "features": { &name: {} } }).to_string();
            let base = branch(bench, &format!("none-{number}"), &[(".devcontainer.json", &text)]).await;
            let answer = bench.tries(&["create", &bench.url(), "--workflow", "refused", "--base", &base]).await;
            assert_eq!(answer["code"], code, "{name}: {answer:#}");
        }
        ran("x65", bench.tool.case.engine());
    })
    .await;
}
