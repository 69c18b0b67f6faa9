//! `coracle agent`: a coding agent from npm fixes a program in a sandbox, with a scripted model.

use std::path::Path;

use serde_json::{Value, json};

use super::{FILES, KEY};
use crate::engines::{git, ran};
use crate::servers::anthropic::MessagesServer;
use crate::tool::debian::{debian, lock};
use crate::tool::mcp_clients::installed;
use crate::tool::person::Person;
use crate::tool::{Tool, with_tool};

/// A Debian with git and Claude Code. The image that `coracle agent` builds has more packages, and takes minutes.
const IMAGE: &str = "localhost/coracle-test-claude:1";

/// The program, of which npm has one for each architecture.
const PROGRAM: &str = if cfg!(target_arch = "aarch64") {
    "node_modules/@anthropic-ai/claude-code-linux-arm64/claude"
} else {
    "node_modules/@anthropic-ai/claude-code-linux-x64/claude"
};

/// The command that the model runs. The commit has the user's name, which git inside knows.
const FIX: &str = "sed -i 's/ - / + /' add.sh && sh test.sh && git commit -qam 'Add and do not subtract'";

async fn make_image(tool: &Tool<'_>, program: &Path) {
    let base = debian(tool.case).await;
    let _lock = lock(tool.case, "claude").await;
    if tool.engine(&["image", "inspect", IMAGE]).await.0 {
        return;
    }
    let name = tool.case.name("claude").to_string();
    let volume = format!("--volume={}:/opt/claude:ro", program.display());
    let install = "install -m 755 /opt/claude /usr/local/bin/claude";
    tool.engine_says(&["run", "--name", &name, "--user=0:0", &volume, base, "sh", "-c", install]).await;
    tool.engine_says(&["commit", &name, IMAGE]).await;
    tool.engine_says(&["rm", &name]).await;
}

/// A repository of the user, with a faulty program.
async fn repository(tool: &Tool<'_>) -> String {
    let dir = tool.work().join("web");
    std::fs::create_dir(&dir).unwrap();
    git(&dir, &["init", "--quiet", "--initial-branch=main"], "").await;
    for (name, content) in FILES {
        std::fs::write(dir.join(name), content).unwrap();
    }
    git(&dir, &["add", "."], "").await;
    git(&dir, &["-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "-qm", "one"], "").await;
    dir.to_str().unwrap().to_owned()
}

async fn answer(tool: &Tool<'_>, words: &[&str]) -> Value {
    let output = tool.run(words, b"").await;
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|err| panic!("{words:?}: {err}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[tokio::test]
async fn a_coding_agent_from_npm_fixes_a_test_in_a_sandbox_and_its_commit_arrives() {
    let server = MessagesServer::start(FIX).await;
    let config = format!(
        "[sandbox.profiles.claude]\nimage = \"{IMAGE}\"\n[sandbox.profiles.claude.provider]\nkind = \"anthropic\"\n\
         base_url = \"{}\"\nkey_env = \"MODEL_KEY\"\nmodels = [\"claude-*\"]\n",
        server.url()
    );
    Person::new(config)
        .with_env("MODEL_KEY", KEY)
        .on_real_engines(async |tool| {
            let Some(program) = installed(PROGRAM) else { return };
            make_image(tool, &program).await;
            let dir = repository(tool).await;
            let words = ["agent", "claude", "--repo", &dir, "--workflow", "fix", "--model", "claude-sonnet-4-5"];
            let words = [&words[..], &["--task=-Fix add.sh.", "--json"]].concat();
            let done = answer(tool, &words).await;
            let expected = (&json!(true), &json!(0), &json!([]));
            assert_eq!((&done["success"], &done["exit_code"], &done["warnings"]), expected, "{done:#}");
            assert_eq!(done["commits"][0]["subject"], "Add and do not subtract", "{done:#}");
            assert!(done["output"].as_str().unwrap().contains("It adds now."), "{done:#}");
            assert_eq!(done["applied"]["branch"], "coracle/fix", "{done:#}");
            let there = git(dir.as_ref(), &["show", "coracle/fix:add.sh"], "").await;
            assert_eq!(there.trim(), FILES[0].1.replace(" - ", " + ").trim());

            let requests = server.requests();
            assert!(requests.iter().all(|it| it.headers["x-api-key"] == KEY), "{requests:#?}");
            assert!(requests.iter().all(|it| !it.headers.contains_key("authorization")));
            // Other engines use the same server concurrently.
            assert!(requests.iter().any(|it| it.body["messages"].to_string().contains("passed")), "{requests:#?}");
            let looks = "cat /proc/*/environ 2>/dev/null; grep -r canary /workspace /tmp /home 2>/dev/null; env; \
                         ls -A /workspace/.agents/claude";
            let words = ["worktree", "exec", "fix", "--profile", "claude", "--", "sh", "-c", looks];
            let seen = String::from_utf8(tool.run(words, b"").await.stdout).unwrap();
            assert!(!seen.contains("canary") && seen.contains(".claude.json"), "{seen}");
            let removed = answer(tool, &["worktree", "remove", "fix", "--profile", "claude", "--json"]).await;
            assert_eq!((&removed["success"], &removed["sandbox_removed"]), (&true.into(), &true.into()), "{removed:#}");
            ran("agent", tool.case.engine());
        })
        .await;
}

/// A provider whose key is in a variable that is not set.
const KEYLESS: &str = "[sandbox.profiles.default.provider]\nbase_url = \"http://127.0.0.1:9/v1\"\nkey_env = \"K\"\n\
                       models = [\"gpt-*\"]\n";

#[tokio::test]
async fn a_missing_key_is_reported_before_anything_is_created() {
    let codex = "[sandbox.profiles.codex.provider]\nbase_url = \"http://127.0.0.1:9/v1\"\nkey_file = \"none.key\"\n";
    with_tool(&format!("{KEYLESS}{codex}"), async |tool| {
        let worker = ["worker", "run", "--worktree", "x", "--prompt", "y", "--model", "gpt-x"];
        let agent = ["agent", "codex", "--model", "gpt-x", "--task", "y"];
        for (words, reported) in [(&worker[..], "the variable `K` is not set"), (&agent, "none.key` has none")] {
            let output = tool.run(words, b"").await;
            let shown = String::from_utf8(output.stderr).unwrap();
            assert!(shown.contains("error[config_invalid]") && shown.contains(reported), "{shown}");
            assert!(shown.contains("no key for the models of the profile"), "{shown}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_directory_without_a_repository_is_refused_before_anything_is_made() {
    with_tool("", async |tool| {
        std::fs::create_dir(tool.work().join("plain")).unwrap();
        let refused = answer(tool, &["worktree", "create", "./plain", "--workflow", "x", "--json"]).await;
        assert_eq!(refused["code"], "fetch_failed", "{refused:#}");
        let reported = refused.to_string();
        assert!(reported.contains("is no git repository") && reported.contains("git init"), "{refused:#}");
        let left = answer(tool, &["sandbox", "list", "--json"]).await;
        assert_eq!(left["count"], 0, "{left:#}");
    })
    .await;
}

#[tokio::test]
async fn an_agent_that_could_ask_no_model_is_not_started() {
    with_tool(KEYLESS, async |tool| {
        let task = ["--task", "x", "--json"];
        for (words, code, reported) in [
            (&["claude"][..], "config_invalid", "kind"),
            (&["opencode"], "invalid_input", "worker.model"),
            (&["codex", "--model", "o3"], "policy_denied", "o3"),
            (&["codex", "--profile", "none"], "config_invalid", "sandbox.profiles.none.provider"),
        ] {
            let refused = answer(tool, &[&["agent"], words, &task].concat()).await;
            assert_eq!((&refused["success"], &refused["code"]), (&false.into(), &code.into()), "{refused:#}");
            assert!(refused.to_string().contains(reported), "{refused:#}");
        }
        let alone = answer(tool, &["agent", "codex", "--json"]).await;
        assert_eq!(alone["code"], "invalid_input", "{alone:#}");
        assert!(alone["hint"].as_str().unwrap().contains("--task"), "{alone:#}");
    })
    .await;
}
