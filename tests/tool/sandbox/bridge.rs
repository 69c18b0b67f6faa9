//! A sandbox on the engine's bridge, which only the user may choose. It works, and does not claim isolation.

use coracle_types::EngineKind;
use serde_json::json;

use super::with_bench;
use crate::engines::GitServer;
use crate::servers::model::{call, calls, says};

#[tokio::test]
async fn a_sandbox_on_a_bridge_reaches_out_and_its_agent_is_informed() {
    with_bench("", async |bench| {
        bench.configures("[worker]", "[sandbox]\nnetwork = \"bridge\"\n\n[worker]");
        let id = bench.id("bridged");
        bench.created(&id).await;
        // By the address of this host, independently of what the proxy allows.
        let outside = GitServer::start();
        outside.repository("web", &[("a", "a\n")]).await;
        let tries = format!(
            "wget -q -O- '{}/info/refs?service=git-upload-pack' | grep -c refs/heads/main; \
             git fetch -q origin; echo fetched $?; echo proxy=$HTTP_PROXY.",
            outside.url("web")
        );
        bench.model.then([calls([call("shell_execute", json!({ "command": ["sh", "-c", tries] }))]), says("done")]);
        let (ended_well, events) = bench.works(&id, "Try it.").await;
        assert!(ended_well, "{events:#?}");
        let printed = events[2]["output"].as_str().unwrap();
        // Networks of the embedded engine reach other machines, but not this one.
        let lines = if bench.tool.case.engine() == EngineKind::Embedded { 0 } else { 2 };
        assert!(printed.contains(&format!("{lines}\nfetched 0\nproxy=.\n")), "{printed}");
        let requests = bench.model.requests();
        let system = &requests.last().unwrap().texts_of("system")[0];
        assert!(system.contains("Network: open (egress: open)."), "{system}");
        // Still no key, and no other way to a model than with the worker's token.
        let seen = bench.inside("0:0", "cat /proc/[0-9]*/environ /.coracle/run/* 2>/dev/null; env").await;
        assert!(!seen.contains(super::KEY));

        bench.configures("[sandbox.git]", "[sandbox.git]\nmode = \"credential\"");
        let refused = bench.tries(&["list"]).await;
        assert_eq!(refused["success"], false, "{refused:#}");
        assert!(refused.to_string().contains("sandbox.network"), "{refused:#}");
        bench.configures("mode = \"credential\"\n", "");

        bench.configures("cross_session = \"all\"", "cross_session = \"all\"\nnetwork = \"none\"");
        let refused = bench.tries(&["create", &bench.url(), "--workflow", "refused"]).await;
        assert_eq!((&refused["code"], &refused["details"]["rule"]), (&"policy_denied".into(), &"network.open".into()));
        bench.configures("cross_session = \"all\"\nnetwork = \"none\"", "cross_session = \"all\"");
    })
    .await;
}
