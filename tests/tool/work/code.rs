//! `run_code` and `evaluate_python` (workspace.md 4, 6).

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Agent, with_real_agent};
use crate::engines::ran;

async fn run(agent: &Agent<'_>, code: &str, more: Value) -> Value {
    let mut call = json!({ "code": code });
    call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    agent.call("run_code", call).await
}

/// An image with all languages and no labels of anybody's, made once on each engine.
pub(in crate::tool) const SNIPPETS: &str = "coracle-test-snippets:1";

/// Held by whoever makes an image of snippets: those of two persons take each other's names.
async fn alone(agent: &Agent<'_>) -> std::fs::File {
    let lock = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("snippets-{}", agent.engine()));
    let lock = std::fs::File::create(lock).unwrap();
    tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.unwrap().unwrap()
}

/// Sees to it that every engine has that image.
pub(in crate::tool) async fn make_snippets() {
    let made = format!("coracle-test-made-{}:latest", coracle_runtime::random_hex::<4>());
    with_real_agent(&format!("[run_code]\nimage = \"{made}\"\n"), async |agent| {
        let lock = alone(agent).await;
        if !agent.tool.engine(&["image", "inspect", SNIPPETS]).await.0 {
            let first = run(agent, "console.log(1)", json!({})).await;
            assert_eq!(first["output"], "1\n", "{first:#}");
            let tar = agent.tool.temp().join("snippets.tar");
            let (tar, container) = (tar.to_str().unwrap(), agent.container("run").unwrap());
            assert!(agent.tool.engine(&["export", "-o", tar, &container]).await.0);
            assert!(agent.tool.engine(&["import", tar, SNIPPETS]).await.0);
            std::fs::remove_file(tar).unwrap();
            agent.end().await;
            agent.tool.engine(&["rmi", "-f", &made]).await;
        }
        drop(lock);
    })
    .await;
}

/// Runs a check whose snippets, and with `also_workspace` whose files, are in containers of that image.
async fn with_snippets(also_workspace: bool, check: impl AsyncFn(&Agent<'_>)) {
    make_snippets().await;
    let workspace = if also_workspace { format!("[workspace]\nimage = \"{SNIPPETS}\"\n") } else { String::new() };
    with_real_agent(&format!("{workspace}[run_code]\nimage = \"{SNIPPETS}\"\n"), check).await;
}

#[tokio::test]
async fn r05_the_image_of_snippets_is_made_once_by_whoever_is_first() {
    let made = format!("coracle-test-made-{}:latest", coracle_runtime::random_hex::<4>());
    with_real_agent(&format!("[run_code]\nimage = \"{made}\"\n"), async |agent| {
        let _alone = alone(agent).await;
        let other = Agent::new(agent.tool, "agent-2");
        let (first, second) = tokio::join!(
            run(agent, "console.log(Bun.version)", json!({})),
            run(&other, "console.log(1)", json!({ "language": "javascript" })),
        );
        assert_eq!((&first["success"], &second["output"]), (&true.into(), &"1\n".into()), "{first:#} {second:#}");
        assert_eq!(first["output"], "1.4.5\n");
        let image = async |agent: &Agent<'_>| {
            let container = agent.container("run").unwrap();
            agent.tool.engine(&["container", "inspect", "--format", "{{.Image}}", &container]).await.1
        };
        assert_eq!(image(agent).await, image(&other).await, "one build");
        other.end().await;
        agent.end().await;
        agent.tool.engine(&["rmi", "-f", &made]).await;
        ran("r05", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn r11_snippets_of_every_language_run_in_one_container_of_their_own() {
    with_snippets(false, async |agent| {
        let (first, second) = tokio::join!(
            run(agent, "const x: number = 21; console.log(x * 2); console.error('e')", json!({})),
            run(agent, "console.log(1)", json!({ "language": "javascript" })),
        );
        assert_eq!((&first["success"], &first["output"], &first["stderr"]), (&true.into(), &"42\n".into(), &"e\n".into()), "{first:#}");
        assert_eq!((&first["exitCode"], &first["mode"]), (&0.into(), &"container".into()));
        assert_eq!(second["output"], "1\n", "{second:#}");
        ran("r04", agent.engine());
        ran("r11", agent.engine());
        let container = agent.container("run").unwrap();
        ran("r13", agent.engine());
        for (language, code) in [("python", "print(3*7)"), ("bash", "echo $((3*7))")] {
            assert_eq!(run(agent, code, json!({ "language": language })).await["output"], "21\n");
        }
        assert_eq!(run(agent, "", json!({ "language": "ruby" })).await["code"], "code_required");
        assert_eq!(run(agent, "x", json!({ "language": "ruby" })).await["code"], "language_unknown");
        ran("r19", agent.engine());

        let thrown = run(agent, "console.log('before'); throw new Error('why')", json!({})).await;
        assert_eq!((&thrown["success"], &thrown["code"], &thrown["output"]), (&false.into(), &"run_failed".into(), &"before\n".into()));
        assert!(thrown["error"].as_str().unwrap().contains("why"), "{thrown:#}");
        ran("r12", agent.engine());

        let probe = "cat /proc/self/status | grep -E '^(Uid|CapEff|NoNewPrivs)'; ls /; ls /home; head -c 3 /code/main.sh; echo; \
                     for it in 'mv main.sh x' 'chmod 777 main.sh' 'rm main.sh' 'touch /code/y' 'touch /etc/y'; do $it 2>/dev/null && echo \"$it worked\"; done; \
                     (exec 3<>/dev/tcp/1.1.1.1/80) 2>/dev/null && echo network; echo done";
        let probed = run(agent, probe, json!({ "language": "bash" })).await;
        let output = probed["output"].as_str().unwrap();
        assert!(output.contains("10002") && output.contains("CapEff:\t0000000000000000"), "{output}");
        assert!(output.contains("NoNewPrivs:\t1") && output.ends_with("done\n"), "{output}");
        assert!(!output.contains("worked") && !output.contains("network"), "{output}");
        ran("r01", agent.engine());
        ran("r09", agent.engine());

        run(agent, "echo kept >/packages/x", json!({ "language": "bash" })).await;
        assert_eq!(run(agent, "cat /packages/x", json!({ "language": "bash" })).await["output"], "kept\n");
        let other = Agent::new(agent.tool, "agent-2");
        let theirs = run(&other, "cat /packages/x", json!({ "language": "bash" })).await;
        other.end().await;
        assert_eq!(theirs["success"], false, "{theirs:#}");
        ran("r10", agent.engine());
        assert_eq!(agent.container("run").unwrap(), container, "everything ran in it");
        ran("r14", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn r07_r08_a_snippet_that_takes_too_much_is_ended_with_what_it_printed() {
    with_snippets(false, async |agent| {
        let eaten = run(agent, "x = bytearray(1 << 30); print(len(x))", json!({ "language": "python" })).await;
        assert_eq!(
            (&eaten["success"], &eaten["oom"], &eaten["code"]),
            (&false.into(), &true.into(), &"out_of_memory".into()),
            "{eaten:#}"
        );
        assert_eq!(eaten["error"], "Execution exceeded the memory limit of 512 MiB.");
        ran("r07", agent.engine());
        let before = agent.container("run").unwrap();
        let begun = Instant::now();
        let endless = run(agent, "console.log('on'); while (true) {}", json!({ "timeout": 1000 })).await;
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(
            (&endless["timedOut"], &endless["output"], &endless["exitCode"]),
            (&true.into(), &"on\n".into(), &124.into()),
            "{endless:#}"
        );
        assert_eq!(endless["error"], "Execution timed out after 1000 ms.");
        assert!(!agent.tool.engine(&["inspect", &before]).await.0, "its container is gone");
        let next = run(agent, "console.log(2)", json!({})).await;
        assert_eq!(
            (&next["output"], &next["containerRestarted"], &next["generation"]),
            (&"2\n".into(), &true.into(), &2.into()),
            "{next:#}"
        );
        ran("r08", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn r16_r17_r18_a_container_that_went_is_replaced_and_nothing_runs_twice() {
    with_snippets(false, async |agent| {
        run(agent, "console.log(0)", json!({})).await;
        agent.tool.engine(&["rm", "-f", &agent.container("run").unwrap()]).await;
        let next = run(agent, "console.log(1)", json!({})).await;
        assert_eq!((&next["output"], &next["generation"]), (&"1\n".into(), &2.into()), "{next:#}");
        assert_eq!(next["warnings"][0]["details"]["reason"], "vanished", "{next:#}");
        ran("r16", agent.engine());

        let long = run(agent, "echo x >>/packages/count; sleep 30", json!({ "language": "bash" }));
        let kill = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(agent.tool.engine(&["kill", &agent.container("run").unwrap()]).await.0);
        };
        let (lost, ()) = tokio::join!(long, kill);
        assert_eq!(
            (&lost["code"], &lost["details"]["may_have_run"]),
            (&"workspace_lost".into(), &true.into()),
            "{lost:#}"
        );
        assert_eq!(run(agent, "cat /packages/count", json!({ "language": "bash" })).await["output"], "x\n");
        ran("r17", agent.engine());

        let nonces: Vec<String> = (0..20).map(|it| format!("nonce-{it}")).collect();
        let codes: Vec<String> = nonces.iter().map(|it| format!("echo {it}; sleep 600 & disown")).collect();
        let all =
            futures_util::future::join_all(codes.iter().map(|it| run(agent, it, json!({ "language": "bash" })))).await;
        for (nonce, ran) in nonces.iter().zip(&all) {
            assert_eq!(ran["output"], format!("{nonce}\n"), "{ran:#}");
        }
        let left = run(
            agent,
            "ps ax 2>/dev/null | grep -c '[s]leep 600'; ls /proc | grep -cE '^[0-9]+$'",
            json!({ "language": "bash" }),
        )
        .await;
        assert!(left["output"].as_str().unwrap().starts_with('0'), "{left:#}");
        ran("r18", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w38_scripts_are_evaluated_for_five_seconds() {
    with_snippets(true, async |agent| {
        let good = agent.call("evaluate_python", json!({ "code": "print(3*7)" })).await;
        assert_eq!(
            (&good["message"], &good["value"]["stdout"]),
            (&"Evaluation succeeded (exit code 0).".into(), &"21\n".into()),
            "{good:#}"
        );
        let failed = agent.call("evaluate_python", json!({ "code": "raise SystemExit(3)" })).await;
        assert_eq!(
            (&failed["code"], &failed["message"]),
            (&"evaluation_failed".into(), &"Evaluation failed (exit code 3).".into())
        );
        let begun = Instant::now();
        let endless =
            agent.call("evaluate_python", json!({ "code": "print('on', flush=True)\nwhile True: pass" })).await;
        assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
        assert_eq!(
            (&endless["code"], &endless["message"]),
            (&"timed_out".into(), &"Evaluation timed out.".into()),
            "{endless:#}"
        );
        assert_eq!(endless["value"]["stdout"], "on\n");
        assert!(endless["value"]["stderr"].as_str().unwrap().ends_with("Execution timed out.\n"));
        assert_eq!(agent.code("evaluate_python", json!({ "code": "1", "globals": { "a": 1 } })).await, "not_supported");
        assert_eq!(agent.code("evaluate_python", json!({ "code": "\u{7}" })).await, "invalid_code");
        ran("w38", agent.engine());
    })
    .await;
}
