//! A sandbox without root.

use serde_json::{Value, json};

use super::{FILES, Given, KEY, fix_turns, with_bench_of};
use crate::engines::{Lack, git, ran};
use crate::servers::model::{call, calls, says};

/// Reads everything that a user can read of its other processes: variables, memory, descriptors.
const SEES: &str = "for it in /proc/[0-9]*; do \
    case $(tr '\\0' ' ' <$it/cmdline) in /.coracle/*) \
    echo \"found ${it#/proc/}\"; cat $it/environ $it/maps 2>/dev/null; ls $it/fd 2>/dev/null; \
    head -c 1 $it/mem 2>/dev/null;; esac; done; \
    grep -E '^(Uid|Cap...|NoNewPrivs|Seccomp):' /proc/self/status; ls /sys/class/net; \
    touch /usr/x 2>/dev/null && echo written; env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'";

/// Sends the host's hello to PID 1, from the shell's own process, and prints the answer.
const SAYS_HELLO: &str = "said='{\"hello\":{\"version\":2,\"nonce\":\"00000000000000000000000000000000\"}}'; \
    octal=$(printf %o ${#said}); rm -f /tmp/in; mkfifo /tmp/in; \
    (printf \"\\000\\000\\000\\\\$octal\\000\\000\\000\\\\$octal\\000\\000\\000\\000\"; printf %s \"$said\"; sleep 1) >/tmp/in & \
    exec /.coracle/guest connect </tmp/in";

#[tokio::test]
async fn x11_a_worker_edits_and_its_branch_is_pushed_and_no_token_is_visible() {
    with_bench_of(Given::USUAL, "", async |bench| {
        if bench.tool.case.lacks(Lack::EnforcedLimits) {
            return;
        }
        bench.configures("[images]", "policy = \"strict\"\n\n[images]");
        let id = bench.id("strict");
        let branch = format!("refs/heads/coracle/{id}");
        bench.created(&id).await;
        // Another process of the host than the one that created the container: it uses the running one.
        bench.model.then([calls([call("shell_execute", json!({ "command": ["sh", "-c", SEES] }))]), says("seen")]);
        let (ended_well, events) = bench.works(&id, "Look around.").await;
        assert!(ended_well, "{events:#?}");
        let seen = events.iter().find_map(|it| it["output"].as_str()).unwrap();
        assert!(seen.matches("found ").count() >= 2, "PID 1 and the worker: {seen}");
        assert!(!seen.contains("r-xp") && !seen.contains("written") && !seen.contains(KEY), "{seen}");
        assert!(seen.contains("CapBnd:\t0000000000000000") && seen.contains("Uid:\t1000\t1000\t1000\t1000"), "{seen}");
        assert!(seen.contains("\nlo\n") && !seen.contains("eth0"), "{seen}");
        let inspected = bench.tool.engine(&["inspect", &bench.container().await]).await.1;
        assert!(!inspected.contains("canary"), "{inspected}");

        bench.model.then(fix_turns());
        let (ended_well, events) = bench.works(&id, "Fix add.sh.").await;
        assert!(ended_well, "{events:#?}");
        assert!(events.iter().any(|it| it["output"].as_str().is_some_and(|it| it.contains("passed"))), "{events:#?}");
        let pushed = bench.worktree(&["push", &id]).await;
        let there = git(&bench.server.dir("web"), &["rev-parse", &branch], "").await;
        assert_eq!((&pushed["ref"], &pushed["new"]), (&branch.into(), &there.clone().into()));
        let shown = git(&bench.server.dir("web"), &["show", &format!("{there}:add.sh")], "").await;
        assert_eq!(shown, FILES[0].1.replace(" - ", " + ").trim_end());

        // Work that only it has is saved by a guest that is not root.
        let restarted = bench.container().await;
        bench.tool.engine(&["restart", "--time", "0", &restarted]).await;
        // Now the engine's stream is used, and a process that was started inside is not accepted as the host.
        let received = bench.inside("1000:1000", SAYS_HELLO).await;
        assert!(received.contains("nonce"), "output of a process that the engine started arrives: {received}");
        let poses = json!({ "command": ["sh", "-c", SAYS_HELLO] });
        bench.model.then([calls([call("shell_execute", poses)]), says("tried")]);
        let (ended_well, events) = bench.works(&id, "Pose as the host.").await;
        assert!(ended_well, "{events:#?}");
        let seen = events.iter().find_map(|it| it["output"].as_str()).unwrap();
        assert!(!seen.contains("nonce"), "{seen}");
        let write = json!({ "file_path": "left.txt", "content": "kept\n" });
        bench.model.then([calls([call("write_file", write)]), says("left")]);
        assert!(bench.works(&id, "Leave something.").await.0);
        let removed = bench.worktree(&["remove", &id]).await;
        assert_eq!((&removed["removed"], &removed["sandbox_removed"]), (&true.into(), &true.into()), "{removed:#}");
        assert_ne!(removed["saved"], Value::Null, "{removed:#}");
        bench.tool.call(json!({ "operation": "cache_clear" })).await;
        ran("x11", bench.tool.case.engine());
    })
    .await;
}
