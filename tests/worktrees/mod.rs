//! Worktrees of workflows, with the git of the host and the one inside, on each engine.

mod out;
mod remove;
mod setup;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use coracle_lifecycle::SaveDestination;
use coracle_sandbox::{Code, Failure};
use coracle_types::{Command, ContainerPath, Exec, Exit, Ids, ProfileName, WorkflowId};
use coracle_worktrees::changes::{Diff, DiffOptions};
use coracle_worktrees::create::{CreateRequest, SetupRequest, Worktree};
use coracle_worktrees::remove::RemoveRequest;
use coracle_worktrees::{Workdir, WorktreeManager, WorktreeSettings};
use serde_json::json;
use tempfile::TempDir;

use crate::content::image::with_git;
use crate::engines::{Check, GitServer, Running, Way, git, on_every_engine};

/// Owns the files inside; the fake has one user only.
const AGENT: Ids = Ids { uid: 10_002, gid: 10_002 };

/// A sandbox's container with git in it, and a state directory.
struct Bench<'a> {
    running: Running<'a>,
    inside: Workdir,
    state: TempDir,
    manager: WorktreeManager,
    server: GitServer,
}

fn id(text: &str) -> WorkflowId {
    WorkflowId::parse(text).unwrap()
}

/// Runs a check in a sandbox on every engine, with a server that has the repository `web`.
async fn with_bench(check: impl AsyncFn(&Bench<'_>)) {
    bench_checked(&check).await;
}

async fn bench_checked(check: &dyn for<'c> Check<Bench<'c>>) {
    on_every_engine(async |case| {
        let running = if case.is_real() { with_git(case).await } else { case.runs(Way::Socket).await };
        let agent = if case.is_real() { AGENT } else { Ids::ROOT };
        let root = ContainerPath::parse("/workspace").unwrap();
        let makes =
            if case.is_real() { "mkdir -p /workspace && chown 10002:10002 /workspace" } else { "mkdir -p workspace" };
        running.printed(Exec::new(Command::Shell(makes.into()), Ids::ROOT, ContainerPath::root())).await;
        let (link, profile) = (running.link().clone(), ProfileName::parse("box").unwrap());
        let inside = Workdir {
            key: "k".repeat(16),
            profile,
            link,
            agent,
            root,
            shared: None,
            git_timeout: std::time::Duration::from_secs(600),
        };
        let state = tempfile::tempdir().unwrap();
        let server = GitServer::start();
        server.repository("web", &[("README.md", "hello\n"), ("src/main.rs", "fn main() {}\n")]).await;
        git(&server.dir("web"), &["config", "http.receivepack", "true"], "").await;
        let manager = WorktreeManager::new(settings(state.path())).unwrap();
        let bench = Bench { running, inside, state, manager, server };
        check.on(&bench).await;
    })
    .await;
}

fn settings(state: &Path) -> WorktreeSettings {
    let allow_roots = vec![std::env::temp_dir()];
    let user_env = [("PATH".to_owned(), "/usr/bin:/bin".into())].into();
    WorktreeSettings { allow_roots, allow_private: true, user_env, ..WorktreeSettings::new(state.to_owned()) }
}

impl Bench<'_> {
    fn url(&self) -> String {
        self.server.local_url("web")
    }

    fn ask(&self) -> SetupRequest {
        SetupRequest { source: self.url(), replace: false }
    }

    async fn set_up(&self) {
        self.manager.setup_repo(&self.inside, &self.ask()).await.unwrap();
    }

    async fn try_create(&self, name: &str) -> Result<Worktree, Failure> {
        self.manager.create(&self.inside, &CreateRequest::new(id(name))).await
    }

    /// A repository and a worktree.
    async fn created(&self, name: &str) -> Worktree {
        self.set_up().await;
        self.try_create(name).await.unwrap()
    }

    async fn diff(&self, name: &str) -> Diff {
        self.manager.diff(&self.inside, &id(name), &DiffOptions::default()).await.unwrap()
    }

    /// The output of the agent's script, in the root; it must succeed.
    async fn sh(&self, script: &str) -> String {
        let mut exec = Exec::new(Command::Shell(script.into()), self.inside.agent, self.inside.root.clone());
        let person =
            [("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@a"), ("GIT_COMMITTER_NAME", "A"), ("HOME", "/tmp")];
        exec.env = person.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        exec.env.insert("GIT_COMMITTER_EMAIL".into(), "a@a".into());
        let it = self.running.exec(exec).await.unwrap();
        assert_eq!(it.exit, Exit::Code(0), "{script}: {it:?}");
        it.stdout.text().trim_end().to_owned()
    }

    /// Commits all that is in a worktree, with a file more.
    async fn commit(&self, name: &str, file: &str, content: &str) -> String {
        self.sh(&format!(
            "cd worktrees/{name} && printf '{content}' > {file} && git add -A && git commit -qm x && git rev-parse HEAD"
        ))
        .await
    }

    fn removal(&self) -> RemoveRequest {
        let manifest = json!({
            "schema": 1, "container": "box", "id": null, "record_id": "0123456789abcdef0123456789abcdef",
            "engine": "docker", "image": "i", "session": "s", "workdir": "/workspace", "exec_user": "10002:10002",
            "at": "2026-01-01T00:00:00Z", "items": [], "pruned": [], "tool_version": "0",
        });
        let manifest = serde_json::from_value(manifest).unwrap();
        let save_to = SaveDestination { dir: self.state.path().join("saved/box"), manifest };
        RemoveRequest { save_to, discard: false, salvage_ignored: false }
    }

    /// Directories of finished saves.
    fn saves(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.state.path().join("saved/box")) else { return vec![] };
        entries.map(|it| it.unwrap().path()).filter(|it| it.join("manifest.json").exists()).collect()
    }

    /// References of the remote.
    async fn remote_refs(&self) -> Vec<String> {
        let reported = git(&self.server.dir("web"), &["for-each-ref", "--format=%(refname)"], "").await;
        reported.lines().map(str::to_owned).collect()
    }

    /// A clone of the remote on the host, like the user's.
    async fn clone(&self) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        git(dir.path(), &["clone", "--quiet", "--", &self.url(), "it"], "").await;
        for (key, value) in [("user.name", "P"), ("user.email", "p@p")] {
            git(&dir.path().join("it"), &["config", key, value], "").await;
        }
        dir
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, Failure>) -> Code {
    result.unwrap_err().code
}

/// Feeds bytes to git on the host, where no text would do.
#[expect(clippy::disallowed_methods, reason = "a person's own git is played")]
fn git_with(dir: &Path, words: &[&str], stdin: &[u8]) -> bool {
    use std::io::Write;
    let mut git = std::process::Command::new("git");
    let piped = git.current_dir(dir).args(words).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = piped.env("HOME", dir).spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    child.wait().unwrap().success()
}
