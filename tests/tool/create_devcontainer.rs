//! Containers that `create` makes from a `devcontainer.json` of this host.

use std::path::Path;

use serde_json::{Value, json};

use super::person::step;
use super::{Tool, with_rootful_engine, without_engine};
use crate::engines::{IMAGE, Lack, ran};

/// A value that no image may contain.
const CANARY: &str = "canary-of-the-directory";

fn write(dir: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let at = dir.join(path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, text).unwrap();
    }
}

fn call(devcontainer: &str) -> Value {
    json!({ "image": null, "mount_cwd": null, "devcontainer": devcontainer })
}

fn warned(answer: &Value) -> String {
    answer["warnings"].to_string()
}

#[tokio::test]
async fn the_file_of_the_working_directory_says_what_the_container_is() {
    with_rootful_engine("[sandbox]\nlocal_env = [\"GIVEN\"]\n", async |tool: &Tool<'_>| {
        let file = format!(
            r#"{{ // People write comments.
  "image": "{IMAGE}", "remoteUser": "agent", "workspaceFolder": "/workspaces/${{localWorkspaceFolderBasename}}",
  "mounts": ["source=cache,target=/cache,type=volume", "type=tmpfs,target=/scratch", {{ "type": "bind", "source": "${{localWorkspaceFolder}}/data", "target": "/data" }}],
  "containerEnv": {{ "COLOUR": "green" }}, "remoteEnv": {{ "BOTH": "${{containerEnv:COLOUR}}-${{localEnv:NOT_GIVEN}}" }},
  "onCreateCommand": "echo on >>/tmp/order", "postCreateCommand": {{ "a": "id -u >/tmp/who; pwd >/tmp/where", "b": ["sh", "-c", "echo $BOTH >/tmp/env"] }},
  "postStartCommand": "echo start >>/tmp/order", "forwardPorts": [3000, "db:5432"], "hostRequirements": {{ "cpus": 4096 }}, "overrideCommand": true, }}"#
        );
        write(&tool.work(), &[(".devcontainer/devcontainer.json", &file), ("data/given", "from the host"), ("main.txt", "seen")]);
        let mut made = call("auto");
        made["cpu_limit"] = json!(1);
        let answer = tool.made(made).await;
        let name = answer["container"].as_str().unwrap();
        assert_eq!((step(&answer, "devcontainer")["status"].as_str(), &answer["user"]), (Some("success"), &json!("1000:1000")), "{answer:#}");
        let folder = format!("/workspaces/{}", tool.work().file_name().unwrap().to_str().unwrap());
        assert_eq!((&answer["workdir"], &answer["devcontainer"]["built"]), (&json!(folder), &json!(false)), "{answer:#}");
        assert_eq!(answer["ports"][0]["container"], 3000, "{answer:#}");
        for ignored in ["overrideCommand", "db:5432", "NOT_GIVEN", "4096 cores"] {
            assert!(warned(&answer).contains(ignored), "{ignored}: {answer:#}");
        }
        assert_eq!(tool.prints(name, "cat /tmp/order").await, "on\nstart");
        assert_eq!(tool.prints(name, "cat /tmp/who /tmp/where /tmp/env main.txt; echo; echo $BOTH").await, format!("1000\n{folder}\ngreen-\nseen\ngreen-"));
        let writes = "cat /data/given; touch /data/x 2>/dev/null || echo; touch /cache/x /scratch/x && grep -c ' /scratch tmpfs ' /proc/mounts";
        assert_eq!(tool.prints(name, writes).await, "from the host\n1");
        ran("devcontainer", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_command_that_fails_is_reported_and_ends_the_others() {
    with_rootful_engine("", async |tool: &Tool<'_>| {
        let file = format!(
            r#"{{ "image": "{IMAGE}", "onCreateCommand": "echo why; exit 3", "postCreateCommand": "touch /tmp/ran" }}"#
        );
        write(&tool.work(), &[("api/.devcontainer.json", &file)]);
        let answer = tool.made(call("api/.devcontainer.json")).await;
        let report = step(&answer, "devcontainer");
        assert_eq!(
            (&answer["provisioning_ok"], &report["items"][0]["output"]),
            (&json!(false), &json!("why")),
            "{answer:#}"
        );
        assert_eq!(report["error"], "`onCreateCommand`: exit 3", "{report:#}");
        let name = answer["container"].as_str().unwrap();
        assert_eq!(
            tool.prints(name, "ls /tmp/ran 2>/dev/null || ls -a").await.lines().last(),
            Some(".devcontainer.json")
        );
    })
    .await;
}

#[tokio::test]
async fn an_image_is_built_of_the_directory_as_it_is_and_no_key_of_it_goes_in() {
    with_rootful_engine("[security]\nimages = [\"localhost/coracle-test-busybox:*\"]\n", async |tool: &Tool<'_>| {
        if tool.case.lacks(Lack::Build) {
            return;
        }
        let secret = format!("TOKEN={CANARY}\n");
        let dockerfile = format!("FROM {IMAGE}\nARG WHO\nRUN echo \"$WHO\" >/who\nCOPY . /opt/all\n");
        let file = r#"{ "build": { "dockerfile": "Dockerfile", "context": "..", "args": { "WHO": "dev" } }, "features": { "./tool": { "greeting": "it's" } } }"#;
        let feature = r#"{ "id": "tool", "version": "1.0.0", "options": { "greeting": { "type": "string", "default": "x" } } }"#;
        write(
            &tool.work(),
            &[
                (".devcontainer/devcontainer.json", file),
                (".devcontainer/Dockerfile", &dockerfile),
                (".devcontainer/tool/devcontainer-feature.json", feature),
                (".devcontainer/tool/install.sh", "#!/bin/sh\necho \"$GREETING\" >/greeting\n"),
                ("src/main.txt", "first"),
                (".env", &secret),
                ("deploy/id_rsa", &secret),
            ],
        );
        std::os::unix::fs::symlink("/etc/shadow", tool.work().join("src/outside")).unwrap();
        std::os::unix::fs::symlink("main.txt", tool.work().join("src/inside")).unwrap();
        let answer = tool.made(call("auto")).await;
        let name = answer["container"].as_str().unwrap();
        let reported = &answer["devcontainer"];
        assert_eq!((&reported["built"], &reported["features"]), (&json!(true), &json!(["./tool"])), "{answer:#}");
        assert_eq!(reported["kept_out"], json!([".env", "deploy/id_rsa"]), "{answer:#}");
        assert_eq!(tool.prints(name, "cat /who /greeting /opt/all/src/inside").await, "dev\nit's\nfirst");
        let found = "grep -r canary-of /opt; ls /opt/all/.env /opt/all/.git /opt/all/src/outside 2>/dev/null; true";
        assert_eq!(tool.prints(name, found).await, "");
        let again = tool.made(call(tool.work().join(".devcontainer/devcontainer.json").to_str().unwrap())).await;
        assert_eq!(again["devcontainer"]["image"], reported["image"], "the same files make the same image");
        write(&tool.work(), &[("src/main.txt", "second")]);
        let other = tool.made(call(".")).await;
        assert_ne!(other["devcontainer"]["image"], reported["image"]);
        assert_eq!(tool.prints(other["container"].as_str().unwrap(), "cat /opt/all/src/main.txt").await, "second");
    })
    .await;
}

#[tokio::test]
async fn fields_without_permission_are_refused_before_anything_is_created() {
    without_engine("[security]\nimages = [\"localhost/*\"]\n", async |tool: &Tool<'_>| {
        for (file, rule) in [
            (r#"{ "initializeCommand": "touch /tmp/ran" }"#, "devcontainer.host_command"),
            (r#"{ "image": "localhost/x", "privileged": true }"#, "devcontainer.privileged"),
            (r#"{ "image": "localhost/x", "mounts": ["source=/,target=/host,type=bind"] }"#, "mount.denied"),
            (r#"{ "image": "elsewhere/x" }"#, "image"),
            (r#"{ "build": { "dockerfile": "../Dockerfile" } }"#, "devcontainer.context"),
            (r#"{ "image": "localhost/x", "features": { "ghcr.io/x/y:1": {} } }"#, "devcontainer.feature"),
        ] {
            write(&tool.work(), &[(".devcontainer.json", file)]);
            let answer = tool.create(call("auto")).await;
            assert_eq!(
                (&answer["code"], &answer["details"]["rule"]),
                (&json!("devcontainer_refused"), &json!(rule)),
                "{answer:#}"
            );
        }
        let file = r#"{ "image": "localhost/x", "features": { "ghcr.io/x/y:1": {}, "../../z": {} } }"#;
        write(&tool.work(), &[(".devcontainer.json", file)]);
        let answer = tool.create(call("auto")).await;
        let hint = answer["hint"].as_str().unwrap();
        assert!(hint.contains(r#"`features_allow = ["ghcr.io/x/y:1"]` below `[sandbox]`"#), "{answer:#}");
        write(&tool.work(), &[(".devcontainer.json", "{ \"image\": }")]);
        let broken = tool.create(call("auto")).await;
        assert_eq!(
            (&broken["code"], &broken["details"]["line"]),
            (&json!("devcontainer_invalid"), &json!(1)),
            "{broken:#}"
        );
        std::fs::remove_file(tool.work().join(".devcontainer.json")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", tool.work().join(".devcontainer.json")).unwrap();
        assert_eq!(tool.create(call("auto")).await["code"], "devcontainer_invalid", "a link is no file");
        let outside = tool.create(call("/etc/hostname")).await;
        assert_eq!(outside["code"], "policy_denied", "{outside:#}");
        let both = tool.create(json!({ "image": "localhost/x", "devcontainer": "auto" })).await;
        assert_eq!(both["code"], "conflicting_fields", "{both:#}");
        assert!(tool.records().is_empty());
    })
    .await;
}
