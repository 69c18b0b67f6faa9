//! The host's process is killed: thirteen points from the first fetch to the end of the sandbox.

use coracle_types::EngineKind;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{SOON, WORK, kill, with_shared};
use crate::engines::{Manner, git, lasting_dir};
use crate::servers::model::{call, calls, held, says};
use crate::tool::eventually;
use crate::tool::person::program;
use crate::tool::sandbox::Bench;

/// Killed while it has git inside do something.
async fn killed_at(bench: &Bench<'_>, at: &str, words: &[&str]) {
    bench.stops_git(at).await;
    let mut command = bench.begins_until_git_stands(words).await;
    command.kill();
    command.reported().await;
    bench.lets_git_go().await;
}

#[tokio::test]
async fn a_host_process_killed_between_fetch_and_push_is_continued_by_the_next() {
    with_shared(async |bench| {
        // The first fetch of a repository.
        let requests = bench.server.requests().len();
        bench.server.behaves(Manner::Silent);
        let mut first = bench.begins_worktree(&["create", &bench.url(), "--workflow", "first"]);
        eventually("the server is called", SOON, async || bench.server.requests().len() > requests).await;
        first.kill();
        bench.server.behaves(Manner::Honest);
        bench.at_work("first").await;
        bench.goes_on("first").await;

        // The fetch into the sandbox, and the worktree.
        for (number, at) in ["index-pack", "worktree add", "reset --hard"].into_iter().enumerate() {
            let name = bench.id(&format!("more-{number}"));
            bench.server.commit("web", &name, &[("more", &format!("{name}\n"))]).await;
            killed_at(bench, at, &["create", &bench.url(), "--workflow", &name]).await;
            bench.goes_on("first").await;
            bench.at_work(&name).await;
            bench.goes_on(&name).await;
            let listed = bench.worktree(&["list"]).await;
            let ids: Vec<_> = listed["worktrees"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
            assert_eq!(ids.iter().filter(|it| **it == name.as_str()).count(), 1, "{listed:#}");
        }

        // A diff, and a patch for a checkout.
        killed_at(bench, "add -A", &["diff", "first"]).await;
        let diff = bench.worktree(&["diff", "first"]).await;
        assert!(diff["patch"].as_str().unwrap().contains(WORK), "{diff:#}");
        let to = bench.tool.work().join("checkout");
        git(&bench.tool.work(), &["clone", "--quiet", "--", &bench.url(), "checkout"], "").await;
        let apply = ["apply", "first", "--to", to.to_str().unwrap()];
        killed_at(bench, "add -A", &apply).await;
        assert_eq!(git(&to, &["status", "--porcelain"], "").await, "", "nothing of it is there");
        bench.worktree(&apply).await;
        assert_eq!(std::fs::read_to_string(to.join("dirty")).unwrap().trim(), WORK);

        // A push, before anything is out, and when the server has it.
        let commit = "cd /workspace/worktrees/first && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && \
                      git rev-parse HEAD";
        let head = bench.inside("10002:10002", &format!("export HOME=/tmp; {commit}")).await;
        let refs = async || git(&bench.server.dir("web"), &["for-each-ref", "--format=%(refname) %(objectname)"], "").await;
        let pushed = format!("refs/heads/coracle/first {head}");
        let before = refs().await;
        killed_at(bench, "bundle create", &["push", "first"]).await;
        assert_eq!(refs().await, before, "nothing is out");
        let (waits, go) = crate::tool::sandbox::keyless::holds_pushes(&bench.server.dir("web"));
        let mut push = bench.begins_worktree(&["push", "first"]);
        eventually("the server has it", SOON, async || waits.exists()).await;
        push.kill();
        push.reported().await;
        std::fs::write(&go, "").unwrap();
        bench.worktree(&["push", "first"]).await;
        assert!(refs().await.contains(&pushed), "{}", refs().await);
        std::fs::remove_file(bench.server.dir("web").join("hooks/pre-receive")).unwrap();
        git(&bench.server.dir("web"), &["update-ref", "-d", "refs/heads/coracle/first"], "").await;
        bench.goes_on("first").await;
    })
    .await;
}

/// The last workflow removes the sandbox, and the process ends as the engine is about to be called for it.
async fn killed_as_the_engine_is_called(bench: &Bench<'_>, container: &str) {
    let kind = bench.tool.case.engine();
    let stop = bench.tool.root.path().join("stop");
    let dir = tempfile::tempdir_in(lasting_dir()).unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let engine = dir.path().join(kind.as_str());
    let at = stop.display();
    let script = format!(
        "if [ -e {at} ]; then case \" $* \" in *' rm '*) echo $$ > {at}.pid; mv {at}.pid {at}ped; \
         while [ -e {at} ]; do sleep 0.05; done;; esac; fi\nexec /usr/bin/{kind} \"$@\""
    );
    program(&engine, &script);
    bench.configures("engine = ", &format!("engine_path = {engine:?}\nengine = "));
    std::fs::write(&stop, "").unwrap();
    let mut remove = bench.begins_worktree(&["remove", "last"]);
    let stopped = bench.tool.root.path().join("stopped");
    eventually("the engine is about to remove it", SOON, async || stopped.exists()).await;
    remove.kill();
    // The engine gets no call either.
    kill(std::fs::read_to_string(&stopped).unwrap().trim().parse().unwrap());
    std::fs::remove_file(&stop).unwrap();
    assert!(bench.tool.engine(&["inspect", container]).await.0, "it is there");
    bench.configures(&format!("engine_path = {engine:?}\n"), "");
}

#[tokio::test]
async fn a_host_process_killed_while_work_is_saved_or_its_sandbox_removed_loses_nothing() {
    with_shared(async |bench| {
        for id in ["one", "last"] {
            bench.at_work(id).await;
        }
        for at in ["commit-tree", "bundle create", "update-ref -d"] {
            killed_at(bench, at, &["remove", "one"]).await;
            // Until it is saved it exists; afterwards it is in a save.
            if at == "update-ref -d" {
                bench.is_saved("one").await;
            } else {
                bench.goes_on("one").await;
            }
            bench.goes_on("last").await;
        }
        bench.worktree(&["remove", "one"]).await;
        bench.is_saved("one").await;

        let container = bench.container().await;
        // The embedded engine has no program to stop at; its own tests kill its operations.
        if bench.tool.case.engine() != EngineKind::Embedded {
            killed_as_the_engine_is_called(bench, &container).await;
        }
        let removed = bench.worktree(&["remove", "last"]).await;
        assert_eq!(removed["sandbox_removed"], true, "{removed:#}");
        bench.is_saved("last").await;
        assert!(!bench.tool.engine(&["inspect", &container]).await.0, "it is gone");
        assert!(bench.sandboxes().await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_host_process_killed_in_a_run_ends_it_inside_and_the_next_run_is_clean() {
    with_shared(async |bench| {
        bench.at_work("run").await;
        let seconds = 100_000 + u32::from(bench.model.port());
        let sleeps = json!({ "command": ["sleep", seconds.to_string()], "timeout_seconds": 600 });
        let fine = || calls([call("shell_execute", json!({ "command": ["true"] }))]);

        // In a model call.
        let requests = bench.model.requests().len();
        bench.model.then([held(says("never")).0]);
        let mut run = bench.begins_run("run");
        bench.model_is_called(requests).await;
        run.kill();
        run.reported().await;
        bench.goes_on("run").await;

        // In a tool call.
        bench.model.then([calls([call("shell_execute", sleeps)])]);
        let mut run = bench.begins_run("run");
        eventually("the program runs", SOON, async || bench.sleeps(seconds).await).await;
        run.kill();
        run.reported().await;
        eventually("it runs no more", SOON, async || !bench.sleeps(seconds).await).await;
        bench.goes_on("run").await;

        // Between two turns: a tool's result was sent, and the model has not answered yet.
        bench.model.then([fine(), held(says("never")).0]);
        let mut run = bench.begins_run("run");
        let mut lines = BufReader::new(run.0.stdout.take().unwrap()).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("\"tool_result\"") {
                break;
            }
        }
        run.kill();
        run.reported().await;
        bench.goes_on("run").await;

        bench.model.then([fine(), says("clean")]);
        let (ended_well, events) = bench.works("run", "go on").await;
        assert!(ended_well, "{events:#?}");
        assert_eq!(events.last().unwrap()["content"], "clean");
        bench.is_removed_with_its_work("run").await;
    })
    .await;
}
