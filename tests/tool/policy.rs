//! Refusals of the user's policy.

use serde_json::json;

use super::{with_engine, with_tool, without_engine};
use crate::engines::ran;

#[tokio::test]
async fn s24_host_paths_outside_the_roots_are_refused_with_the_rules_name() {
    without_engine("", async |tool| {
        std::fs::create_dir_all(tool.home().join(".ssh")).unwrap();
        std::os::unix::fs::symlink(tool.home().join(".ssh"), tool.work().join("link")).unwrap();
        let home = tool.home().display().to_string();
        for (host, rule) in [
            ("/etc", "mount.denied"),
            (&format!("{home}/.ssh"), "mount.denied"),
            (&home, "mount.denied"),
            ("link", "mount.denied"),
            ("/var/run/docker.sock", "mount.denied"),
            ("/srv", "mount.root"),
        ] {
            let answer = tool.create(json!({ "mounts": [{ "host": host, "container": "/x" }] })).await;
            // A socket is refused because of its type, before any rule is checked.
            let refused = answer["code"] == "policy_denied" && answer["details"]["rule"] == rule;
            assert!(refused || (host.ends_with(".sock") && answer["success"] == false), "{host}: {answer:#}");
        }
        let answer = tool.create(json!({ "mounts": [{ "host": "missing", "container": "/x" }] })).await;
        assert_eq!(answer["code"], "path_not_found", "{answer:#}");
        assert!(!tool.work().join("missing").exists() && tool.records().is_empty());
        ran("s24", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s26_other_networks_cannot_be_requested() {
    with_tool("", async |tool| {
        for network in ["container:x", "ns:/proc/1/ns/net", "slirp4netns"] {
            assert_eq!(tool.create(json!({ "network": network })).await["code"], "invalid_input", "{network}");
        }
        let answer = tool.create(json!({ "network": "host" })).await;
        assert_eq!((&answer["code"], &answer["details"]["rule"]), (&"policy_denied".into(), &"network.host".into()));
        assert_eq!(tool.create(json!({ "network": "no-such-network" })).await["code"], "not_found");
        assert!(tool.records().is_empty());
        ran("s26", tool.case.engine());
    })
    .await;
    with_tool("[security]\nallow_host_network = true\n", async |tool| {
        assert_eq!(tool.create(json!({ "network": "host" })).await["success"], true);
        assert_eq!(tool.create(json!({ "network": "container:x" })).await["code"], "invalid_input");
    })
    .await;
}

#[tokio::test]
async fn s28_limits_are_the_configured_ones_and_no_call_exceeds_them() {
    let config = "[security]\nmemory_limit = \"512m\"\nmemory_max = \"1g\"\n";
    with_tool(config, async |tool| {
        let answer = tool.create(json!({})).await;
        let memory = if tool.case.keeps_limits() { json!(512 << 20) } else { json!(null) };
        assert_eq!(answer["limits"]["memory"], memory, "{answer:#}");
        let answer = tool.create(json!({ "memory_limit": "64g" })).await;
        assert_eq!((&answer["code"], &answer["details"]["rule"]), (&"policy_denied".into(), &"limit.memory".into()));
        ran("s28", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s32_a_gpu_needs_a_grant_and_a_gpu() {
    without_engine("", async |tool| {
        let answer = tool.create(json!({ "gpu": true })).await;
        assert_eq!((&answer["code"], &answer["details"]["rule"]), (&"policy_denied".into(), &"gpu".into()));
    })
    .await;
    without_engine("[security]\nallow_gpu = true\n", async |tool| {
        let answer = tool.create(json!({ "gpu": true })).await;
        assert_eq!((&answer["code"], tool.records().len()), (&"unsupported".into(), 0), "{answer:#}");
        ran("s32", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn protected_paths_cannot_be_written_or_renamed_and_placeholders_are_removed() {
    with_engine("", async |tool| {
        let git = tool.work().join(".git");
        std::fs::create_dir_all(git.join("hooks")).unwrap();
        std::fs::write(git.join("config"), "[core]\n").unwrap();
        let name = tool.created(json!({ "mount_cwd": true })).await;
        for command in [
            "echo x >>.git/config",
            "echo x >.git/hooks/pre-commit",
            "mv .git elsewhere",
            "rm -rf .git/hooks",
            "echo /tmp >.git/commondir",
        ] {
            assert_ne!(tool.exec(&name, command).await["exit_code"], 0, "{command}");
        }
        assert_eq!(tool.prints(&name, "echo ref >.git/HEAD && cat .git/HEAD").await, "ref");
        tool.call(json!({ "operation": "destroy", "container": name })).await;
        assert_eq!(std::fs::read_to_string(git.join("config")).unwrap(), "[core]\n");
        let mut left: Vec<_> =
            git.read_dir().unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["HEAD", "config", "hooks"]);
    })
    .await;
}

#[tokio::test]
async fn removing_one_container_does_not_unprotect_paths_of_another() {
    with_engine("", async |tool| {
        let git = tool.work().join(".git");
        std::fs::create_dir_all(&git).unwrap();
        std::fs::write(git.join("config"), "[core]\n").unwrap();
        let one = tool.created(json!({ "mount_cwd": true })).await;
        let two = tool.created(json!({ "mount_cwd": true })).await;
        tool.call(json!({ "operation": "destroy", "container": one })).await;
        // A failed `create` leaves nothing and removes nothing.
        let failed = tool.create(json!({ "mount_cwd": true, "user": "nobody-knows-them" })).await;
        assert_eq!(failed["code"], "user_not_found");
        tool.call(json!({ "operation": "destroy", "container": "never-there" })).await;
        for command in [
            "echo x >.git/hooks/post-checkout",
            "mkdir -p .git/hooks && echo x >.git/hooks/a",
            "echo /tmp >.git/commondir",
        ] {
            assert_ne!(tool.exec(&two, command).await["exit_code"], 0, "{command}");
        }
        tool.call(json!({ "operation": "destroy", "container": two })).await;
        assert!(!git.join("hooks").exists() && !git.join("commondir").exists());
    })
    .await;
}

#[tokio::test]
async fn no_mount_or_copy_reaches_a_protected_path() {
    with_engine("", async |tool| {
        std::fs::create_dir_all(tool.work().join("nested/.git/hooks")).unwrap();
        let answer = tool.create(json!({ "mounts": [{ "host": "nested/.git", "container": "/x" }] })).await;
        assert_eq!((&answer["code"], &answer["details"]["rule"]), (&"policy_denied".into(), &"files.protected".into()));
        let name = tool.created(json!({})).await;
        tool.prints(&name, "echo x >hook").await;
        let call = json!({ "operation": "copy_out", "container": name, "host_path": "nested/.git/hooks/", "container_path": "hook" });
        assert_eq!(tool.call(call).await["details"]["rule"], "copy.protected");
        assert_eq!(tool.work().join("nested/.git/hooks").read_dir().unwrap().count(), 0);
        std::fs::create_dir_all(tool.work().join(".git/hooks")).unwrap();
        std::fs::write(tool.work().join("hook"), "x").unwrap();
        let name = tool.created(json!({ "mount_cwd": true })).await;
        for target in ["/workspace/.git/hooks/pre-commit", "/workspace/.git/hooks/"] {
            let call = json!({ "operation": "copy_in", "container": name, "host_path": "hook", "container_path": target });
            let answer = tool.call(call).await;
            assert_eq!((&answer["code"], &answer["details"]["rule"]), (&"policy_denied".into(), &"files.protected".into()));
        }
        assert_eq!(tool.work().join(".git/hooks").read_dir().unwrap().count(), 0);
        for user in ["4294967295", "0:4294967295"] {
            assert_eq!(tool.create(json!({ "user": user })).await["code"], "invalid_input", "{user}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_container_is_not_restarted_on_a_replaced_directory() {
    with_engine("", async |tool| {
        let (data, outside) = (tool.work().join("data"), tool.home().join("outside"));
        std::fs::create_dir(&data).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "secret").unwrap();
        let mounts = json!([{ "host": "data", "container": "/data" }]);
        let name = tool.created(json!({ "persistent": true, "mounts": mounts })).await;
        assert!(tool.engine(&["stop", "--time=0", &name]).await.0);
        std::fs::remove_dir(&data).unwrap();
        std::os::unix::fs::symlink(&outside, &data).unwrap();
        let answer = tool.exec(&name, "cat /data/secret").await;
        assert_eq!(answer["code"], "mount_changed", "{answer:#}");
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        assert_eq!(status["running"], false);
    })
    .await;
}

#[tokio::test]
async fn a_path_in_a_directory_that_another_container_can_write_is_not_mounted() {
    with_tool("", async |tool| {
        std::fs::create_dir_all(tool.work().join("data")).unwrap();
        let mounts = json!([{ "host": "data", "container": "/data" }]);
        let whole = tool.created(json!({ "mount_cwd": true })).await;
        let answer = tool.create(json!({ "mounts": mounts })).await;
        assert_eq!(
            (&answer["code"], &answer["details"]["rule"]),
            (&"policy_denied".into(), &"mount.shared".into()),
            "{answer:#}"
        );
        assert_eq!(tool.records().len(), 1);
        tool.call(json!({ "operation": "destroy", "container": whole })).await;
        assert_eq!(tool.create(json!({ "mounts": mounts })).await["success"], true);
    })
    .await;
}

/// Paths where a program could search settings of a project.
const PLANTED: [&str; 8] = [
    "coracle.toml",
    ".coracle.toml",
    "config.toml",
    "coracle.json",
    "coracle/config.toml",
    ".coracle/config.toml",
    ".config/coracle/config.toml",
    ".config/config.toml",
];

#[tokio::test]
async fn the_configuration_is_not_read_from_the_working_directory() {
    without_engine("", async |tool| {
        let (work, planted_state) = (tool.work(), tool.work().join("planted-state"));
        let below = work.join("below");
        for dir in [&work, &below] {
            for name in PLANTED {
                let file = dir.join(name);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                let text = match name.ends_with(".json") {
                    true => json!({ "state_dir": planted_state }).to_string(),
                    false => format!("state_dir = {planted_state:?}\n"),
                };
                std::fs::write(file, text).unwrap();
            }
        }
        let run = async |dir: &std::path::Path, words: &[&str], variables: &[(&str, &str)]| {
            let mut command = tool.command(words);
            command.current_dir(dir).env_remove("CORACLE_CONFIG").envs(variables.iter().copied());
            command.stdin(std::process::Stdio::null()).output().await.unwrap()
        };
        for variables in [
            &[][..],
            &[("XDG_CONFIG_HOME", "")],
            &[("XDG_CONFIG_HOME", ".")],
            &[("XDG_CONFIG_HOME", ".config")],
            &[("CORACLE_CONFIG", "")],
            &[("HOME", ".")],
        ] {
            for dir in [&work, &below] {
                for words in [&["saved", "list"][..], &["audit", "verify"], &["mcp"]] {
                    run(dir, words, variables).await;
                    assert!(!planted_state.exists(), "{words:?} with {variables:?} in {}", dir.display());
                }
            }
        }
        // A file that the user names is read, even there.
        let named = run(&work, &["saved", "list"], &[("CORACLE_CONFIG", "coracle.toml")]).await;
        assert!(named.status.success() && planted_state.exists(), "{}", String::from_utf8_lossy(&named.stderr));
    })
    .await;
}
