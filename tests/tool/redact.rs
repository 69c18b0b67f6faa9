//! `exec.redact`: live secrets are removed from output of commands and jobs.

use serde_json::{Value, json};

use super::Tool;
use super::person::{Person, Programs};

const PASSED: &str = "npm_0123456789abcdefghij";
const OF_CREATE: &str = "a-password-of-create";
const OF_EXEC: &str = "a-password-of-exec";
const TOKEN: &str = "gho_tokentokentokentoken";

fn person(config: &str, programs: &Programs) -> Person {
    Person::new(config).with_programs(programs).with_env("NPM_TOKEN", PASSED)
}

fn absent(answer: &Value) {
    let text = answer.to_string();
    // Not even a part of a secret.
    for secret in [PASSED, OF_CREATE, OF_EXEC, TOKEN].map(|it| &it[4..14]) {
        assert!(!text.contains(secret), "{secret}: {answer:#}");
    }
}

/// Every page of a job, of so many bytes each.
async fn pages(tool: &Tool<'_>, container: &str, job: &Value, limit: u64) -> String {
    let (mut all, mut offset) = (String::new(), 0);
    loop {
        let call = json!({ "operation": "job_read", "container": container, "job_id": job, "offset": offset,
            "limit": limit });
        let page = tool.call(call).await;
        all += page["data"].as_str().unwrap_or_else(|| panic!("{page:#}"));
        if page["eof"] == true {
            return all;
        }
        offset = page["next_offset"].as_u64().unwrap();
    }
}

#[tokio::test]
async fn live_secrets_are_redacted_from_output_of_commands_and_jobs() {
    let programs = Programs::new().with_gh(TOKEN);
    person("[exec]\nredact = true\n", &programs)
        .on_real_engines(async |tool| {
            let name = tool.created(json!({ "env": { "DB_PASSWORD": OF_CREATE, "MODE": "a-plain-value" } })).await;
            let all = "echo $NPM_TOKEN $DB_PASSWORD $OTHER_PASSWORD $GH_TOKEN $MODE";
            let call = json!({ "operation": "exec", "container": name, "command": format!("{all}; {all} >&2"),
                "env": { "OTHER_PASSWORD": OF_EXEC } });
            let answer = tool.call(call).await;
            absent(&answer);
            let line = answer["stdout"].as_str().unwrap();
            assert_eq!(line.matches("[redacted:").count(), 4, "{answer:#}");
            assert!(line.contains("[redacted:NPM_TOKEN]") && line.ends_with("a-plain-value\n"), "{answer:#}");
            assert_eq!(answer["stderr"], answer["stdout"]);
            // At any edges of a cut.
            for before in (500..530).step_by(4) {
                let print = format!(
                    "head -c {before} /dev/zero | tr '\\0' x; echo $NPM_TOKEN; head -c 3000 /dev/zero | tr '\\0' y"
                );
                let cut = json!({ "operation": "exec", "container": name, "command": print, "max_output": 1024 });
                absent(&tool.call(cut).await);
            }
            let job = json!({ "operation": "exec_background", "container": name, "command": format!("{all}; {all}") });
            let job = tool.call(job).await["job_id"].clone();
            let wait = json!({ "operation": "job_wait", "container": name, "job_id": job });
            absent(&tool.call(wait).await);
            for limit in [7, 64, 4096] {
                let read = pages(tool, &name, &job, limit).await;
                absent(&read.clone().into());
                assert!(read.contains("a-plain-value"), "{limit}: {read}");
            }
            for more in [json!({ "pattern": "npm|plain" }), json!({ "encoding": "base64" })] {
                let mut call = json!({ "operation": "job_read", "container": name, "job_id": job });
                super::merge(call.as_object_mut().unwrap(), more);
                absent(&tool.call(call).await);
            }
            absent(&tool.call(json!({ "operation": "exec_poll", "container": name, "job_id": job })).await);
        })
        .await;
}

#[tokio::test]
async fn a_secret_that_is_printed_in_pieces_is_taken_out_of_the_stream() {
    let programs = Programs::new();
    person("[exec]\nredact = true\n", &programs)
        .on_real_engines(async |tool| {
            let name = tool.created(json!({})).await;
            let pieces = "printf '%.9s' $NPM_TOKEN; sleep 0.3; printf '%s' ${NPM_TOKEN#?????????}; echo; echo npm_0";
            let call = json!({ "operation": "exec", "container": name, "command": pieces }).to_string();
            let output = tool.run(["call", "--stream", "-"], call.as_bytes()).await;
            let text = String::from_utf8_lossy(&output.stdout);
            let events = text.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
            let printed: String =
                events.filter(|it| it["event"] == "stdout").map(|it| it["data"].as_str().unwrap().to_owned()).collect();
            assert_eq!(printed, "[redacted:NPM_TOKEN]\nnpm_0\n", "{text}");
        })
        .await;
}

/// Control: without redaction the secrets are found.
#[tokio::test]
async fn output_of_a_command_is_not_redacted_unless_configured() {
    let programs = Programs::new();
    person("", &programs)
        .on_every_engine(async |tool| {
            let name = tool.created(json!({})).await;
            assert_eq!(tool.prints(&name, "echo $NPM_TOKEN").await, PASSED);
        })
        .await;
}
