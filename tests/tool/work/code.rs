//! `run_code` and `evaluate_python` (workspace.md 4, 6).

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use coracle_runtime::{ContainerId, ImageAct, ImageConfig, ImageRef};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Agent, with_agent, with_agent_and_env, with_real_agent};
use crate::engines::{IMAGE, ran};
use crate::tool::mcp::Client;

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

/// One container is enough for all that is tried here, and it is to be one.
#[tokio::test]
async fn r11_snippets_of_every_language_run_in_one_container_of_their_own() {
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
        r12_what_is_thrown_is_told_with_what_was_printed(agent).await;
        r01_r09_nothing_of_the_host_is_in_reach_and_the_code_stays_as_it_is(agent).await;
        r10_what_a_session_keeps_is_its_own(agent).await;
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
        let told = (&long["success"], &long["truncated"], &long["outputBytes"]);
        assert_eq!(told, (&true.into(), &true.into(), &size.into()), "{size}");
        assert!(long["output"].as_str().unwrap().len() <= 32 << 10);
        let page = json!({ "output_id": long["outputId"], "stream": "stdout", "limit": "1m" });
        let whole = agent.value("shell_output", page).await;
        assert_eq!(whole["data"].as_str().unwrap(), "x".repeat(size));
    }
    ran("r19", agent.engine());
}

async fn r12_what_is_thrown_is_told_with_what_was_printed(agent: &Agent<'_>) {
    let thrown = run(agent, "console.log('before'); throw new Error('why')", json!({})).await;
    assert_eq!(
        (&thrown["success"], &thrown["code"], &thrown["output"]),
        (&false.into(), &"run_failed".into(), &"before\n".into())
    );
    assert!(thrown["error"].as_str().unwrap().contains("why"), "{thrown:#}");
    ran("r12", agent.engine());
}

async fn r01_r09_nothing_of_the_host_is_in_reach_and_the_code_stays_as_it_is(agent: &Agent<'_>) {
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

async fn r10_what_a_session_keeps_is_its_own(agent: &Agent<'_>) {
    run(agent, "echo kept >/packages/x", json!({ "language": "bash" })).await;
    assert_eq!(run(agent, "cat /packages/x", json!({ "language": "bash" })).await["output"], "kept\n");
    let other = Agent::new(agent.tool, "agent-2");
    let theirs = run(&other, "cat /packages/x", json!({ "language": "bash" })).await;
    other.end().await;
    assert_eq!(theirs["success"], false, "{theirs:#}");
    ran("r10", agent.engine());
}

#[tokio::test]
async fn r07_r08_a_snippet_that_takes_too_much_is_ended_with_what_it_printed() {
    with_snippets(false, async |agent| {
        r07_too_much_memory_is_told_with_the_limit(agent).await;
        r08_too_much_time_costs_the_container(agent).await;
    })
    .await;
}

async fn r07_too_much_memory_is_told_with_the_limit(agent: &Agent<'_>) {
    let eaten = run(agent, "x = bytearray(1 << 30); print(len(x))", json!({ "language": "python" })).await;
    assert_eq!(
        (&eaten["success"], &eaten["oom"], &eaten["code"]),
        (&false.into(), &true.into(), &"out_of_memory".into()),
        "{eaten:#}"
    );
    assert_eq!(eaten["error"], "Execution exceeded the memory limit of 512 MiB.");
    ran("r07", agent.engine());
}

async fn r08_too_much_time_costs_the_container(agent: &Agent<'_>) {
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
}

#[tokio::test]
async fn r08_the_container_stays_where_the_person_has_it_so_and_what_ran_is_ended() {
    make_snippets().await;
    let config = format!("[run_code]\nimage = \"{SNIPPETS}\"\ntimeout_action = \"tree\"\n");
    with_real_agent(&config, async |agent| {
        let code = "setsid sleep 600 & echo on; while :; do :; done";
        let endless = run(agent, code, json!({ "language": "bash", "timeout": 500 })).await;
        assert_eq!((&endless["timedOut"], &endless["output"]), (&true.into(), &"on\n".into()), "{endless:#}");
        let container = agent.container("run").unwrap();
        let code = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 600'";
        let next = run(agent, code, json!({ "language": "bash" })).await;
        assert_eq!((&next["output"], &next["containerRestarted"]), (&"0\n".into(), &false.into()), "{next:#}");
        assert_eq!(agent.container("run").unwrap(), container);
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
        r17_a_snippet_whose_container_dies_is_not_run_again(agent).await;
        r18_runs_at_once_do_not_see_each_other(agent).await;
    })
    .await;
}

async fn r17_a_snippet_whose_container_dies_is_not_run_again(agent: &Agent<'_>) {
    let long = run(agent, "echo x >>/packages/count; sleep 30", json!({ "language": "bash" }));
    let kill = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(agent.tool.engine(&["kill", &agent.container("run").unwrap()]).await.0);
    };
    let (lost, ()) = tokio::join!(long, kill);
    assert_eq!((&lost["code"], &lost["details"]["may_have_run"]), (&"workspace_lost".into(), &true.into()), "{lost:#}");
    assert_eq!(run(agent, "cat /packages/count", json!({ "language": "bash" })).await["output"], "x\n");
    ran("r17", agent.engine());
}

async fn r18_runs_at_once_do_not_see_each_other(agent: &Agent<'_>) {
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

/// Whether a process that a snippet told of is there.
fn is_there(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|it| !it.1.starts_with('Z'))
}

#[tokio::test]
async fn r02_a_program_of_the_persons_runs_snippets_on_the_host_with_the_rules_of_a_container() {
    let preload = "[run_code]\npreload = { command = [\"sh\"], languages = [\"bash\"] }\n";
    with_agent(preload, async |agent| {
        let bash = async |code: &str, more: Value| {
            let mut call = json!({ "language": "bash" });
            call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            run(agent, code, call).await
        };
        let code = "cat; echo; env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= | cut -d= -f1 | sort; ls $HOME; ls; echo e >&2";
        let it = bash(code, json!({ "stdin": "in" })).await;
        let names: Vec<&str> = it["output"].as_str().unwrap().lines().collect();
        assert_eq!(names, ["in", "CORACLE_MARK", "HOME", "LANG", "PATH", "main.sh"], "{it:#}");
        assert_eq!((&it["success"], &it["mode"], &it["stderr"]), (&true.into(), &"preload".into(), &"e\n".into()));
        assert_eq!((&it["generation"], &it["containerRestarted"]), (&0.into(), &false.into()));

        let failed = bash("echo before; echo why >&2; exit 3", json!({})).await;
        assert_eq!(
            (&failed["code"], &failed["exitCode"], &failed["error"]),
            (&"run_failed".into(), &3.into(), &"why\n".into()),
            "{failed:#}"
        );
        let killed = bash("kill -9 $$", json!({})).await;
        assert_eq!((&killed["signal"], &killed["exitCode"]), (&9.into(), &137.into()), "{killed:#}");

        let begun = Instant::now();
        let endless = "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & while :; do sleep 1; done";
        let endless = bash(endless, json!({ "timeout": 500 })).await;
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        assert_eq!(
            (&endless["timedOut"], &endless["exitCode"], &endless["code"]),
            (&true.into(), &124.into(), &"timed_out".into()),
            "{endless:#}"
        );
        assert_eq!(endless["error"], "Execution timed out after 500 ms.");
        assert!(!is_there(endless["output"].as_str().unwrap()), "its tree is ended: {endless:#}");
        let left = bash("setsid sleep 600 >/dev/null 2>&1 & echo $!; echo $HOME", json!({})).await;
        let mut lines = left["output"].as_str().unwrap().lines();
        let pid = lines.next().unwrap();
        assert!(
            !is_there(pid),
            "what it left is ended: {left:#} {:?}",
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
        );
        assert!(!Path::new(lines.next().unwrap()).exists(), "so is its directory");

        let flood = bash("head -c 20000000 /dev/zero | tr '\\0' x", json!({})).await;
        assert_eq!(
            (&flood["outputBytes"], &flood["truncated"], &flood["outputId"]),
            (&20_000_000.into(), &true.into(), &Value::Null)
        );
        assert!(flood["output"].as_str().unwrap().len() <= 32 << 10);

        let other = run(agent, "1", json!({ "language": "python" })).await;
        let unknown = run(agent, "1", json!({ "language": "ruby" })).await;
        assert_eq!(
            (&other["code"], &unknown["code"]),
            (&"language_unavailable".into(), &"language_unknown".into()),
            "{other:#}"
        );
        for it in [&failed, &killed, &endless, &left, &flood, &other, &unknown] {
            assert_eq!(
                (&it["warnings"][0]["code"], &it["mode"]),
                (&"preload_not_isolated".into(), &"preload".into()),
                "{it:#}"
            );
        }
        assert_eq!(agent.container("run"), None, "no container was made");
        ran("r02", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn r02_r03_what_runs_snippets_is_decided_by_two_words_and_never_by_a_mistake() {
    let preload = "preload = { command = [\"no-such-program\"], languages = [\"bash\"] }\n";
    for (mode, preload, code) in
        [("preload", "", "execution_mode_unavailable"), ("docker", preload, "execution_mode_invalid")]
    {
        with_agent_and_env(&format!("[run_code]\n{preload}"), ("EXECUTION_MODE", mode), async |agent| {
            let it = run(agent, "echo 1", json!({ "language": "bash" })).await;
            assert_eq!((&it["code"], &it["exitCode"]), (&code.into(), &Value::Null), "{mode}: {it:#}");
            assert_eq!(agent.container("run"), None, "{mode}");
            ran("r03", agent.engine());
        })
        .await;
    }
}

/// A command of the person's with `--json`: its object.
fn object(output: &Output) -> Value {
    let told = || String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{err}: {}", told()))
}

#[tokio::test]
async fn r04_an_image_is_the_one_that_its_name_had_at_first_until_a_person_trusts_another() {
    let name = format!("coracle-test-pin-{}", coracle_runtime::random_hex::<4>());
    with_real_agent(&format!("[run_code]\nimage = \"{name}\"\n"), async |agent| {
        let runtime = &agent.tool.case.runtime;
        let image = async |act| runtime.image(act).await.unwrap().into_iter().next().map(|it| it.id);
        let tag = ImageRef::parse(format!("{name}:latest")).unwrap();
        let first = image(ImageAct::Find(vec![ImageRef::parse(IMAGE).unwrap()])).await.unwrap();
        image(ImageAct::Tag { image: first.clone(), tag: tag.clone() }).await;
        let sh = async || run(agent, "1", json!({ "language": "bash" })).await;
        let begun = Instant::now();
        // It has no bash, and was used all the same.
        assert_eq!(sh().await["code"], "language_unavailable");
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing was built: {:?}", begun.elapsed());
        let container = agent.container("run").unwrap();

        let commit = ImageAct::Commit {
            container: ContainerId::parse(&container).unwrap(),
            tag: Some(tag.clone()),
            labels: vec![("changed".into(), "1".into())],
            config: ImageConfig::default(),
        };
        let second = image(commit).await.unwrap();
        assert_eq!(sh().await["code"], "language_unavailable", "what runs goes on");
        assert!(agent.tool.engine(&["rm", "-f", &container]).await.0);
        let changed = sh().await;
        assert_eq!((&changed["code"], &changed["exitCode"]), (&"image_changed".into(), &Value::Null), "{changed:#}");
        assert!(changed["hint"].as_str().unwrap().contains(&format!("coracle images trust {name}")), "{changed:#}");
        assert_eq!(sh().await["code"], "image_changed", "it is no matter of trying again");

        let trust = async |name: &str| object(&agent.tool.run(["images", "trust", name, "--json"], b"").await);
        assert_eq!(trust("busybox").await["code"], "not_found");
        let trusted = trust(&name).await;
        assert_eq!(
            (&trusted["success"], &trusted["id"], &trusted["before"]),
            (&true.into(), &second.as_str().into(), &first.as_str().into()),
            "{trusted:#}"
        );
        assert_eq!(sh().await["code"], "language_unavailable");
        agent.end().await;
        agent.tool.engine(&["rmi", "-f", &format!("{name}:latest")]).await;
        image(ImageAct::Remove(second)).await;
        ran("r04", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn r10_packages_that_the_person_adds_are_there_for_every_session_and_none_can_change_them() {
    with_snippets(false, async |agent| {
        let packages = async |words: &[&str]| {
            let begin = ["run", "packages", words[0], "--json"];
            object(&agent.tool.run(begin.iter().chain(&words[1..]), b"").await)
        };
        let before = run(agent, "import six", json!({ "language": "python" })).await;
        assert_eq!(before["code"], "run_failed", "{before:#}");
        assert_eq!(packages(&["add", "python", "--", "-r"]).await["code"], "invalid_input");
        let python = packages(&["add", "python", "six==1.17.0"]).await;
        assert_eq!((&python["success"], &python["added"][0]["name"]), (&true.into(), &"six".into()), "{python:#}");
        let bun = packages(&["add", "typescript", "is-number@7.0.0"]).await;
        assert_eq!((&bun["success"], bun["packages"].as_array().unwrap().len()), (&true.into(), 2), "{bun:#}");

        let it = run(agent, "import six; print(six.__version__)", json!({ "language": "python" })).await;
        assert_eq!((&it["output"], &it["containerRestarted"]), (&"1.17.0\n".into(), &true.into()), "{it:#}");
        let news = &it["warnings"][0]["details"];
        assert_eq!((&news["reason"], &news["kept"]), (&"spec_changed".into(), &json!(["/packages"])), "{it:#}");
        let code = "import isNumber from 'is-number'; console.log(isNumber('7'))";
        let it = run(agent, code, json!({})).await;
        assert_eq!((&it["output"], &it["containerRestarted"]), (&"true\n".into(), &false.into()), "{it:#}");
        let probe = "touch /packages-base/x 2>/dev/null && echo wrote; rm -r /packages-base/python/six.py 2>/dev/null && echo removed; \
                     mkdir -p /packages/python && echo 'x = 1' >/packages/python/six.py; echo done";
        assert_eq!(run(agent, probe, json!({ "language": "bash" })).await["output"], "done\n");
        let other = Agent::new(agent.tool, "agent-2");
        let theirs = run(&other, "import six; print(six.__version__)", json!({ "language": "python" })).await;
        other.end().await;
        assert_eq!(theirs["output"], "1.17.0\n", "{theirs:#}");
        ran("r10", agent.engine());

        let failed = packages(&["add", "python", "six==0.0.0.1"]).await;
        assert_eq!(failed["code"], "packages_failed", "{failed:#}");
        assert!(failed["details"]["log"].as_str().unwrap().contains("six"), "{failed:#}");
        let pruned = agent.tool.call(json!({ "operation": "prune", "dry_run": false, "kinds": ["volumes"] })).await;
        let listed = packages(&["list"]).await;
        assert_eq!(listed["count"], 2, "{listed:#}");
        let volume = listed["packages"][0]["volume"].as_str().unwrap().to_owned();
        assert!(pruned["kept"].to_string().contains(&volume) && !pruned["items"].to_string().contains(&volume), "{pruned:#}");
        assert_eq!(run(agent, code, json!({})).await["output"], "true\n", "what failed changed nothing");

        let cleared = packages(&["clear"]).await;
        assert_eq!((&cleared["success"], cleared["removed"].as_array().unwrap().len()), (&true.into(), 2), "{cleared:#}");
        let gone = run(agent, code, json!({})).await;
        assert_eq!((&gone["success"], &gone["containerRestarted"]), (&false.into(), &true.into()), "{gone:#}");
        agent.tool.call(json!({ "operation": "prune", "dry_run": false, "kinds": ["volumes"] })).await;
        assert!(!agent.tool.engine(&["volume", "inspect", &volume]).await.0, "its volume is gone");
    })
    .await;
}

#[tokio::test]
async fn r15_the_container_of_snippets_ends_with_the_client_and_with_the_server() {
    with_real_agent(&format!("[run_code]\nimage = \"{IMAGE}\"\n"), async |agent| {
        let tool = agent.tool;
        for signal in [None, Some(Signal::TERM), Some(Signal::HUP)] {
            let session = format!("r15-{}", coracle_runtime::random_hex::<4>());
            let mut client =
                Client::start(tool.command(["--session", &session, "mcp"]).stderr(std::process::Stdio::null())).await;
            let params = json!({ "name": "run_code", "arguments": { "code": "1", "language": "bash" } });
            client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })).await;
            let answer = client.answer().await["result"]["structuredContent"].take();
            assert_eq!(
                (&answer["code"], &answer["generation"]),
                (&"language_unavailable".into(), &1.into()),
                "{answer:#}"
            );
            let file = tool.state().join("sessions").join(&session).join("run.json");
            let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            let (container, volume) = (record["container_id"].as_str().unwrap(), record["volume"].as_str().unwrap());
            assert!(tool.engine(&["container", "inspect", container]).await.0);
            let begun = Instant::now();
            match signal.zip(client.child.id().and_then(|it| Pid::from_raw(it.cast_signed()))) {
                Some((signal, pid)) => kill_process(pid, signal).unwrap(),
                None => drop(client.stdin),
            }
            client.child.wait().await.unwrap();
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
            assert!(!tool.engine(&["container", "inspect", container]).await.0, "{signal:?}: the container stays");
            assert!(!tool.engine(&["volume", "inspect", volume]).await.0, "{signal:?}: the volume stays");
            assert!(!file.exists(), "{signal:?}: the record stays");
        }
        ran("r15", agent.engine());
    })
    .await;
}
