//! Errors of writing to standard output are errors: no command ends with 0 whose output did not arrive.

use std::fs::File;
use std::process::{Output, Stdio};

use serde_json::json;

use super::{Tool, with_engine};

/// A command whose standard output is full.
async fn on_a_full_disk(tool: &Tool<'_>, words: &[&str]) -> Output {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = tool.command(words);
    command.stdin(Stdio::null()).stdout(Stdio::from(full)).stderr(Stdio::piped());
    command.spawn().unwrap().wait_with_output().await.unwrap()
}

/// Problems of the exit of such a command.
fn fault(words: &[&str], output: &Output, codes: &[i32]) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    let is_reported = text.contains("No space left on device") && !text.contains("internal");
    let is_right = is_reported && output.status.code().is_some_and(|it| codes.contains(&it));
    (!is_right).then(|| format!("{words:?}: {:?}: {text}", output.status.code()))
}

#[tokio::test]
async fn a_full_disk_behind_standard_output_fails_every_command() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let call = json!({ "operation": "exec_background", "container": name, "command": "echo of a job" });
        let job = tool.call(call).await["job_id"].as_str().unwrap().to_owned();
        let from = format!("{name}:/etc/passwd");
        let list = json!({ "operation": "list" }).to_string();
        let large = ["exec", &name, "--", "seq", "500000"];
        let commands: [(&[&str], &[i32]); 20] = [
            (&["--help"], &[1]),
            (&["help", "exec"], &[1]),
            (&["--version"], &[1]),
            (&["completions", "bash"], &[1]),
            (&["exec", &name, "--", "echo", "out"], &[125]),
            (&["exec", &name, "--", "printf", "out"], &[125]),
            // 125 if the output cannot be written before the command has ended by itself.
            (&["exec", &name, "--", "sh", "-c", "echo out; exit 3"], &[3, 125]),
            (&large, &[125]),
            (&["exec", "--json", &name, "--", "echo", "out"], &[125]),
            (&["call", &list], &[1]),
            (&["call", "--stream", &list], &[1]),
            (&["call", "--schema"], &[1]),
            (&["list"], &[1]),
            (&["list", "--json"], &[1]),
            (&["status", &name], &[1]),
            (&["job-wait", &name, &job], &[125]),
            (&["job-read", &name, &job], &[1]),
            (&["logs", &name, &job], &[1]),
            (&["cp", &from, "-"], &[1]),
            (&["audit", "log"], &[1]),
        ];
        let mut faults = Vec::new();
        for (words, codes) in commands {
            faults.extend(fault(words, &on_a_full_disk(tool, words).await, codes));
        }
        assert!(faults.is_empty(), "on {}:\n{}", tool.case.engine(), faults.join("\n"));
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_leaves_ends_a_copy_of_a_file_without_a_word() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let make = tool.exec(&name, "dd if=/dev/zero of=/tmp/large bs=1M count=4").await;
        assert_eq!(make["exit_code"], 0, "{make:#}");
        let mut command = tool.command(["cp", &format!("{name}:/tmp/large"), "-"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(output.status.code(), Some(141), "{}", String::from_utf8_lossy(&output.stderr));
    })
    .await;
}
