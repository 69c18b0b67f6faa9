//! `run_code` and `evaluate_python`.

mod ended;
mod host;
mod image;
mod kernel;

use std::time::Instant;

use serde_json::{Value, json};

use super::{Agent, with_real_agent};
use crate::engines::{WITHOUT_WAITING, lasting_dir, ran};

async fn run(agent: &Agent<'_>, code: &str, more: Value) -> Value {
    let mut call = json!({ "code": code });
    call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    agent.call("run_code", call).await
}

/// An image with all languages and no labels of other tests, created once on each engine.
pub(in crate::tool) const SNIPPETS: &str = "coracle-test-snippets:1";

/// Held during the creation of a snippet image: two persons would take each other's names.
async fn alone(agent: &Agent<'_>) -> std::fs::File {
    let lock = lasting_dir().join(format!("snippets-{}", agent.engine()));
    let lock = std::fs::File::create(lock).unwrap();
    tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.unwrap().unwrap()
}

/// Ensures that every engine has that image.
pub(in crate::tool) async fn make_snippets() {
    let made = format!("coracle-test-made-{}:latest", coracle_types::random_hex::<4>());
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

/// A single container is enough for all snippets, and expected.
#[tokio::test]
async fn r11_snippets_of_every_language_run_in_one_separate_container() {
    with_snippets(false, async |agent| {
        let (first, second) = tokio::join!(
            run(agent, "const x: number = 21; console.log(x * 2); console.error('e')", json!({})),
            run(agent, "console.log(1)", json!({ "language": "javascript" })),
        );
        assert_eq!(
            (&first["success"], &first["output"], &first["stderr"]),
            (&true.into(), &"42\n".into(), &"e\n".into()),
            "{first:#}"
        );
        assert_eq!((&first["exitCode"], &first["mode"]), (&0.into(), &"container".into()));
        assert_eq!(second["output"], "1\n", "{second:#}");
        ran("r11", agent.engine());
        let container = r13_the_record_names_the_container(agent);
        r19_languages_are_four_and_no_output_is_too_long(agent).await;
        r12_an_exception_is_reported_with_the_output(agent).await;
        r01_r09_the_host_is_unreachable_and_the_code_is_unchanged(agent).await;
        r10_a_sessions_files_are_private(agent).await;
        assert_eq!(agent.container("run").unwrap(), container, "everything ran in it");
        ran("r14", agent.engine());
    })
    .await;
}

fn r13_the_record_names_the_container(agent: &Agent<'_>) -> String {
    let container = agent.container("run").expect("it is made by the first call, and written down");
    ran("r13", agent.engine());
    container
}

async fn r19_languages_are_four_and_no_output_is_too_long(agent: &Agent<'_>) {
    for (language, code) in [("python", "print(3*7)"), ("bash", "echo $((3*7))")] {
        assert_eq!(run(agent, code, json!({ "language": language })).await["output"], "21\n");
    }
    assert_eq!(run(agent, "", json!({ "language": "ruby" })).await["code"], "code_required");
    assert_eq!(run(agent, "x", json!({ "language": "ruby" })).await["code"], "language_unknown");
    for size in [(64 << 10) - 1, 64 << 10, (64 << 10) + 1, 1 << 20] {
        let code = format!("process.stdout.write('x'.repeat({size}))");
        let long = run(agent, &code, json!({})).await;
        let reported = (&long["success"], &long["truncated"], &long["outputBytes"]);
        assert_eq!(reported, (&true.into(), &true.into(), &size.into()), "{size}");
        assert!(long["output"].as_str().unwrap().len() <= 32 << 10);
        assert_eq!(long["output_id"], long["outputId"]);
        let page = json!({ "output_id": long["output_id"], "stream": "stdout", "limit": "1m" });
        let whole = agent.value("shell_output", page).await;
        assert_eq!(whole["data"].as_str().unwrap(), "x".repeat(size));
    }
    ran("r19", agent.engine());
}

async fn r12_an_exception_is_reported_with_the_output(agent: &Agent<'_>) {
    let thrown = run(agent, "console.log('before'); throw new Error('why')", json!({})).await;
    assert_eq!(
        (&thrown["success"], &thrown["code"], &thrown["output"]),
        (&false.into(), &"run_failed".into(), &"before\n".into())
    );
    assert!(thrown["error"].as_str().unwrap().contains("why"), "{thrown:#}");
    ran("r12", agent.engine());
}

async fn r01_r09_the_host_is_unreachable_and_the_code_is_unchanged(agent: &Agent<'_>) {
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
}

async fn r10_a_sessions_files_are_private(agent: &Agent<'_>) {
    run(agent, "echo kept >/packages/x", json!({ "language": "bash" })).await;
    assert_eq!(run(agent, "cat /packages/x", json!({ "language": "bash" })).await["output"], "kept\n");
    let other = Agent::new(agent.tool, "agent-2");
    let theirs = run(&other, "cat /packages/x", json!({ "language": "bash" })).await;
    other.end().await;
    assert_eq!(theirs["success"], false, "{theirs:#}");
    ran("r10", agent.engine());
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
        assert!(begun.elapsed() < WITHOUT_WAITING, "{:?}", begun.elapsed());
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
