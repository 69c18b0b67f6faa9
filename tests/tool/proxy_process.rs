//! The process that runs the proxy of a container after the commands that used the container have ended.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::hostile_session::processes_with;
use super::person::Person;
use super::proxied::{Served, fetching};
use super::{Tool, eventually};
use crate::engines::{IMAGE, Lack};

/// The proxy's process ends and starts within this time, also on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// A container whose job writes `there` or `nothing` into a file of the host for each request.
struct Container<'t, 'c> {
    tool: &'t Tool<'c>,
    name: String,
    outcomes: PathBuf,
}

impl<'t, 'c> Container<'t, 'c> {
    async fn create(tool: &'t Tool<'c>) -> Self {
        let call = json!({ "operation": "create", "image": IMAGE, "network": "proxy", "mount_cwd": true });
        let made = tool.call(call).await;
        assert_eq!(made["success"], true, "{made:#}");
        let name = made["container"].as_str().unwrap().to_owned();
        Self { tool, name, outcomes: tool.work().join("outcomes") }
    }

    async fn call(&self, operation: &str, more: Value) -> Value {
        let mut call = json!({ "operation": operation, "container": self.name });
        super::merge(call.as_object_mut().unwrap(), more);
        let answer = self.tool.call(call).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        answer
    }

    async fn exec(&self, command: &str) -> Value {
        self.call("exec", json!({ "command": command })).await
    }

    /// A command that users have and agents do not.
    async fn command(&self, verb: &str) {
        let ran = self.tool.run([verb, &self.name], b"").await;
        assert!(ran.status.success(), "{verb}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    /// Requests that address again and again, in the background.
    async fn request_for_ever(&self, served: &Served) {
        let command = format!(
            "while :; do if {} | grep -q there; then echo there; else echo nothing; fi >> outcomes; sleep 0.1; done",
            fetching(&format!("{}{}", served.url(), self.name))
        );
        self.call("exec_background", json!({ "command": command })).await;
    }

    /// Waits until so many requests end so, one after the other, from now on. No call is made meanwhile.
    async fn until_outcomes(&self, outcome: &str, count: usize) {
        let read = || std::fs::read_to_string(&self.outcomes).unwrap_or_default();
        let before = read().lines().count();
        eventually(&format!("{count} times {outcome}"), SOON, async || {
            let text = read();
            let new: Vec<_> = text.lines().skip(before).collect();
            new.len() >= count && new.iter().rev().take(count).all(|it| *it == outcome)
        })
        .await;
    }

    /// The processes that run its proxy.
    fn processes(&self) -> Vec<Pid> {
        let state = self.tool.state().display().to_string();
        let found = processes_with(&format!(" container-proxy {}", self.name));
        found
            .into_iter()
            .filter(|(_, words)| words.contains(&state))
            .filter_map(|(pid, _)| Pid::from_raw(pid))
            .collect()
    }

    fn process(&self) -> Pid {
        let all = self.processes();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0]
    }

    async fn until_no_process(&self, after: &str) {
        eventually(&format!("its proxy ends after {after}"), SOON, async || self.processes().is_empty()).await;
    }
}

fn config(served: &Served) -> String {
    format!("[security.egress]\nallow = [\"{}\"]\n[secrets.MY_TOKEN]\nhosts = [\"api.example.com\"]\n", served.rule())
}

/// The text of a file of a process, or the target of a link.
fn of_process(pid: Pid, name: &str) -> String {
    let path = Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join(name);
    match std::fs::read_link(&path) {
        Ok(target) => target.display().to_string(),
        Err(_) => String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned(),
    }
}

#[tokio::test]
async fn background_jobs_reach_allowed_hosts_after_the_command_that_started_them() {
    let served = Served::here();
    let person = Person::new(config(&served)).with_env("MY_TOKEN", "canary-of-the-host");
    person
        .on_real_engines(async |tool| {
            let container = Container::create(tool).await;
            let process = container.process();
            assert_eq!(of_process(process, "cwd"), "/");
            for stream in ["fd/0", "fd/1", "fd/2"] {
                assert_eq!(of_process(process, stream), "/dev/null");
            }
            assert_eq!(rustix::process::getsid(Some(process)), Ok(process), "a session of its own");
            assert!(!of_process(process, "cmdline").contains("canary"));

            container.request_for_ever(&served).await;
            container.until_outcomes("there", 3).await;
            kill_process(process, Signal::KILL).unwrap();
            container.until_outcomes("nothing", 1).await;
            let requests = served.requests(&container.name);
            container.until_outcomes("nothing", 2).await;
            assert!(requests > 0);
            assert_eq!(served.requests(&container.name), requests, "nothing goes out");

            // Two commands start one process.
            tokio::join!(container.exec("true"), container.exec("true"));
            assert_ne!(container.process(), process);
            container.until_outcomes("there", 3).await;

            let refused = served.elsewhere();
            let command = format!("{}; true", fetching(&refused.url()));
            container.call("exec_background", json!({ "command": command })).await;
            eventually("the refusal is reported to the next call", SOON, async || {
                let answer = container.exec("true").await;
                let warnings = answer["warnings"].as_array().cloned().unwrap_or_default();
                warnings.iter().any(|it| it["message"].as_str().unwrap().contains(&refused.rule()))
            })
            .await;
            container.call("destroy", json!({})).await;
            container.until_no_process("destroy").await;
            assert_eq!(std::fs::read_dir(tool.state().join("proxy")).unwrap().count(), 0, "nothing of it stays");
        })
        .await;
}

#[tokio::test]
async fn the_process_of_a_proxy_ends_with_its_container_and_follows_the_configuration() {
    let served = Served::here();
    Person::new(config(&served))
        .on_real_engines(async |tool| {
            let container = Container::create(tool).await;
            let first = container.process();
            container.exec("true").await;
            assert_eq!(container.process(), first, "one process serves all commands");

            let file = tool.work().parent().unwrap().join("config.toml");
            let before = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, before.replace(&served.rule(), "other.example.com")).unwrap();
            let refused = container.exec(&fetching(&served.url())).await;
            assert!(refused["stdout"].as_str().unwrap().contains("403"), "{refused:#}");
            let second = container.process();
            assert_ne!(second, first, "other rules need another process");
            std::fs::write(&file, before).unwrap();
            let allowed = container.exec(&fetching(&served.url())).await;
            assert!(allowed["stdout"].as_str().unwrap().ends_with("there"), "{allowed:#}");

            if !tool.case.lacks(Lack::Restart) {
                container.command("stop").await;
                container.until_no_process("stop").await;
                container.command("start").await;
                let again = container.exec(&fetching(&served.url())).await;
                assert!(again["stdout"].as_str().unwrap().ends_with("there"), "{again:#}");
            }
            container.process();
            container.call("destroy", json!({})).await;
            container.until_no_process("destroy").await;
        })
        .await;
}
