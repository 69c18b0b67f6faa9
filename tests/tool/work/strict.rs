//! The tools of a session under `policy = "strict"`.

use std::collections::BTreeMap;

use coracle_lifecycle::Store;
use coracle_types::LabelNamespace;
use serde_json::json;

use super::super::strict_create::{field, has_nothing};
use super::code::{SNIPPETS, make_snippets};
use super::{Agent, with_agent, with_real_agent};
use crate::engines::{Lack, ran};

async fn printed(agent: &Agent<'_>, script: &str) -> String {
    let ended = agent.sh(script).await;
    ended["stdout"].as_str().unwrap_or_else(|| panic!("{ended:#}")).to_owned()
}

impl Agent<'_> {
    /// Removes the images of this person.
    async fn clear_images(&self) {
        self.end().await;
        self.tool.call(json!({ "operation": "cache_clear" })).await;
    }
}

#[tokio::test]
async fn files_are_written_read_and_searched_and_commands_run() {
    with_agent("policy = \"strict\"\n", async |agent| {
        if agent.tool.case.lacks(Lack::EnforcedLimits) {
            return;
        }
        agent.value("write_file", json!({ "file_path": "src/a.txt", "content": "one\ntwo\n" })).await;
        agent.value("read_file", json!({ "file_path": "src/a.txt" })).await;
        let edit = json!({ "file_path": "src/a.txt", "old_string": "two", "new_string": "2" });
        agent.value("edit_file", edit).await;
        assert_eq!(agent.value("grep", json!({ "pattern": "^2$" })).await.as_array().unwrap().len(), 1);
        assert_eq!(printed(agent, "cat src/a.txt").await, "one\n2\n");
        agent.value("rm", json!({ "path": "src" })).await;
        assert_eq!(agent.code("read_file", json!({ "file_path": "src/a.txt" })).await, "file_not_found");
        agent.clear_images().await;
        ran("strict", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn output_of_a_command_is_not_requested_where_root_is() {
    with_real_agent("", async |agent| {
        let long = agent.sh("seq 1 20000").await;
        let page = json!({ "output_id": long["output_id"] });
        agent.value("shell_output", page.clone()).await;
        let file = agent.tool.root.path().join("config.toml");
        let usual = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("policy = \"strict\"\n{usual}")).unwrap();
        let strict = Agent::new(agent.tool, "agent-1");
        let refused = strict.call("shell_output", page.clone()).await;
        assert_eq!((&refused["code"], &refused["details"]["rule"]), (&"policy_denied".into(), &"root.init".into()));
        std::fs::write(&file, usual).unwrap();
        agent.value("shell_output", page).await;
    })
    .await;
}

#[tokio::test]
async fn no_process_inside_has_privileges_or_a_network_or_writes_files_of_the_image() {
    with_real_agent("policy = \"strict\"\n", async |agent| {
        if agent.tool.case.lacks(Lack::EnforcedLimits) {
            return;
        }
        has_nothing(&printed(agent, "cat /proc/self/status").await);
        let init = printed(agent, "cat /proc/1/status").await;
        assert_eq!(field(&init, "Uid"), "1000\t1000\t1000\t1000");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(&init, set), "0".repeat(16), "{set} of PID 1");
        }
        assert_eq!(field(&init, "NoNewPrivs"), "1");
        assert_eq!(printed(agent, "ls /sys/class/net").await, "lo\n");
        let tries = "for it in /etc/x /usr/x /x /.coracle/link/x; do (: >$it) 2>/dev/null && echo \"$it is written\"; done; \
                     cat /proc/1/environ /proc/1/maps >/dev/null 2>&1 && echo read; \
                     for it in KILL TERM INT; do kill -$it 1; done; \
                     busybox unshare -m true 2>/dev/null && echo namespace; \
                     for it in /workspace /tmp /home/agent; do echo x >$it/own && cat $it/own; done; echo done";
        assert_eq!(printed(agent, tries).await, "x\nx\nx\ndone\n");
        let container = agent.container("workspace").unwrap();
        let seen = agent.tool.engine(&["container", "inspect", "--format", "{{.Config.User}}", &container]).await.1;
        assert_eq!(seen.trim(), "1000:1000", "the engine starts no process as root");
        // The replacement container has the same workspace.
        agent.tool.engine(&["rm", "-f", &container]).await;
        agent.call("ls", json!({})).await;
        assert_eq!(printed(agent, "cat /workspace/own").await, "x\n");
        agent.clear_images().await;
        ran("strict", agent.engine());
    })
    .await;
}

/// Directories that the user allows to copy from: none is allowed by default.
const COPIED: &str = "policy = \"strict\"\n[workspace]\nallow_roots = [\"~/src\"]\nmounts = [{ host_path = \"p\" }]\n";

#[tokio::test]
async fn copied_files_are_compared_and_exported() {
    with_agent(COPIED, async |agent| {
        if agent.tool.case.lacks(Lack::EnforcedLimits) {
            return;
        }
        let dir = agent.tool.home().join("src/p");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("a.txt"), "one\n").unwrap();
        assert_eq!(printed(agent, "cat a.txt; echo two >>a.txt; echo new >b.txt").await, "one\n");
        let diff =
            serde_json::to_value(coracle_prepare::session_tools::diff(&agent.process.context).await.unwrap()).unwrap();
        assert_eq!(diff["count"], 2, "{diff:#}");
        let applied =
            serde_json::to_value(coracle_prepare::session_tools::apply(&agent.process.context, false).await.unwrap())
                .unwrap();
        assert_eq!(applied["count"], 2, "{applied:#}");
        assert_eq!(std::fs::read_to_string(dir.join("a.txt")).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(dir.join("b.txt")).unwrap(), "new\n");
        agent.clear_images().await;
        ran("strict", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn the_working_directory_is_not_copied_unless_it_is_allowed() {
    let config = "policy = \"strict\"\n[workspace]\nmounts = [{ host_path = \"p\" }]\n";
    with_agent(config, async |agent| {
        if agent.tool.case.lacks(Lack::EnforcedLimits) {
            return;
        }
        std::fs::create_dir_all(agent.tool.work().join("p")).unwrap();
        assert_eq!(agent.code("ls", json!({})).await, "policy_denied");
        agent.clear_images().await;
    })
    .await;
}

/// An image with all languages under that name, signed as one of this user's Coracle.
async fn sign_snippets(agent: &Agent<'_>, name: &str) {
    let store = Store::open(&agent.tool.state(), LabelNamespace::parse("coracle").unwrap()).unwrap();
    let signer = store.signer();
    let own = [("managed", "true"), ("kind", "cache")];
    let mut labels: BTreeMap<_, _> = own.iter().map(|(key, it)| (signer.key(key), (*it).to_owned())).collect();
    signer.sign(agent.engine(), &mut labels);
    let made = agent.tool.engine(&["create", "--pull=never", SNIPPETS, "true"]).await.1.trim().to_owned();
    let changes: Vec<_> = labels.iter().map(|(key, it)| format!("--change=LABEL {key}={it}")).collect();
    let words = ["commit"].into_iter().chain(changes.iter().map(String::as_str)).chain([made.as_str(), name]);
    assert!(agent.tool.engine(&words.collect::<Vec<_>>()).await.0);
    agent.tool.engine(&["rm", "-f", &made]).await;
}

/// Beyond the standard preset, no process inside could be root, and none reads another's memory.
#[tokio::test]
async fn r09_snippets_can_read_their_code_and_not_change_it() {
    make_snippets().await;
    let name = format!("coracle-test-strict-{}:1", coracle_types::random_hex::<4>());
    with_real_agent(&format!("policy = \"strict\"\n[run_code]\nimage = \"{name}\"\n"), async |agent| {
        if agent.tool.case.lacks(Lack::EnforcedLimits) {
            return;
        }
        let run = async |code: &str, language: &str| {
            agent.call("run_code", json!({ "code": code, "language": language })).await
        };
        let tag = async || assert!(agent.tool.engine(&["tag", SNIPPETS, &name]).await.0);
        tag().await;
        let refused = run("echo 1", "bash").await;
        assert_eq!(refused["code"], "policy_denied", "an image that was not made here: {refused:#}");
        agent.tool.engine(&["rmi", &name]).await;
        sign_snippets(agent, &name).await;
        let probe = "cat /proc/self/status; head -c 3 /code/main.sh; echo; cd /code; \
             for it in 'mv main.sh x' 'chmod 777 main.sh' 'rm main.sh' 'touch y' 'ln main.sh l' 'cp /etc/passwd main.sh' \
             'touch /etc/y' 'touch /packages-base/y'; do $it 2>/dev/null && echo \"$it worked\"; done; \
             (echo x >main.sh) 2>/dev/null && echo 'it was written'; \
             (exec 3<>/dev/tcp/1.1.1.1/80) 2>/dev/null && echo network; echo kept >/packages/own; echo done";
        let probed = run(probe, "bash").await;
        assert_eq!(probed["success"], true, "{probed:#}");
        let output = probed["output"].as_str().unwrap();
        has_nothing(output);
        assert!(output.contains("\ncat\n") && output.ends_with("\ndone\n"), "{output}");
        assert!(!output.contains("worked") && !output.contains("written") && !output.contains("network"), "{output}");
        let traced = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n\
                      print([(it(*[0] * 6), ctypes.get_errno()) for it in (libc.ptrace, libc.process_vm_readv)])";
        assert_eq!(run(traced, "python").await["output"], "[(-1, 1), (-1, 1)]\n");
        assert_eq!(run("const x: number = 21; console.log(x * 2)", "typescript").await["output"], "42\n");
        assert_eq!(run("cat /packages/own; ls /code", "bash").await["output"], "kept\nmain.sh\n");
        let dir = agent.tool.state().join("sessions/agent-1/code");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "no snippet stays");
        agent.clear_images().await;
        assert!(!dir.exists(), "and the directory goes with the session");
        agent.tool.engine(&["rmi", "-f", &name]).await;
        ran("r09", agent.engine());
    })
    .await;
}
