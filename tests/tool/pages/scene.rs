//! Prerequisites of a page: files, existing containers, servers, and values of its placeholders.

use std::net::TcpListener;

use serde_json::Value;

use super::super::Person;
use super::super::newcomer::{IMAGE, Newcomer, POSTGRES, Shown, purposes, stack};
use super::super::sandbox::{FILES, fix_turns};
use super::super::work::code::{SNIPPETS, make_snippets};
use crate::engines::{GitServer, git};
use crate::servers::model::ModelServer;

const KEY: &str = "sk-of-the-pages";

pub(in crate::tool) struct Scene {
    server: GitServer,
    model: ModelServer,
    /// Held while an agent works: the script of the model is for one engine at a time.
    turn: tokio::sync::Mutex<()>,
}

impl Scene {
    pub(in crate::tool) async fn of(page: &str) -> Self {
        if ["README.md", "docs/workspace.md"].contains(&page) {
            make_snippets().await;
        }
        Self { server: GitServer::start(), model: ModelServer::start().await, turn: tokio::sync::Mutex::new(()) }
    }

    /// A person with programs and repositories.
    pub(in crate::tool) fn person(&self) -> Person {
        let port = self.server.port();
        let config = format!(
            "default_image = \"{IMAGE}\"\n{}[images]\ngit_allow_private = true\n\
             [workspace]\nimage = \"{IMAGE}\"\nallow_roots = [\"~/data\", \"~/src\"]\n\
             [[workspace.mounts]]\nhost_path = \"project\"\n\
             [run_code]\nimage = \"{SNIPPETS}\"\n[worker]\nmodel = \"gpt-5\"\n\
             [sandbox.git]\nhosts = [\"http://127.0.0.1:{port}\"]\nrepos = [\"127.0.0.1:{port}/*\"]\n\
             [sandbox.profiles.default]\nimage = \"{IMAGE}\"\n\
             [sandbox.profiles.default.provider]\nbase_url = \"{}\"\nkey_env = \"MODEL_KEY\"\nmodels = [\"gpt-*\"]\n",
            purposes(),
            self.model.url(),
        );
        Person::new(config).with_env("MODEL_KEY", KEY)
    }

    /// Writes the user's files.
    pub(in crate::tool) async fn begin(&self, newcomer: &Newcomer<'_>) {
        // Each engine has its own, because pushes of several would conflict.
        let name = newcomer.tool.case.engine().as_str();
        self.server.repository(name, &FILES).await;
        git(&self.server.dir(name), &["config", "http.receivepack", "true"], "").await;
        for (path, text) in [
            ("compose.yaml", stack()),
            ("names.txt", "b\na\n".into()),
            ("data.csv", "1,2\n".into()),
            ("src/Makefile", "all:\n".into()),
            ("report.html", "<p>it\n".into()),
            ("project/hello.txt", "hello\n".into()),
        ] {
            newcomer.has(path, &text);
        }
        newcomer.has("data/report.csv", "1\n");
        newcomer.tool.at_home(".gitconfig", "[user]\n\tname = Kim\n\temail = kim@example.org\n");
        newcomer.tool.at_home("data/set.csv", "1\n");
        newcomer.tool.at_home("elsewhere.txt", "1\n");
        for dir in [newcomer.tool.work().join("mine"), newcomer.tool.home().join("src/lib")] {
            std::fs::create_dir_all(&dir).unwrap();
            git(&dir, &["init", "--quiet"], "").await;
            git(
                &dir,
                &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "-m", "x"],
                "",
            )
            .await;
        }
    }

    /// Lines to type before a block of a page, by its number: some blocks begin in the middle of a story.
    pub(in crate::tool) fn before(&self, page: &str, number: usize) -> &'static [&'static str] {
        match (page, number) {
            ("docs/command-line.md", 2) => &["coracle create --name web --purpose general"],
            ("docs/lifetimes.md", 1) | ("docs/snapshots.md", 1) => &["coracle create --name web"],
            ("docs/saved-work.md", 1) => &[
                "coracle create --name web --mount-cwd=false",
                "coracle exec web 'git init -q app && cd app && echo 1 > a'",
                "coracle create --name web2 --mount-cwd=false",
            ],
            ("docs/sandboxes.md", 1) => {
                &["git clone -q https://github.com/OWNER/NAME.git NAME # as a worktree's source"]
            }
            ("docs/sandboxes.md", 2) => {
                &["coracle worktree create https://github.com/OWNER/NAME.git --workflow issue-1"]
            }
            ("docs/sandboxes.md", 3) => &["coracle worktree exec issue-1 -- sh -c 'echo unsaved > left.txt'"],
            ("docs/workspace.md", 3) => &["coracle --session agent-1 workspace write-file new.txt new"],
            _ => &[],
        }
    }

    /// A line with its placeholders replaced.
    pub(in crate::tool) async fn fill(&self, newcomer: &Newcomer<'_>, line: &str) -> String {
        let name = newcomer.tool.case.engine().as_str();
        let url = if line.contains("worktree") { self.server.local_url(name) } else { self.server.url(name) };
        let mut line = line
            .replace("https://github.com/OWNER/NAME.git", &url)
            .replace("https://git.example.org/team/api.git", &url)
            .replace("postgres:16", POSTGRES)
            .replace("seq 10", "seq 2") // a container for each
            .replace("--port 8080:80", &format!("--port {}:80", free_port()));
        for placeholder in ["1a2b3c4d", "web-1a2b3c-db-1", "81d0", "20261122T101500.000Z"] {
            if line.contains(placeholder) {
                let stands_for = match placeholder {
                    "1a2b3c4d" => self.job(newcomer).await,
                    "81d0" => self.sandbox(newcomer).await,
                    "20261122T101500.000Z" => self.save(newcomer),
                    _ => self.database(newcomer).await,
                };
                // If it is missing, the line fails.
                line = line.replace(placeholder, stands_for.as_deref().unwrap_or(placeholder));
            }
        }
        line
    }

    /// Types it, at a terminal where it opens one.
    pub(in crate::tool) async fn types(&self, newcomer: &Newcomer<'_>, line: &str) -> Shown {
        let turn = if line.contains("worker run") { Some(self.turn.lock().await) } else { None };
        if turn.is_some() {
            self.model.then(fix_turns());
        }
        let opens = line.starts_with("coracle shell") || line.starts_with("coracle worktree shell");
        let shown = if opens { newcomer.types_at_terminal(line, "exit\n").await } else { newcomer.types(line).await };
        drop(turn);
        shown
    }

    /// Cleans up what a user would leave for later.
    pub(in crate::tool) async fn end(&self, newcomer: &Newcomer<'_>) {
        for line in [
            "coracle sandbox remove --all",
            "coracle workspace end",
            "coracle --session agent-1 workspace end",
            "coracle destroy-all --confirm",
            "coracle snapshot-delete with-tools",
            "coracle destroy-network team",
        ] {
            newcomer.types(line).await;
        }
    }

    /// The only job there is.
    async fn job(&self, newcomer: &Newcomer<'_>) -> Option<String> {
        let jobs = json(newcomer, "coracle jobs --json").await;
        Some(jobs["jobs"][0]["job_id"].as_str()?.to_owned())
    }

    /// The database of the stack of `web`.
    async fn database(&self, newcomer: &Newcomer<'_>) -> Option<String> {
        let status = json(newcomer, "coracle status web --json").await;
        let db = status["compose_services"].as_array()?.iter().find(|it| it["service"] == "db")?.clone();
        Some(db["name"].as_str()?.to_owned())
    }

    /// The beginning of the first sandbox's key.
    async fn sandbox(&self, newcomer: &Newcomer<'_>) -> Option<String> {
        let listed = newcomer.types("coracle sandbox list").await.text;
        Some(listed.lines().nth(1)?.split_whitespace().next()?.get(..4)?.to_owned())
    }

    /// The time of the save of `web`.
    fn save(&self, newcomer: &Newcomer<'_>) -> Option<String> {
        let saves = std::fs::read_dir(newcomer.tool.state().join("saved/web")).ok()?;
        saves.map(|it| it.unwrap().file_name().into_string().unwrap()).max()
    }
}

async fn json(newcomer: &Newcomer<'_>, line: &str) -> Value {
    serde_json::from_str(&newcomer.types(&format!("{line} 2>/dev/null")).await.text).unwrap_or_default()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
