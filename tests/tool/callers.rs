//! The process state of the caller stays outside: containers and their commands do not depend on the
//! shell, the service or the editor that called Coracle.

use std::process::Stdio;
use std::time::Duration;

use coracle_types::EngineKind;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{Tool, with_engine};

/// What a shell changes of itself before it executes the program.
const CALLERS: &[(&str, &str)] = &[
    ("signals that are ignored", "trap '' HUP INT QUIT TERM USR1 USR2 PIPE CHLD;"),
    ("signals that are blocked", "set -- env --block-signal=HUP,USR1,USR2,WINCH \"$@\";"),
    ("a private umask", "umask 077;"),
    ("an open umask", "umask 000;"),
    ("a directory that is gone", "mkdir gone; cd gone; rmdir ../gone;"),
    ("closed descriptors", "exec 0<&- 2>&-;"),
    ("more descriptors", "exec 5</dev/null 7>/dev/null 9</;"),
    ("another locale", "export LC_ALL=tr_TR.UTF-8 LANG=de_DE.UTF-8 LANGUAGE=fr;"),
    ("another time zone", "export TZ=Pacific/Kiritimati;"),
    ("variables of shells", "export ENV=/nowhere BASH_ENV=/nowhere IFS=x CDPATH=/etc POSIXLY_CORRECT=1;"),
];

/// The same where containers are no children of the caller. Those of Podman are, and have its limits, as with `podman run`.
const LIMITED_CALLERS: &[(&str, &str)] =
    &[("limits", "ulimit -St 900; ulimit -Sf 8000000; ulimit -Ss 4096; ulimit -Sn 512; ulimit -Sl 64; ulimit -Sc 0;")];

/// The same where the caller is root, who alone raises again what was lowered.
const CALLERS_OF_ROOT: &[(&str, &str)] = &[
    ("a low priority", "set -- nice -n 7 \"$@\";"),
    ("one processor", "set -- taskset 1 \"$@\";"),
    ("a victim of the memory", "echo 500 >/proc/$$/oom_score_adj;"),
];

/// Prints all that a command inherits, and what it may do.
const PROBE: &str = "umask; grep -E '^(Sig(Blk|Ign)|Groups|NoNewPrivs)' /proc/self/status; grep -v realtime /proc/self/limits; \
    cut -d' ' -f18-19 /proc/self/stat; \
    grep Cpus_allowed_list /proc/self/status; cat /proc/self/oom_score_adj; ls /proc/self/fd; pwd; env | grep -v -e ^HOSTNAME= -e ^CORACLE_ | sort; date +%Z; \
    for f in / /etc /etc/hosts /etc/hostname /etc/resolv.conf /tmp; do stat -c '%a %u %n' $f; test -r $f && echo readable; done; \
    cat /proc/1/limits; grep ^SigIgn /proc/1/status; cut -d' ' -f18-19 /proc/1/stat";

impl Tool<'_> {
    /// As [`command`](Tool::command), from a shell that does something before.
    #[expect(clippy::disallowed_methods, reason = "a test starts the caller of the program that it tests")]
    fn called_by(&self, caller: &str, words: &[&str]) -> Command {
        let coracle = self.command(words);
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("{caller} exec \"$@\""), "sh"]);
        shell.arg(coracle.as_std().get_program()).args(coracle.as_std().get_args()).env_clear();
        shell.envs(coracle.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.current_dir(self.work()).kill_on_drop(true).stdin(Stdio::null());
        shell
    }

    /// The answer to a call of such a shell.
    async fn answer_to(&self, caller: &str, call: &Value) -> Value {
        let text = self.case.with_image(&call.to_string());
        let output = self.called_by(caller, &["call", &text]).output().await.unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{caller}: {err}: {output:?}"))
    }

    /// The output of such a caller's command, or why there is none.
    async fn probe(&self, caller: &str, container: &str) -> String {
        let call = json!({ "operation": "exec", "container": container, "command": PROBE });
        let answer = self.answer_to(caller, &call).await;
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        if answer["exit_code"] == 0 { text("stdout") } else { text("message") + &text("stderr") }
    }
}

/// The lines of a text that differ from another text.
fn differences(found: &str, expected: &str) -> Vec<String> {
    let (found, expected) = (found.lines().collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>());
    let line = |lines: &[&str], at| lines.get(at).copied().unwrap_or("nothing").to_owned();
    let all = 0..found.len().max(expected.len());
    let differ = all.map(|at| (line(&found, at), line(&expected, at))).filter(|(found, expected)| found != expected);
    differ.map(|(found, expected)| format!("{found:?} in place of {expected:?}")).collect()
}

async fn state_stays_outside(tool: &Tool<'_>) {
    let call = tool.create_call(json!({ "user": "1000", "workdir": "/tmp" }));
    let create = async |caller: &str| {
        let answer = tool.answer_to(caller, &call).await;
        answer["container"].as_str().map(str::to_owned).ok_or_else(|| answer["message"].to_string())
    };
    let plain = create("").await.unwrap();
    let expected = tool.probe("", &plain).await;
    let has_own_limits = tool.case.engine() != EngineKind::Podman;
    let limited = if has_own_limits { LIMITED_CALLERS } else { &[] };
    let of_root = if has_own_limits && !tool.case.is_rootless() { CALLERS_OF_ROOT } else { &[] };
    let mut wrong = Vec::new();
    for (name, caller) in CALLERS.iter().chain(limited).chain(of_root) {
        let ran = tool.probe(caller, &plain).await;
        let created = create(caller).await;
        let inside = match &created {
            Ok(container) => tool.probe("", container).await,
            Err(message) => message.clone(),
        };
        for (operation, found) in [("exec", ran), ("create", inside)] {
            wrong.extend(differences(&found, &expected).into_iter().map(|it| format!("{name}: `{operation}`: {it}")));
        }
        if let Ok(container) = created {
            tool.call(json!({ "operation": "destroy", "container": container })).await;
        }
    }
    assert!(wrong.is_empty(), "on {}:\n{}", tool.case.engine(), wrong.join("\n"));
}

#[tokio::test]
async fn the_state_of_the_caller_reaches_no_container_and_no_command() {
    with_engine("", state_stays_outside).await;
}

#[tokio::test]
async fn the_state_of_the_caller_reaches_no_command_without_a_guest() {
    with_engine("guest = \"never\"\n", state_stays_outside).await;
}

/// Waits for the line by which a server says that it is ready.
async fn line_of(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    tokio::time::timeout(Duration::from_secs(60), lines.next_line())
        .await
        .expect("in time")
        .unwrap()
        .unwrap_or_default()
}

#[tokio::test]
async fn a_signal_that_the_caller_ignores_ends_nothing() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let hello = "echo ready; sleep 2; echo done";
        let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } } });
        let exec = json!({ "operation": "exec", "container": name, "command": "echo done" });
        // A program, its first input, its input after the signals, and the last word of its answer.
        let programs: [(&[&str], String, String); 3] = [
            (&["exec", &name, "--", "sh", "-c", hello], String::new(), String::new()),
            (&["serve"], exec.to_string(), exec.to_string()),
            (&["mcp"], initialize.to_string(), initialize.to_string()),
        ];
        for (words, first, second) in programs {
            let mut command = tool.called_by("trap '' HUP INT TERM;", words);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            input.write_all(format!("{first}\n").as_bytes()).await.unwrap();
            line_of(&mut child).await;
            let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
            for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
                kill_process(pid, signal).unwrap();
            }
            input.write_all(format!("{second}\n").as_bytes()).await.unwrap();
            assert_ne!(line_of(&mut child).await, "", "{words:?}");
            drop(input);
            assert_eq!(child.wait().await.unwrap().code(), Some(0), "{words:?}");
        }
        let mut command = tool.called_by("trap '' HUP;", &["forward", &name, "8000"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let address = line_of(&mut child).await;
        let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
        let port = address.rsplit(':').next().unwrap().trim_matches(|it: char| !it.is_ascii_digit()).to_owned();
        tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(child.wait().await.unwrap().code(), Some(0));
    })
    .await;
}
