//! Records of a session: its event log, and the block for a system prompt.

use coracle_context::{Context, Frontend, Host, Options};
use coracle_prepare::Process;
use serde_json::{Map, Value, json};

use super::{Agent, Person, configured, in_session, with_agent};
use crate::engines::ran;

impl Agent<'_> {
    fn log(&self) -> String {
        let log =
            self.tool.state().join("sessions").join(self.process.context.call.session.as_str()).join("events.jsonl");
        std::fs::read_to_string(log).unwrap()
    }

    async fn prompt(&self) -> String {
        prompt(&self.process.context).await
    }
}

async fn prompt(cx: &Context) -> String {
    coracle_prepare::session_tools::prompt(cx).await
}

fn events(log: &str) -> Vec<Value> {
    log.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

fn of<'a>(events: &'a [Value], word: &str) -> Vec<&'a Value> {
    events.iter().filter(|it| it["event"] == word).collect()
}

#[tokio::test]
async fn w41_every_call_is_one_event_also_one_that_was_refused() {
    let person = Person::new(configured("")).with_env("API_TOKEN", "hunter2hunter2");
    let check = async |agent: &Agent<'_>| {
        let token = "ghp_0123456789012345678901234567890123456789";
        agent
            .sh(&format!("printf '\\033]52;c;x\\007'; echo {token} hunter2hunter2; printf '\\007%.0s' $(seq 300) >&2"))
            .await;
        let write = json!({ "file_path": "a", "content": "secret content" });
        let edit = json!({ "file_path": "a", "old_string": "secret", "new_string": "other" });
        for (name, arguments) in [
            ("write_file", write),
            ("read_file", json!({ "file_path": "a" })),
            ("edit_file", edit),
            ("ls", json!({ "path": "none" })),
            ("glob", json!({ "pattern": "*" })),
            ("grep", json!({ "pattern": "x" })),
            ("evaluate_python", json!({ "code": "print(1)" })),
            ("shell_execute", json!({ "command": ["wc", "-c"], "stdin": "input is private" })),
            ("shell_execute", json!({ "command": "input is private", "cwd": "hunter2hunter2" })),
            ("shell_output", json!({ "output_id": "0badcafe" })),
            ("run_code", json!({ "code": 7 })),
            ("rm", json!({ "path": "a" })),
            ("ls", json!({ "nope": 1 })),
        ] {
            agent.call(name, arguments).await;
        }
        let (text, id) = (agent.log(), agent.container("workspace").unwrap());
        let events = events(&text);
        let calls = of(&events, "tool");
        let methods: Vec<_> = calls.iter().map(|it| it["method"].as_str().unwrap()).collect();
        let expected = "shell_execute write_file read_file edit_file ls glob grep evaluate_python shell_execute \
                        shell_execute shell_output run_code rm ls";
        assert_eq!(methods.join(" "), expected, "{text}");
        let code = |at: usize| calls[at]["code"].as_str().unwrap_or_default();
        let codes = [code(0), code(4), code(9), code(10), code(11), code(13)];
        let expected =
            ["", "directory_not_found", "invalid_command", "output_expired", "code_required", "unknown_field"];
        assert_eq!(codes, expected, "{text}");
        assert_eq!((&calls[8]["stdin"], &calls[8]["program"]), (&"<redacted 16 bytes>".into(), &"wc".into()));
        let preview = |at: usize, stream: &str| calls[at][stream].as_str().unwrap();
        assert!(preview(0, "stdout_preview").starts_with("\\u{1b}]52;c;x\\u{7}[redacted:"), "{text}");
        assert!((100..=200).contains(&preview(0, "stderr_preview").len()), "{text}");
        for secret in [token, "hunter2", "secret content", "is private", "\u{1b}", "\u{7}"] {
            assert!(!text.contains(secret), "{secret:?}: {text}");
        }
        // The requests to the engine, in the order of their results.
        let engine = of(&events, "engine");
        for (verb, event) in [("create", "created"), ("start", "started")] {
            let call = engine.iter().find(|it| it["method"] == verb).unwrap_or_else(|| panic!("{verb}: {text}"));
            assert_eq!(
                (&call["path"], &call["exit_status"], &call["code"]),
                (&id.as_str().into(), &0.into(), &Value::Null)
            );
            assert_eq!((&call["role"], &call["generation"]), (&"workspace".into(), &1.into()));
            assert!(call["duration_ms"].is_u64() && of(&events, event).len() == 1, "{text}");
        }
        assert!(of(&events, "created")[0]["image_digest"].is_string(), "{text}");
        assert!(events.iter().all(|it| it["ns"] == "coracle.workspace" && it["session_id"] == "agent-1"), "{text}");
        agent.sh("echo work > kept").await;
        agent.end().await;
        assert_eq!(agent.code("ls", json!({})).await, "session_ended");
        let text = agent.log();
        let events = self::events(&text);
        assert_eq!(of(&events, "tool").last().unwrap()["code"], "session_ended", "{text}");
        assert!(of(&events, "ended")[0]["reason"].is_string() && of(&events, "saved")[0]["files"] == 1, "{text}");
        assert!(of(&events, "engine").iter().any(|it| it["method"] == "remove" && it["path"] == id.as_str()), "{text}");
        ran("w41", agent.engine());
    };
    person.on_every_engine(async |tool| in_session(tool, &check).await).await;
}

#[tokio::test]
async fn w42_a_model_sees_directories_under_names_that_reveal_nothing_of_the_host() {
    let mounts = "[workspace]\n[[workspace.mounts]]\nhost_path = \"project\"\nexclude_glob = [\"*.log\"]\n\
                  [[workspace.mounts]]\nhost_path = \"notes/deep\"\nmount_path = \"docs\"\n";
    with_agent(mounts, async |agent| {
        let work = agent.tool.work();
        for (file, bytes) in
            [("project/x.log", 5), ("project/src/a.py", 1200), ("project/b.py", 34), ("notes/deep/n", 1)]
        {
            std::fs::create_dir_all(work.join(file).parent().unwrap()).unwrap();
            std::fs::write(work.join(file), vec![b'x'; bytes]).unwrap();
        }
        let before = agent.prompt().await;
        assert!(before.starts_with("Workspace\n---------\n"), "{before}");
        let table = "| Host path | In the workspace | Files | Bytes | Filter |\n|---|---|---|---|---|\n\
                     | `project` | `/` | 2 | 1,234 | without `*.log` |\n\
                     | `notes/deep` | `docs` | 1 | 1 | all |\n\nContents: `b.py`, `src/`\n\nContents: `n`\n";
        assert!(before.ends_with(table), "{before}");
        assert_eq!(agent.container("workspace"), None, "nothing is made");
        let root = work.canonicalize().unwrap();
        assert!(!before.contains(root.to_str().unwrap()) && !before.contains("home/"), "{before}");
        assert_eq!(agent.value("ls", json!({})).await.as_array().unwrap().len(), 3);
        // The copied files are independent of the host's.
        std::fs::write(work.join("project/later"), "later").unwrap();
        assert_eq!(agent.prompt().await, before);
        ran("w42", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w42_without_an_engine_the_tools_are_there_and_say_so() {
    let root = tempfile::tempdir().unwrap();
    for dir in ["home", "work", "state"] {
        std::fs::create_dir(root.path().join(dir)).unwrap();
    }
    let config = root.path().join("config.toml");
    std::fs::write(&config, "engine = \"docker\"\nengine_host = \"unix:///nonexistent/docker.sock\"\nworkspace.toolsets = [\"workspace\"]\n").unwrap();
    let host = Host::below(&root.path().canonicalize().unwrap());
    let options = Options { config: Some(config), session: Some("s".into()), ..Options::default() };
    let process = Process::open(host, &options, Frontend::Mcp).unwrap();
    let reported = prompt(&process.context).await;
    assert!(
        reported.starts_with("Workspace tools are unavailable: ") && reported.trim_end().lines().count() == 1,
        "{reported}"
    );
    assert!(!reported.contains("nonexistent") && reported.trim_end().ends_with('.'), "{reported}");
    let call = async || {
        let answer: Value =
            coracle::tools::execute_named(&process, "ls", Map::new()).await.expect("it is there").json.into();
        assert_eq!((&answer["code"], &answer["retryable"]), (&"engine_unavailable".into(), &true.into()), "{answer:#}");
        answer["details"]["retry_after_ms"].clone()
    };
    assert_eq!(call().await, Value::Null);
    assert!(call().await.as_u64().is_some_and(|it| it <= 5000), "no new check happens so soon");
    let log = root.path().join("state/coracle/sessions/s/events.jsonl");
    let log = events(&std::fs::read_to_string(log).unwrap());
    assert_eq!(of(&log, "tool").iter().filter(|it| it["code"] == "engine_unavailable").count(), 2, "{log:#?}");
}
