//! The process that runs a sandbox's proxy is killed while another process's run uses it.

use serde_json::json;

use super::{Begun, SOON, with_shared};
use crate::engines::Manner;
use crate::servers::model::{call, calls, held, says};
use crate::tool::eventually;
use crate::tool::sandbox::Bench;

/// The first process, which therefore runs the proxy.
async fn holder(bench: &Bench<'_>) -> Begun {
    let requests = bench.model.requests().len();
    bench.model.then([held(says("never")).0]);
    let run = bench.begins_run("holder");
    bench.model_is_called(requests).await;
    run
}

#[tokio::test]
async fn a_proxy_killed_during_a_fetch_or_a_model_call_is_continued_by_the_next_process() {
    with_shared(async |bench| {
        for id in ["holder", "goes-on"] {
            bench.at_work(id).await;
        }

        // It relays a fetch of git's.
        let mut first = holder(bench).await;
        let fetch = "git fetch -q origin; echo first $?; for n in 1 2 3 4 5 6 7 8 9; do \
                     git fetch -q origin && break; sleep 1; done; echo second $?";
        let fetches = json!({ "command": ["sh", "-c", fetch], "timeout_seconds": 60 });
        bench.model.then([calls([call("shell_execute", fetches)]), says("fetched")]);
        bench.server.behaves(Manner::Silent);
        let requests = bench.server.requests().len();
        let run = bench.begins_run("goes-on");
        eventually("git asks the server", SOON, async || bench.server.requests().len() > requests).await;
        bench.server.behaves(Manner::Honest);
        first.kill();
        let reported = run.reported().await;
        assert!(
            reported.contains("first 128") && reported.contains("second 0") && reported.contains("fetched"),
            "{reported}"
        );
        first.reported().await;
        bench.goes_on("holder").await;

        // It relays a call to the model, which the worker repeats.
        let mut first = holder(bench).await;
        let requests = bench.model.requests().len();
        bench.model.then([held(says("never")).0, says("called again")]);
        let run = bench.begins_run("goes-on");
        bench.model_is_called(requests).await;
        first.kill();
        let reported = run.reported().await;
        assert!(reported.contains("called again"), "{reported}");
        first.reported().await;
        for id in ["holder", "goes-on"] {
            bench.goes_on(id).await;
            bench.is_removed_with_its_work(id).await;
        }
    })
    .await;
}
