//! Snippets that a program of the user runs on the host.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::super::{with_agent, with_agent_and_env};
use super::run;
use crate::engines::{WITHOUT_WAITING, ran};

/// Whether the process of a snippet's pid still runs.
fn is_there(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|it| !it.1.starts_with('Z'))
}

#[tokio::test]
async fn r02_a_users_program_runs_snippets_on_the_host_with_the_rules_of_a_container() {
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
        let endless = bash(endless, json!({ "timeout": 0.5 })).await;
        assert!(begun.elapsed() < WITHOUT_WAITING, "{:?}", begun.elapsed());
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
async fn r02_r03_only_two_exact_settings_let_snippets_run_on_the_host() {
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
