//! Creating containers.

use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};

use super::{with_engine, with_rootful_tool, with_tool};
use crate::engines::{IMAGE, ran};

#[tokio::test]
async fn s18_a_container_is_created_as_requested_and_removed_by_destroy() {
    with_engine("", async |tool| {
        let answer = tool.create(json!({})).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        let (name, id) = (answer["container"].as_str().unwrap(), answer["id"].as_str().unwrap());
        assert_eq!(answer["image"], IMAGE);
        assert!(id.len() == 64 && id.starts_with(answer["container_id"].as_str().unwrap()));
        for field in
            ["image_id", "image_source", "connect_command", "coracle_command", "workdir", "home", "user", "network"]
        {
            assert!(answer[field].is_string(), "{field}: {answer:#}");
        }
        for field in ["purpose", "compose_project", "main_job_id", "repo_path"] {
            assert!(answer[field].is_null(), "{field}: {answer:#}");
        }
        assert!(answer["expires_at"].is_string(), "{answer:#}");
        assert_eq!((&answer["provisioning_ok"], &answer["persistent"]), (&true.into(), &false.into()));
        assert_eq!(tool.call(json!({ "operation": "destroy", "container": name })).await["success"], true);
        assert!(!tool.engine(&["inspect", id]).await.0);
        ran("s18", tool.case.engine());
    })
    .await;
}

/// Names of the report, in the order of execution.
const STEPS: [&str; 14] = [
    "image",
    "compose",
    "user",
    "workspace",
    "ca_certificates",
    "packages",
    "env_passthrough",
    "forward_git",
    "forward_gh",
    "forward_ssh",
    "dotfiles",
    "repos",
    "config_files",
    "setup_commands",
];

#[tokio::test]
async fn the_report_has_every_step_in_order_and_success_only_with_a_probe() {
    with_tool("", async |tool| {
        let answer = tool.create(json!({ "setup_commands": ["true"] })).await;
        let report = answer["provisioning_report"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
        let names: Vec<_> = report.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(names, STEPS);
        for step in report {
            assert_eq!(step["status"] == "success", step["probe"].is_string(), "{step:#}");
        }
    })
    .await;
}

#[tokio::test]
async fn s19_a_directory_is_bound_and_commands_run_as_its_owner() {
    with_engine("", async |tool| {
        let answer = tool.create(json!({ "mount_cwd": true })).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        let name = answer["container"].as_str().unwrap();
        let uid = rustix::process::getuid().as_raw().to_string();
        assert_eq!(tool.prints(name, "id -u").await, uid);
        assert_eq!(tool.prints(name, "touch made && pwd").await, "/workspace");
        assert_eq!(tool.work().join("made").metadata().unwrap().uid().to_string(), uid);
        assert_ne!(tool.prints(name, "ls -ld $HOME").await, "");
        let end = if tool.case.engine().has_program() { "/bin/sh" } else { name };
        assert!(answer["connect_command"].as_str().unwrap().ends_with(end), "{answer:#}");
        ran("s19", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_user_that_the_image_does_not_know_gets_an_entry_a_home_and_the_workdir() {
    with_engine("", async |tool| {
        let name = tool.created(json!({ "user": "4321:8765" })).await;
        let seen =
            tool.prints(&name, "id -u; id -g; echo $HOME $USER; touch $HOME/x /workspace/y; stat -c %a:%u $HOME").await;
        assert_eq!(seen, "4321\n8765\n/home/agent2 agent2\n700:4321");
        let root = json!({ "operation": "exec", "container": name, "command": "id -u; echo $HOME", "as_root": true });
        assert_eq!(tool.call(root).await["stdout"], "0\n/root\n");
    })
    .await;
}

#[tokio::test]
async fn s22_users_are_numbers_or_names_of_the_image() {
    with_engine("", async |tool| {
        for (user, seen) in [("1000", "1000:1000"), ("1000:1001", "1000:1001"), ("root", "0:0"), ("0", "0:0")] {
            let answer = tool.create(json!({ "user": user })).await;
            assert_eq!(answer["user"], seen, "{answer:#}");
            tool.call(json!({ "operation": "destroy", "container": answer["container"] })).await;
        }
        assert_eq!(tool.create(json!({ "user": "x:y" })).await["code"], "invalid_input");
        assert_eq!(tool.create(json!({ "user": "nobody-knows-them" })).await["code"], "user_not_found");
        assert!(tool.records().is_empty());
        assert_eq!(tool.case.runtime.list(&tool.case.mine()).await.unwrap().len(), 0);
        ran("s22", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s27_ports_listen_on_loopback_and_a_taken_one_leaves_nothing() {
    with_engine("", async |tool| {
        let answer = tool.create(json!({ "ports": [{ "container": 8000, "host": 0 }] })).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        let (name, port) = (answer["container"].as_str().unwrap(), answer["ports"][0]["host"].as_u64().unwrap());
        assert_eq!(answer["ports"][0]["address"], "127.0.0.1");
        tool.prints(name, "setsid sh -c 'while :; do echo served | nc -l -p 8000; done' >/dev/null 2>&1 </dev/null &")
            .await;
        let port = u16::try_from(port).unwrap();
        super::eventually("it answers", std::time::Duration::from_secs(10), async || served(port).await).await;
        let answer = tool.create(json!({ "ports": [{ "container": 80, "host": port }] })).await;
        assert_eq!((&answer["code"], &answer["details"]["port"]), (&"port_taken".into(), &port.into()), "{answer:#}");
        assert_eq!(tool.records().len(), 1);
        assert_eq!(tool.case.runtime.list(&tool.case.mine()).await.unwrap().len(), 1);
        ran("s27", tool.case.engine());
    })
    .await;
}

async fn served(port: u16) -> bool {
    use tokio::io::AsyncReadExt;
    let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { return false };
    let mut text = String::new();
    let read = tokio::time::timeout(std::time::Duration::from_secs(1), stream.read_to_string(&mut text));
    read.await.is_ok() && text == "served\n"
}

#[tokio::test]
async fn s29_the_engine_got_the_options_of_the_contract() {
    with_engine("", async |tool| {
        if !tool.case.engine().has_program() {
            return tool.case.left_out(); // there is no warning: the conformance suite checks the limits
        }
        let name = tool.created(json!({ "env": { "PLAIN": "value" }, "memory_limit": "64m", "pids_limit": 50 })).await;
        let (_, text) = tool.engine(&["inspect", &name]).await;
        let inspected: Value = serde_json::from_str(&text).unwrap();
        let (host, config) = (&inspected[0]["HostConfig"], &inspected[0]["Config"]);
        let (memory, pids) = if tool.case.keeps_limits() { (64 << 20, 50) } else { (0, 0) };
        assert_eq!((&host["Memory"], &host["MemorySwap"]), (&memory.into(), &memory.into()));
        assert_eq!(host["PidsLimit"], pids);
        assert_eq!(
            (&host["Privileged"], host["SecurityOpt"].to_string().contains("no-new-privileges")),
            (&false.into(), true)
        );
        assert!(!config["Env"].to_string().contains("PLAIN"), "{config:#}");
        let caps = "0000000000000000";
        let user = tool
            .prints(&tool.created(json!({ "user": "7:7" })).await, "grep -E 'CapEff|NoNewPrivs' /proc/self/status")
            .await;
        assert!(user.contains(caps) && user.contains("NoNewPrivs:\t1"), "{user}");
        let root = tool.prints(&name, "grep CapEff /proc/self/status").await;
        assert_eq!(
            root.split_whitespace().last(),
            Some("00000000000000fb"),
            "CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID"
        );
        ran("s29", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn containers_on_the_default_network_do_not_reach_each_other() {
    with_engine("", async |tool| {
        let (one, two) = (tool.created(json!({})).await, tool.created(json!({})).await);
        tool.prints(&one, "setsid sh -c 'while :; do echo served | nc -l -p 8000; done' >/dev/null 2>&1 </dev/null &")
            .await;
        let address = tool.prints(&one, "hostname -i").await;
        let answers = async || {
            let own = tool.exec(&one, format!("nc -w 2 {address} 8000 </dev/null")).await;
            own["stdout"] == "served\n"
        };
        super::eventually("it listens", std::time::Duration::from_secs(10), answers).await;
        let other = tool.exec(&two, format!("nc -w 2 {address} 8000 </dev/null")).await;
        assert_eq!(other["stdout"], "", "{other:#}");
    })
    .await;
}

#[tokio::test]
async fn s35_an_image_that_is_not_to_be_fetched_is_not_found() {
    with_tool("", async |tool| {
        let answer = tool.create(json!({ "image": "no-such-image:1", "pull": "never" })).await;
        assert_eq!(answer["code"], "image_not_found", "{answer:#}");
        assert!(tool.records().is_empty());
        ran("s35", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s39_setup_commands_are_tracked_one_by_one() {
    with_engine("", async |tool| {
        let answer =
            tool.create(json!({ "setup_commands": ["true", "echo out; echo err >&2; exit 3"], "user": "7:7" })).await;
        assert_eq!((&answer["success"], &answer["provisioning_ok"]), (&true.into(), &false.into()), "{answer:#}");
        let step =
            answer["provisioning_report"].as_array().unwrap().iter().find(|it| it["name"] == "setup_commands").unwrap();
        assert_eq!((&step["status"], &step["detail"]), (&"partial".into(), &"1/2 commands succeeded".into()));
        assert_eq!((&step["items"][0]["exit_code"], &step["items"][1]["exit_code"]), (&0.into(), &3.into()));
        assert_eq!(step["items"][1]["output"], "out\nerr\n");
        ran("s39", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s16_without_an_engine_nothing_is_made() {
    with_engine("", async |tool| {
        let config = tool.work().join("none.toml");
        std::fs::write(&config, "engine = \"docker\"\nengine_path = \"/nonexistent/docker\"\n").unwrap();
        let call = tool.create_call(json!({})).to_string();
        let output = tool.run(["--config".as_ref(), config.as_os_str(), "call".as_ref(), call.as_ref()], b"").await;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["code"], "not_ready", "{answer:#}");
        assert!(answer["message"].as_str().unwrap().contains("not ready"));
        assert!(answer["details"]["preflight"]["checks"].is_array(), "{answer:#}");
        ran("s16", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s34_a_container_is_reused_if_the_request_is_the_same() {
    with_rootful_tool("", async |tool| {
        let call = |more: Value| {
            let mut call = json!({ "name": tool.case.name("again").to_string(), "env": { "A": "1" } });
            super::merge(call.as_object_mut().unwrap(), more);
            tool.create(call)
        };
        let first = call(json!({ "if_exists": "reuse" })).await;
        assert_eq!((&first["success"], &first["reused"]), (&true.into(), &false.into()), "{first:#}");
        let again = call(json!({ "if_exists": "reuse" })).await;
        assert_eq!((&again["success"], &again["reused"]), (&true.into(), &true.into()), "{again:#}");
        for field in ["id", "image_id", "provisioning_report", "workdir", "connect_command"] {
            assert_eq!(again[field], first[field], "{field}");
        }
        let other = call(json!({ "if_exists": "reuse", "env": { "A": "2" } })).await;
        assert_eq!(
            (&other["code"], &other["details"]["differs"]),
            (&"name_taken".into(), &json!(["env"])),
            "{other:#}"
        );
        let taken = call(json!({})).await;
        assert_eq!((&taken["code"], &taken["details"]["ours"]), (&"name_taken".into(), &true.into()), "{taken:#}");
        ran("s34", tool.case.engine());
    })
    .await;
}
