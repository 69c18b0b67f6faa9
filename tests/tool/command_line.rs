//! Command lines of a person: arguments of other tools, a job's output, a terminal, copies, and exit codes.

mod approvals;
mod attach;
mod copies;
mod local_repos;
mod logs;
mod names;
mod ssh;
mod terminal;
mod top;
mod trail;
mod typing;
mod workspace;

use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::process::Child;

use super::{Tool, with_engine, with_rootful_engine};
use crate::engines::{IMAGE, LABEL};
use crate::guest::shell::on_a_terminal;

/// The program's output on a stream.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command line without standard input.
async fn typed(tool: &Tool<'_>, words: &[&str]) -> Output {
    tool.run(words, b"").await
}

/// The output of a command line, which must succeed.
async fn prints(tool: &Tool<'_>, words: &[&str]) -> String {
    let output = typed(tool, words).await;
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A command line as a shell reads it.
fn shell_line(tool: &Tool<'_>, words: &[&str]) -> String {
    let quoted = |it: &str| format!("'{}'", it.replace('\'', r"'\''"));
    let command = tool.command(words);
    let command = command.as_std();
    let env = command.get_envs().filter_map(|(name, value)| Some(format!("{}={}", name.to_str()?, value?.to_str()?)));
    let program = command.get_program().to_str().unwrap().to_owned();
    let args = command.get_args().map(|it| it.to_str().unwrap().to_owned());
    let words: Vec<String> = env.chain(["TERM=vt220".into(), program]).chain(args).map(|it| quoted(&it)).collect();
    format!("cd {} && exec env -i {}", quoted(tool.work().to_str().unwrap()), words.join(" "))
}

/// A command line on a terminal of its own.
async fn at_a_terminal(tool: &Tool<'_>, words: &[&str], keys: &str) -> (String, Option<i32>) {
    on_a_terminal(&shell_line(tool, words), keys).await
}

/// A command that keeps running.
fn started(tool: &Tool<'_>, words: &[&str]) -> Child {
    tool.command(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signalled(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap(), signal).unwrap();
}

/// The result, within the time limit.
async fn ended(child: Child) -> Output {
    tokio::time::timeout(Duration::from_secs(20), child.wait_with_output()).await.expect("it ends").unwrap()
}

#[tokio::test]
async fn the_words_of_other_tools_are_known() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        assert!(prints(tool, &["ps"]).await.contains(&name));
        let json: Value = serde_json::from_str(&prints(tool, &["ps", "--json"]).await).unwrap();
        assert_eq!(json["count"], 1);
        prints(tool, &["rm", &name]).await;
        assert!(!prints(tool, &["ps"]).await.contains(&name));
    })
    .await;
}

#[tokio::test]
async fn habits_of_docker_work() {
    with_engine("", async |tool| {
        let [first, second] = ["first", "second"].map(|it| tool.case.name(it).to_string());
        let label = format!("{LABEL}={}", tool.case.container_label().1);
        let common = ["create", "-d", "--image", IMAGE, "--mount-cwd=false", "-l", &label, "--name"];
        prints(tool, &[&common[..], &[&first, "-e", "A=1", "-m", "64mb"]].concat()).await;
        prints(tool, &[&common[..], &[&second, "--memory", "64mb", "--cpus", "1"]].concat()).await;
        let listed = prints(tool, &["exec", &first, "ls", "-la", "/"]).await;
        assert!(listed.lines().any(|line| line.starts_with('d')), "{listed}");
        let shown = prints(tool, &["exec", "-w", "/tmp", "-e", "B=2", &first, "sh", "-c", "pwd; echo $A$B"]).await;
        assert_eq!(shown, "/tmp\n12\n");
        assert_eq!(prints(tool, &["exec", &first, "echo $A | cat"]).await, "1\n");
        let shown = prints(tool, &["ls"]).await;
        assert!(shown.contains(&first) && shown.contains(&second), "{shown}");
        let stopped = prints(tool, &["stop", "-t", "1", &first, &second]).await;
        assert!(stopped.contains(&first) && stopped.contains(&second), "{stopped}");
        prints(tool, &["start", &first, &second]).await;
        let shown = prints(tool, &["inspect", "--json", &first, &second]).await;
        let answers: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.iter().map(|it| &it["running"]).collect::<Vec<_>>(), [true, true], "{shown}");
        // A failed one does not stop the others.
        let removed = typed(tool, &["rm", "-f", &first, "missing", &second]).await;
        assert_eq!(removed.status.code(), Some(1), "{}", text(&removed.stderr));
        assert!(text(&removed.stderr).contains("missing"), "{}", text(&removed.stderr));
        assert_eq!(text(&removed.stdout).lines().filter(|line| line.contains("destroyed")).count(), 2);
        let shown = prints(tool, &["ps", "-a"]).await;
        assert!(!shown.contains(&first) && !shown.contains(&second), "{shown}");
    })
    .await;
}

#[tokio::test]
async fn a_command_whose_container_is_removed_says_so() {
    with_engine("", async |tool| {
        for force in [false, true] {
            let name = tool.created(json!({})).await;
            let mut child = started(tool, &["exec", &name, "echo up; exec sleep 305"]);
            let mut up = [0; 3];
            child.stdout.as_mut().unwrap().read_exact(&mut up).await.unwrap();
            let force: &[&str] = if force { &["--force"] } else { &[] };
            prints(tool, &[&["destroy", &name], force].concat()).await;
            let output = ended(child).await;
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(125), "{error}");
            assert!(
                error.contains(&format!("error[container_removed]: `{name}` was removed by another call")),
                "{error}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn the_list_shows_what_sessions_have_and_of_which_kind_it_is() {
    with_rootful_engine(&format!("[workspace]\nimage = \"{IMAGE}\"\n"), async |tool| {
        let name = tool.created(json!({})).await;
        prints(tool, &["workspace", "write-file", "a.txt", "text"]).await;
        let listed: Value = serde_json::from_str(&prints(tool, &["list", "--json"]).await).unwrap();
        assert_eq!((&listed["count"], &listed["containers"][0]["name"]), (&1.into(), &name.clone().into()));
        let other = &listed["others"][0];
        assert_eq!((&other["kind"], &other["running"]), (&"session".into(), &true.into()), "{listed:#}");
        let shown = prints(tool, &["list"]).await;
        let row = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row(&name).contains(" container "), "{shown}");
        assert!(row(other["name"].as_str().unwrap()).contains(" session "), "{shown}");
        let top: Value = serde_json::from_str(&prints(tool, &["top", "--json"]).await).unwrap();
        let kinds: Vec<&str> =
            top["containers"].as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["container", "session"]);
        // With an ssh configuration, containers are opened by their names.
        let config = prints(tool, &["ssh-config"]).await;
        assert!(config.contains(&name) && !config.contains(other["name"].as_str().unwrap()), "{config}");
        // An agent has its own containers, and a program counts them.
        assert!(tool.call(json!({ "operation": "list" })).await.get("others").is_none());
    })
    .await;
}

#[tokio::test]
async fn a_stopped_container_is_restarted_with_its_files() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        tool.prints(&name, "echo kept > /workspace/file; echo kept > /root-file").await;
        tool.call(json!({ "operation": "exec_background", "container": name, "command": "sleep 300" })).await;
        let stopped = prints(tool, &["stop", &name, "--time", "1"]).await;
        assert!(stopped.contains("1 job ended") && stopped.contains("coracle start"), "{stopped}");
        let listed = tool.call(json!({ "operation": "list" })).await;
        assert_eq!((&listed["count"], &listed["containers"][0]["running"]), (&1.into(), &false.into()), "{listed:#}");
        assert_eq!(tool.exec(&name, "true").await["code"], "not_running");
        let again: Value = serde_json::from_str(&prints(tool, &["stop", &name, "--json"]).await).unwrap();
        assert_eq!((&again["success"], &again["stopped"]), (&true.into(), &false.into()));
        prints(tool, &["start", &name]).await;
        assert_eq!(tool.prints(&name, "cat /workspace/file /root-file").await, "kept\nkept");
        // An agent does not stop what others may use.
        assert_eq!(tool.call(json!({ "operation": "stop", "container": name })).await["code"], "unknown_operation");
        assert_eq!(typed(tool, &["stop", "nosuch"]).await.status.code(), Some(1));
    })
    .await;
}

#[tokio::test]
async fn a_signal_that_ends_a_command_is_in_the_exit_code() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
            let child = started(tool, &["exec", &name, "--", "sleep", "304"]);
            let runs = async || {
                tool.prints(&name, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").await.contains("sleep 304")
            };
            super::eventually("the command runs", Duration::from_secs(10), runs).await;
            signalled(&child, signal);
            let output = ended(child).await;
            assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
            assert!(!runs().await, "the command outlived its call");
        }
    })
    .await;
}

#[tokio::test]
async fn a_failed_step_is_an_exit_code_if_the_user_requests_it() {
    with_engine("", async |tool| {
        let (key, value) = (LABEL, tool.case.container_label().1);
        let label = format!("{key}={value}");
        let create = |more: &[&'static str]| {
            let words = ["create", "--image", IMAGE, "--mount-cwd=false", "--label", &label];
            [&words[..], more].concat().iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()
        };
        let run = async |more: &[&'static str]| tool.run(create(more), b"").await;
        let lenient = run(&["--setup-command", "exit 4"]).await;
        assert_eq!(lenient.status.code(), Some(0), "{}", text(&lenient.stderr));
        assert!(text(&lenient.stderr).contains("--strict"), "{}", text(&lenient.stderr));
        assert_eq!(run(&["--setup-command", "exit 4", "--strict"]).await.status.code(), Some(3));
        let json = run(&["--setup-command", "exit 4", "--strict", "--json"]).await;
        let answer: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!((json.status.code(), &answer["success"]), (Some(3), &true.into()));
        let good = run(&["--setup-command", "true", "--strict"]).await;
        assert_eq!(good.status.code(), Some(0));
        assert!(!text(&good.stderr).contains("--strict"));
    })
    .await;
}
