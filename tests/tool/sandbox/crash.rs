//! A participant of a workflow is killed at a certain point: the host's process, which holds the proxy, the container,
//! or the worker. A started step is done or not done, the next call continues, and no work is lost.
//!
//! Nothing depends on time: the killed process waits at a point where git inside, the server, the model or the engine
//! was made to wait.

mod host;
mod inside;
mod proxy;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::Child;

use super::{Bench, with_bench};
use crate::engines::git;
use crate::tool::eventually;

const SOON: Duration = Duration::from_secs(60);

/// Uncommitted work, which must still exist at the end.
const WORK: &str = "uncommitted work";

/// A git inside that waits on demand. It replaces the real one, which it executes.
const WAITS: &str = "#!/bin/sh\n\
    if [ -e /tmp/stop ]; then case \" $* \" in *\" $(cat /tmp/stop) \"*) \
    : > /tmp/stopped; while [ -e /tmp/stop ]; do sleep 0.05; done;; esac; fi\n\
    exec /bin/itself \"$@\"\n";

/// Workflows that share a sandbox, so that one can be created while another works in it.
async fn with_shared(check: impl AsyncFn(&Bench<'_>)) {
    with_bench("", async |bench| {
        bench.configures("image = \"coracle-test-git:1\"", "image = \"coracle-test-git:1\"\ndomain = \"one\"");
        check(bench).await;
    })
    .await;
}

/// A command that is under way.
struct Begun(Child);

impl Begun {
    fn kill(&mut self) {
        self.0.start_kill().unwrap();
    }

    /// Its output, once it ended. The last line of a run, and the whole answer of any other call, has the result.
    async fn reported(self) -> String {
        let output = tokio::time::timeout(SOON, self.0.wait_with_output()).await.expect("it ends").unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// The failure: its code, and its message.
    async fn fails(self) -> String {
        let reported = self.reported().await;
        let answer = serde_json::from_str::<Value>(&reported).ok();
        let answer = answer.or_else(|| serde_json::from_str(reported.lines().last()?).ok());
        let answer = answer.unwrap_or_else(|| panic!("no answer: {reported}"));
        let text = |it: &str| answer[it].as_str().unwrap_or_default();
        assert!(answer["success"] == false || answer["is_error"] == true, "{answer:#}");
        assert!(!text("message").is_empty() || !text("content").is_empty(), "{answer:#}");
        assert!(text("code") != "internal", "{answer:#}");
        text("code").to_owned()
    }
}

impl Bench<'_> {
    fn starts(&self, words: &[&str]) -> Begun {
        let mut command = self.tool.command(words);
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Begun(piped.spawn().unwrap())
    }

    fn begins_worktree(&self, words: &[&str]) -> Begun {
        self.starts(&[&["worktree"], words, &["--json"]].concat())
    }

    fn begins_run(&self, id: &str) -> Begun {
        self.starts(&["worker", "run", "--json", "--worktree", id, "--prompt", "go on"])
    }

    /// A workflow with unsaved work.
    async fn at_work(&self, id: &str) {
        self.created(id).await;
        self.inside("10002:10002", &format!("echo '{WORK}' > /workspace/worktrees/{id}/dirty")).await;
    }

    /// Checks that the workflow is complete, with its work and its base.
    async fn goes_on(&self, id: &str) {
        self.created(id).await;
        let reported = self.inside("10002:10002", &format!("cd /workspace/worktrees/{id} && cat dirty test.sh")).await;
        assert!(reported.starts_with(WORK) && reported.contains("passed"), "{id}: {reported}");
    }

    /// The workflow is over, and its unsaved work was saved.
    async fn is_removed_with_its_work(&self, id: &str) {
        let removed = self.worktree(&["remove", id]).await;
        assert_eq!(removed["removed"], true, "{removed:#}");
        self.is_saved(id).await;
    }

    /// Some save of the workflow has its work, as a clone of the repository reads it.
    async fn is_saved(&self, id: &str) {
        let name = format!("{id}.bundle");
        let bundles: Vec<PathBuf> =
            below(&self.tool.state().join("saved")).into_iter().filter(|it| it.ends_with(&name)).collect();
        assert!(!bundles.is_empty(), "{id} is saved");
        let dir = tempfile::tempdir().unwrap();
        git(dir.path(), &["clone", "--quiet", "--bare", "--", &self.url(), "it"], "").await;
        let it = dir.path().join("it");
        for bundle in bundles {
            git(&it, &["fetch", "--quiet", &bundle.display().to_string(), "+refs/coracle/*:refs/saved/*"], "").await;
        }
        let refs = git(&it, &["for-each-ref", "--format=%(refname)", "refs/saved/salvage"], "").await;
        for reference in refs.lines() {
            assert_eq!(git(&it, &["show", &format!("{reference}:dirty")], "").await, WORK);
        }
        assert!(!refs.is_empty());
    }

    /// Makes git inside wait before that operation.
    async fn stops_git(&self, at: &str) {
        let exchange = format!(
            "[ -e /bin/itself ] || {{ mv /bin/git /bin/itself; printf '%s' '{WAITS}' > /bin/git; chmod 755 /bin/git; }}; \
             rm -f /tmp/stopped; printf '%s' '{at}' > /tmp/stop"
        );
        self.inside("0:0", &exchange).await;
    }

    /// A busy engine may not report its state in time, and then nothing is started.
    async fn begins_until_git_stands(&self, words: &[&str]) -> Begun {
        let mut begun = self.begins_worktree(words);
        let end = tokio::time::Instant::now() + SOON;
        while self.inside("0:0", "ls /tmp/stopped 2>/dev/null").await != "/tmp/stopped" {
            assert!(tokio::time::Instant::now() < end, "{words:?}: git inside does not come there");
            if begun.0.try_wait().unwrap().is_some() {
                assert_eq!(begun.fails().await, "not_ready", "{words:?}");
                begun = self.begins_worktree(words);
            }
        }
        begun
    }

    async fn lets_git_go(&self) {
        self.inside("0:0", "rm -f /tmp/stop").await;
    }

    /// Waits until the model is called once more.
    async fn model_is_called(&self, before: usize) {
        eventually("the model is called", SOON, async || self.model.requests().len() > before).await;
    }

    /// Waits until a tool's program that sleeps for so many seconds exists or has ended.
    async fn sleeps(&self, seconds: u32) -> bool {
        self.inside("0:0", &format!("ps | grep -c '[s]leep {seconds}'")).await.trim() != "0"
    }

    async fn kills_container(&self) {
        let id = self.container().await;
        assert!(self.tool.engine(&["kill", &id]).await.0);
    }
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// Every file below a directory.
fn below(dir: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().map(|it| it.unwrap().path());
    entries.flat_map(|it| if it.is_dir() { below(&it) } else { vec![it] }).collect()
}
