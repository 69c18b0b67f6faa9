//! Mounts are compared before anything runs: another container replaces paths with links while an engine resolves them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use super::{Tool, with_engine};
use crate::engines::variable;

const SECRET: &str = "canary-5a1f";

/// Number of starts in each race, unless `CORACLE_RACES` is set.
const RACES: usize = 4;

fn races() -> usize {
    variable("CORACLE_RACES").and_then(|it| it.parse().ok()).unwrap_or(RACES)
}

/// Files of the host outside all roots, whose content a container must never print.
struct Outside(PathBuf);

impl Outside {
    fn new(tool: &Tool<'_>) -> Self {
        let dir = tool.home().join("outside");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("secret"), SECRET).unwrap();
        std::fs::write(dir.join("config"), SECRET).unwrap();
        Self(dir)
    }

    /// Reads it by the link's path and by its own path, where an engine mounts the link's target.
    fn reading_script(&self, at: &str) -> String {
        let own = self.0.display();
        format!(
            "cat {at}/secret {own}/secret 2>/dev/null; echo changed > {at}/written; echo changed > {own}/written; true"
        )
    }

    /// Creates the path inside too, since some engines mount only at an existing target.
    async fn make_target_in(&self, tool: &Tool<'_>, container: &str) {
        let command = format!("mkdir -p {0} && touch {0}/config", self.0.display());
        let call = json!({ "operation": "exec", "container": container, "command": command, "as_root": true });
        assert_eq!(tool.call(call).await["exit_code"], 0);
    }

    fn check_untouched(&self) {
        let mut names: Vec<_> = self.0.read_dir().unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["config", "secret"]);
    }
}

/// Exchanges two names for each other, as fast as the kernel does, until it is dropped.
struct Exchange {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Exchange {
    fn begin(first: &Path, second: &Path) -> Self {
        let over = Arc::<AtomicBool>::default();
        let (first, second, seen) = (first.to_owned(), second.to_owned(), Arc::clone(&over));
        let exchange = move || {
            while !seen.load(Ordering::Relaxed) {
                renameat_with(CWD, &first, CWD, &second, RenameFlags::EXCHANGE).unwrap();
            }
        };
        Self { over, thread: Some(std::thread::spawn(exchange)) }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The result of a call during a race: it used the right directory, or was refused.
fn check(answer: &Value, outside: &Outside) {
    let refused = ["mount_changed", "policy_denied", "engine_failed", "not_running", "path_not_found", "internal"];
    let code = answer["code"].as_str();
    assert!(answer["success"] == true || code.is_some_and(|it| refused.contains(&it)), "{answer:#}");
    assert!(!answer.to_string().contains(SECRET), "{answer:#}");
    outside.check_untouched();
}

#[tokio::test]
async fn a_link_in_place_of_a_protected_path_is_not_followed_at_a_restart() {
    with_engine("", async |tool| {
        let outside = Outside::new(tool);
        let work = tool.work();
        std::fs::create_dir_all(work.join(".vscode")).unwrap();
        std::fs::create_dir_all(work.join(".cargo")).unwrap();
        std::fs::write(work.join(".cargo/config"), "").unwrap();
        let name = tool.created(json!({ "persistent": true, "mount_cwd": true })).await;
        outside.make_target_in(tool, &name).await;
        for path in [".vscode", ".cargo"] {
            assert!(tool.engine(&["stop", "--time=0", &name]).await.0);
            std::fs::rename(work.join(path), work.join("away")).unwrap();
            std::os::unix::fs::symlink(&outside.0, work.join(path)).unwrap();
            let answer = tool.exec(&name, outside.reading_script(&format!("/workspace/{path}"))).await;
            assert_eq!(answer["code"], "mount_changed", "{answer:#}");
            check(&answer, &outside);
            let status = tool.call(json!({ "operation": "status", "container": name })).await;
            assert_eq!(status["running"], false, "{status:#}");
            std::fs::remove_file(work.join(path)).unwrap();
            std::fs::rename(work.join("away"), work.join(path)).unwrap();
        }
        // The directories are back, and so is the container.
        assert_eq!(tool.prints(&name, "echo here").await, "here");
    })
    .await;
}

#[tokio::test]
async fn a_protected_path_replaced_during_a_restart_never_mounts_another_directory() {
    with_engine("", async |tool| {
        let outside = Outside::new(tool);
        let work = tool.work();
        std::fs::create_dir_all(work.join(".cargo")).unwrap();
        std::fs::write(work.join(".cargo/config"), "").unwrap();
        let name = tool.created(json!({ "persistent": true, "mount_cwd": true })).await;
        outside.make_target_in(tool, &name).await;
        std::os::unix::fs::symlink(&outside.0, work.join("link")).unwrap();
        for _ in 0..races() {
            tool.engine(&["stop", "--time=0", &name]).await;
            let exchange = Exchange::begin(&work.join(".cargo"), &work.join("link"));
            check(&tool.exec(&name, outside.reading_script("/workspace/.cargo")).await, &outside);
            drop(exchange);
        }
    })
    .await;
}

#[tokio::test]
async fn a_bind_replaced_during_a_restart_or_a_create_never_mounts_another_directory() {
    with_engine("", async |tool| {
        let outside = Outside::new(tool);
        let work = tool.work();
        std::fs::create_dir(work.join("sub")).unwrap();
        std::os::unix::fs::symlink(&outside.0, work.join("link")).unwrap();
        let mounts = json!([{ "host": "sub", "container": "/sub", "mode": "rw" }]);
        let create = json!({ "persistent": true, "mounts": mounts });
        let restarted = tool.created(create.clone()).await;
        for _ in 0..races() {
            tool.engine(&["stop", "--time=0", &restarted]).await;
            let exchange = Exchange::begin(&work.join("sub"), &work.join("link"));
            check(&tool.exec(&restarted, outside.reading_script("/sub")).await, &outside);
            let made = tool.create(create.clone()).await;
            check(&made, &outside);
            if let Some(name) = made["container"].as_str() {
                check(&tool.exec(name, outside.reading_script("/sub")).await, &outside);
                drop(exchange);
                tool.destroy(name).await;
            }
        }
    })
    .await;
}
