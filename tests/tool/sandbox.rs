//! Workflows from end to end: a real git server, a scripted model, the worker in a container without a network or a key
//!.

mod bridge;
mod coding_agent;
mod crash;
mod delivers;
mod devcontainer;
mod forward;
mod key;
mod keyless;
mod life;
mod page;
mod parent;
mod settings;
mod shared;
mod source;
mod strict;
mod transports;

use std::time::Duration;

use serde_json::{Value, json};

use super::person::Person;
use super::{Tool, eventually};
use crate::content::image::with_git;
use crate::engines::{Check, GitServer, Lack, caught, git, lasting_dir, ran};
use crate::servers::model::{ModelServer, Turn, call, calls, says};

/// A busybox image with git, under a name for configurations.
const WITH_GIT: &str = "coracle-test-git:1";

/// The provider's key, which must not appear inside.
const KEY: &str = "sk-canary-4d1c9a77e0b25f63";

/// A program with a fault, and its test.
pub(super) const FILES: [(&str, &str); 2] = [
    ("add.sh", "#!/bin/sh\necho $(($1 - $2))\n"),
    ("test.sh", "#!/bin/sh\n[ \"$(sh add.sh 2 3)\" = 5 ] && echo passed\n"),
];

/// A person with a repository, a model, and sandboxes.
pub(super) struct Bench<'a> {
    pub(super) tool: &'a Tool<'a>,
    server: &'a GitServer,
    model: &'a ModelServer,
}

/// The user's settings, in addition to those of a test.
struct Given<'a> {
    /// Allowed git operations inside; `PORT` is the server's.
    git: &'a str,
    /// The source of the provider's key.
    key: &'a str,
    /// The key in the user's environment.
    in_env: &'a str,
}

impl Given<'static> {
    const USUAL: Self = Self {
        git: "hosts = [\"http://127.0.0.1:PORT\"]\nrepos = [\"127.0.0.1:PORT/*\"]\npush = [\"refs/heads/coracle/*\"]\n",
        key: "key_env = \"MODEL_KEY\"",
        in_env: KEY,
    };
}

/// Runs a check on every real engine. `more` is added to the configuration.
pub(super) async fn with_bench(more: &str, check: impl AsyncFn(&Bench<'_>)) {
    with_bench_of(Given::USUAL, more, check).await;
}

async fn with_bench_of(given: Given<'_>, more: &str, check: impl AsyncFn(&Bench<'_>)) {
    bench_checked(given, more, &check).await;
}

async fn bench_checked(given: Given<'_>, more: &str, check: &dyn for<'c> Check<Bench<'c>>) {
    let (server, model) = (GitServer::start(), ModelServer::start().await);
    server.repository("web", &FILES).await;
    git(&server.dir("web"), &["config", "http.receivepack", "true"], "").await;
    let (git_inside, key) = (given.git.replace("PORT", &server.port().to_string()), given.key);
    let config = format!(
        "[images]\ngit_allow_private = true\n\n[worker]\nmodel = \"scripted\"\n\n\
         [sandbox.git]\n{git_inside}\n\
         [sandbox.profiles.default]\nimage = \"{WITH_GIT}\"\n\n\
         [sandbox.profiles.default.provider]\nbase_url = \"{}\"\n{key}\nmodels = [\"scripted\"]\n{more}",
        model.url(),
    );
    // The model's script and the counts of a check are for one engine at a time.
    let turn = tokio::sync::Mutex::new(());
    Person::new(config)
        .with_env("MODEL_KEY", given.in_env)
        .on_real_engines(async |tool| {
            let _turn = turn.lock().await;
            make_image(tool).await;
            let bench = Bench { tool, server: &server, model: &model };
            let checked = caught(check.on(&bench)).await;
            bench.clear().await;
            if let Err(panic) = checked {
                std::panic::resume_unwind(panic);
            }
        })
        .await;
}

/// Ensures that the engine has the image.
async fn make_image(tool: &Tool<'_>) {
    let lock = lasting_dir().join(format!("with-git-{}", tool.case.engine()));
    let lock = std::fs::File::create(lock).unwrap();
    let _lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.unwrap().unwrap();
    if tool.engine(&["image", "inspect", WITH_GIT]).await.0 {
        return;
    }
    let running = with_git(tool.case).await;
    let tar = tool.temp().join("git.tar");
    let tar = tar.to_str().unwrap();
    assert!(tool.engine(&["export", "-o", tar, &running.id.to_string()]).await.0);
    assert!(tool.engine(&["import", tar, WITH_GIT]).await.0);
    std::fs::remove_file(tar).unwrap();
}

impl Bench<'_> {
    /// A workflow id of this engine, since all engines push to one server.
    fn id(&self, name: &str) -> String {
        format!("{name}-{}", self.tool.case.engine())
    }

    fn url(&self) -> String {
        self.server.local_url("web")
    }

    /// A command that has to succeed: its answer.
    async fn worktree(&self, words: &[&str]) -> Value {
        let answer = self.tries(words).await;
        assert_eq!(answer["success"], true, "{words:?}: {answer:#}");
        answer
    }

    pub(super) async fn tries(&self, words: &[&str]) -> Value {
        let output = self.tool.run(["worktree"].iter().chain(words).chain(&["--json"]), b"").await;
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|err| panic!("{words:?}: {err}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    async fn created(&self, id: &str) -> Value {
        self.worktree(&["create", &self.url(), "--workflow", id]).await
    }

    /// The agent's events, and whether the run succeeded.
    async fn works(&self, id: &str, prompt: &str) -> (bool, Vec<Value>) {
        let output = self.tool.run(["worker", "run", "--json", "--worktree", id, "--prompt", prompt], b"").await;
        let lines = String::from_utf8(output.stdout).unwrap();
        let events = lines.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        (output.status.success(), events)
    }

    /// A script inside, as the agent or as root.
    async fn inside(&self, user: &str, script: &str) -> String {
        let container = self.container().await;
        let words = ["exec", "-u", user, &container, "sh", "-c", script];
        self.tool.engine(&words).await.1
    }

    /// The engine's id of the only sandbox.
    async fn container(&self) -> String {
        self.sandboxes().await.pop().expect("a sandbox runs")
    }

    /// The engine's ids of the sandboxes of this state directory.
    async fn sandboxes(&self) -> Vec<String> {
        let sessions = self.tool.state().join("sessions");
        let sessions = std::fs::read_dir(sessions).into_iter().flatten().flatten();
        let records = sessions.filter_map(|it| self.tool.slot_container(it.file_name().to_str()?, "sandbox"));
        records.filter_map(|it| it["id"].as_str().map(str::to_owned)).collect()
    }

    /// Changes the user's configuration.
    fn configures(&self, from: &str, to: &str) {
        let config = self.tool.root.path().join("config.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&config, text.replacen(from, to, 1)).unwrap();
    }

    /// Removes all that is left.
    async fn clear(&self) {
        let listed = self.tries(&["list", "--start"]).await;
        for row in listed["worktrees"].as_array().into_iter().flatten() {
            self.tries(&["remove", row["id"].as_str().unwrap()]).await;
        }
        for id in self.sandboxes().await {
            self.tool.engine(&["rm", "-f", &id]).await;
        }
    }
}

/// A model that reads, repairs, tries and reports.
pub(super) fn fix_turns() -> [Turn; 4] {
    let edit = json!({ "file_path": "add.sh", "old_string": "$1 - $2", "new_string": "$1 + $2" });
    let commit = "git -c user.name=a -c user.email=a@b commit -qam 'Add and do not subtract'";
    [
        calls([call("read_file", json!({ "file_path": "add.sh" }))]),
        calls([call("edit_file", edit)]),
        calls([
            call("shell_execute", json!({ "command": ["sh", "test.sh"] })),
            call("shell_execute", json!({ "command": ["sh", "-c", commit] })),
        ]),
        says("It adds now, and the test passes."),
    ]
}

#[tokio::test]
async fn x20_a_model_fixes_a_program_in_a_worktree_and_its_branch_comes_out() {
    with_bench("", async |bench| {
        let id = bench.id("issue");
        let branch = format!("refs/heads/coracle/{id}");
        let made = bench.created(&id).await;
        assert_eq!((&made["branch"], &made["created"]), (&format!("coracle/{id}").into(), &true.into()), "{made:#}");
        bench.model.then(fix_turns());
        let (ended_well, events) = bench.works(&id, "Fix add.sh.").await;
        assert!(ended_well, "{events:#?}");
        let kinds: Vec<_> = events.iter().map(|it| it["type"].as_str().unwrap()).collect();
        let pair = ["tool_call", "tool_result"];
        let expected: Vec<_> =
            ["started"].into_iter().chain(pair.into_iter().cycle().take(8)).chain(["result"]).collect();
        assert_eq!(kinds, expected, "{events:#?}");
        assert!(events.iter().any(|it| it["output"].as_str().is_some_and(|it| it.contains("passed"))), "{events:#?}");

        let diff = bench.worktree(&["diff", &id]).await;
        let files = diff["files"].as_array().unwrap();
        assert_eq!((files.len(), &files[0]["path"]), (1, &"add.sh".into()), "{diff:#}");
        let listed = bench.worktree(&["list"]).await;
        assert_eq!((&listed["worktrees"][0]["ahead"], &listed["worktrees"][0]["dirty"]), (&1.into(), &false.into()));

        let pushed = bench.worktree(&["push", &id]).await;
        let there = git(&bench.server.dir("web"), &["rev-parse", &branch], "").await;
        assert_eq!((&pushed["ref"], &pushed["new"]), (&branch.into(), &there.into()));

        let checkout = bench.tool.work().join("web");
        git(bench.tool.work().as_path(), &["clone", "--quiet", &bench.url(), "web"], "").await;
        let applied = bench.worktree(&["apply", &id, "--to", checkout.to_str().unwrap()]).await;
        assert_eq!(applied["files"], json!(["add.sh"]));
        assert_eq!(std::fs::read_to_string(checkout.join("add.sh")).unwrap(), FILES[0].1.replace(" - ", " + "));

        let removed = bench.worktree(&["remove", &id]).await;
        assert_eq!((&removed["removed"], &removed["sandbox_removed"]), (&true.into(), &true.into()), "{removed:#}");
        assert_eq!(removed["saved"], Value::Null, "all of it is on the server: {removed:#}");
        assert_eq!(bench.worktree(&["remove", &id]).await["sandbox_removed"], true, "gone is gone");
        ran("x20", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn x56_no_key_is_inside_while_models_answer_and_branches_are_pushed() {
    with_bench("", async |bench| {
        let id = bench.id("keyless");
        bench.created(&id).await;
        let push = format!(
            "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && \
             git push -q origin HEAD:refs/heads/coracle/{id} 2>&1; echo pushed $?; \
             git push -q origin HEAD:refs/heads/main 2>&1; echo refused $?; \
             echo $CORACLE_WORKFLOW; env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'"
        );
        bench.model.then([calls([call("shell_execute", json!({ "command": ["sh", "-c", push] }))]), says("done")]);
        let (ended_well, events) = bench.works(&id, "Push it.").await;
        assert!(ended_well, "{events:#?}");
        let printed = events[2]["output"].as_str().unwrap();
        assert!(printed.contains("pushed 0") && printed.contains("refused 1") && printed.contains(&id), "{printed}");
        assert!(bench.model.requests().iter().all(|it| it.headers["authorization"] == format!("Bearer {KEY}")));
        let refs = git(&bench.server.dir("web"), &["for-each-ref", "--format=%(refname) %(objectname)"], "").await;
        assert!(refs.contains(&format!("refs/heads/coracle/{id} ")), "{refs}");

        let everything =
            "cat /proc/*/environ /proc/*/cmdline 2>/dev/null; grep -r . /.coracle/run /tmp /workspace 2>/dev/null; env";
        for user in ["0:0", "10001:10001", "10002:10002"] {
            let seen = bench.inside(user, everything).await;
            assert!(!seen.contains(KEY) && !seen.contains("canary"), "as {user}");
        }
        let inspected = bench.tool.engine(&["inspect", &bench.container().await]).await.1;
        assert!(!inspected.contains("canary"));
        let record =
            std::fs::read_dir(bench.tool.state().join("sandboxes")).unwrap().flatten().find(|it| it.path().is_dir());
        let log = std::fs::read_to_string(record.unwrap().path().join("proxy.jsonl")).unwrap();
        assert!(log.contains("chat/completions") && !log.contains("canary"), "{log}");
        ran("x56", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn x60_a_sandbox_reaches_nothing_but_its_proxy() {
    with_bench("", async |bench| {
        bench.created("alone").await;
        let try_all = "for at in 1.1.1.1:443 8.8.8.8:53 169.254.169.254:80 10.0.0.1:80 172.17.0.1:22 192.168.0.1:80; do \
                       nc -w 1 ${at%:*} ${at#*:} </dev/null >/dev/null 2>&1 && echo reached $at; done; \
                       nslookup example.com >/dev/null 2>&1 && echo resolved; \
                       http_proxy=http://127.0.0.1:3128 wget -q -O- http://example.com 2>&1 | head -3; echo tried";
        let printed = bench.inside("10002:10002", try_all).await;
        assert!(!printed.contains("reached") && !printed.contains("resolved") && printed.contains("tried"), "{printed}");
        ran("x60", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn x04_a_stopped_or_killed_sandbox_is_restarted_with_its_work() {
    with_bench("", async |bench| {
        bench.created("lasting").await;
        bench.inside("10002:10002", "echo kept > /workspace/worktrees/lasting/kept; touch /tmp/x").await;
        bench.inside("0:0", "touch /installed").await;
        let before = bench.container().await;
        assert!(bench.tool.engine(&["kill", &before]).await.0);
        let again = bench.created("lasting").await;
        assert_eq!((&again["created"], bench.container().await), (&false.into(), before.clone()), "{again:#}");
        assert_eq!(
            bench.inside("0:0", "ls /installed; cat /workspace/worktrees/lasting/kept").await,
            "/installed\nkept"
        );
        assert!(bench.tool.engine(&["rm", "-f", &before]).await.0);
        let again = bench.created("lasting").await;
        assert_eq!(again["created"], false, "{again:#}");
        assert_ne!(bench.container().await, before);
        assert_eq!(bench.inside("0:0", "cat /workspace/worktrees/lasting/kept").await, "kept");
        let removed = bench.worktree(&["remove", "lasting"]).await;
        assert!(removed["saved"]["location"].is_string(), "what is not committed is saved: {removed:#}");
        ran("x04", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn x09_two_workflows_have_a_sandbox_each_and_work_concurrently() {
    with_bench("", async |bench| {
        let (one, two) = tokio::join!(bench.created("one"), bench.created("two"));
        assert_ne!(one["ports"], two["ports"]);
        assert_eq!(bench.sandboxes().await.len(), 2);
        bench.model.otherwise(says("nothing to do"));
        let ((first, _), (second, _)) = tokio::join!(bench.works("one", "a"), bench.works("two", "b"));
        assert!(first && second);
        ran("x09", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn x50_a_stopped_agent_has_ended_inside() {
    with_bench("", async |bench| {
        bench.created("endless").await;
        bench
            .model
            .then([calls([call("shell_execute", json!({ "command": ["sleep", "987"], "timeout_seconds": 100 }))])]);
        let mut command = bench.tool.command(["worker", "run", "--worktree", "endless", "--prompt", "x"]);
        let child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        let sleeps = async || bench.inside("0:0", "ps | grep -c '[s]leep 987'").await != "0";
        eventually("it sleeps", Duration::from_secs(30), sleeps).await;
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let output = tokio::time::timeout(Duration::from_secs(20), child.wait_with_output()).await.unwrap().unwrap();
        assert!(!output.status.success());
        eventually("it sleeps no more", Duration::from_secs(6), async || !sleeps().await).await;
        ran("x50", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn x01_processes_that_ask_at_once_get_one_sandbox() {
    with_bench("", async |bench| {
        let made = tokio::join!(bench.created("same"), bench.created("same"), bench.created("same"));
        let made = [made.0, made.1, made.2];
        assert_eq!(made.iter().filter(|it| it["created"] == true).count(), 1, "{made:#?}");
        assert_eq!(bench.sandboxes().await.len(), 1);
        ran("x01", bench.tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn x05_a_paused_sandbox_is_resumed_and_other_settings_replace_it() {
    with_bench("", async |bench| {
        if bench.tool.case.lacks(Lack::Pause) {
            return;
        }
        bench.created("still").await;
        bench.inside("10002:10002", "echo kept > /workspace/worktrees/still/kept").await;
        let before = bench.container().await;
        assert!(bench.tool.engine(&["pause", &before]).await.0);
        assert_eq!(bench.created("still").await["created"], false);
        assert_eq!(bench.container().await, before);

        let config = bench.tool.root.path().join("config.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("{text}\n[sandbox]\npids = 400\n")).unwrap();
        assert_eq!(bench.created("still").await["created"], false);
        assert_ne!(bench.container().await, before);
        assert_eq!(bench.inside("10002:10002", "cat /workspace/worktrees/still/kept").await, "kept");
        ran("x05", bench.tool.case.engine());
    })
    .await;
}
