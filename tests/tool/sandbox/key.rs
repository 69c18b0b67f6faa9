//! A key that a program of the user prints.

use serde_json::json;

use super::{Given, KEY, with_bench_of};
use crate::servers::model::{call, calls, says};
use crate::tool::person::{Programs, program};

/// Prints the key if its arguments are right, and counts its calls.
fn printing(key: &str) -> String {
    format!("echo call >> \"$0.calls\"; test \"$1 $2\" = 'show model' || exit 1; echo '{key}'")
}

#[tokio::test]
async fn a_key_printed_by_a_program_is_sent_to_the_model_and_requested_once_a_minute() {
    // The value of a variable is no key if a program is configured.
    let programs = Programs::new().with("key", &printing("sk-printed-7c20e1"));
    let at = programs.path("key");
    let key = format!("key_command = [{at:?}, \"show\", \"model\"]");
    with_bench_of(Given { key: &key, ..Given::USUAL }, "", async |bench| {
        let call_log = at.with_extension("calls");
        let times = || std::fs::read_to_string(&call_log).map_or(0, |it| it.lines().count());
        let (before, sent_before) = (times(), bench.model.requests().len());
        let id = bench.id("printed");
        bench.created(&id).await;
        let looks = "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; env; grep -r . /.coracle/run /tmp 2>/dev/null";
        bench.model.then([calls([call("shell_execute", json!({ "command": ["sh", "-c", looks] }))]), says("done")]);
        let (ended_well, events) = bench.works(&id, "Look.").await;
        assert!(ended_well, "{events:#?}");
        let sent = bench.model.requests();
        let sent = &sent[sent_before..];
        assert_eq!(sent.len(), 2);
        assert!(sent.iter().all(|it| it.headers["authorization"] == "Bearer sk-printed-7c20e1"), "{sent:?}");
        assert_eq!(times() - before, 1, "two calls of a model, one of the program");
        let reported = serde_json::to_string(&events).unwrap();
        assert!(!reported.contains("printed-7c20e1") && !reported.contains(KEY), "{reported}");
        assert!(!bench.inside("0:0", looks).await.contains("printed-7c20e1"));
        let log = bench.tool.state().join("sandboxes");
        let logs = std::fs::read_dir(log).unwrap().flatten().map(|it| it.path().join("proxy.jsonl"));
        let logs: Vec<_> = logs.filter_map(|it| std::fs::read_to_string(it).ok()).collect();
        assert!(logs.iter().any(|it| it.contains("chat/completions")), "{logs:?}");
        assert!(logs.iter().all(|it| !it.contains("printed-7c20e1")), "{logs:?}");

        // The next process calls it again. The output of a failed program is not sent anywhere.
        program(&at, &format!("{}; exit 3", printing("sk-half-a-key")));
        let (ended_well, events) = bench.works(&id, "Look again.").await;
        program(&at, &printing("sk-printed-7c20e1"));
        assert!(!ended_well && times() - before > 1, "{events:#?}");
        let reported = serde_json::to_string(&events).unwrap();
        assert!(!reported.contains("sk-half") && bench.model.requests().len() == sent_before + 2, "{reported}");
    })
    .await;
}

#[tokio::test]
async fn a_program_for_a_key_is_named_by_its_whole_path() {
    with_bench_of(Given { key: "key_command = [\"key\", \"show\"]", ..Given::USUAL }, "", async |bench| {
        let refused = bench.tries(&["create", &bench.url(), "--workflow", &bench.id("none")]).await;
        assert_eq!(refused["success"], false, "{refused:#}");
        assert!(refused["error"].as_str().is_some_and(|it| it.contains("is no whole path")), "{refused:#}");
    })
    .await;
}
