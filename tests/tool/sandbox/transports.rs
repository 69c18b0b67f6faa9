//! Models, git and host names work over each way to the proxy (X59).

use serde_json::json;

use super::{Bench, with_bench};
use crate::engines::{Lack, git, ran};
use crate::servers::model::{call, calls, says};

/// An agent's requests through the proxy, and their results.
const TRIES: &str = "git fetch -q origin; echo fetched $?; \
    git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x; \
    git push -q origin HEAD:refs/heads/coracle/BRANCH 2>&1; echo pushed $?; \
    git push -q origin HEAD:refs/heads/main >/dev/null 2>&1; echo refused $?; \
    wget -q -O- 'http://127.0.0.1:PORT/web.git/info/refs?service=git-upload-pack' | grep -c refs/heads/main; \
    wget -q -O- http://127.0.0.1:9/ 2>&1 | grep -c 403; ls /sys/class/net";

async fn tried(bench: &Bench<'_>, transport: &str) -> String {
    let port = bench.server.port();
    let network = format!(
        "[sandbox]\nnetwork = \"proxy\"\n\n[sandbox.egress]\nallow = [\"ip:127.0.0.1:{port}\"]\n\n\
         [proxy]\ntransport = \"{transport}\"\n\n[worker]"
    );
    bench.configures("[worker]", &network);
    let id = bench.id(transport);
    bench.created(&id).await;
    let tries = TRIES.replace("BRANCH", &id).replace("PORT", &port.to_string());
    bench.model.then([calls([call("shell_execute", json!({ "command": ["sh", "-c", tries] }))]), says("tried")]);
    let (ended_well, events) = bench.works(&id, "Try it.").await;
    assert!(ended_well, "{transport}: {events:#?}");
    let refs = git(&bench.server.dir("web"), &["for-each-ref", "--format=%(refname)"], "").await;
    assert!(refs.contains(&format!("refs/heads/coracle/{id}")), "{transport}: {refs}");
    // The parts of the host that the container sees for it.
    let seen = bench.inside("0:0", "ls /.coracle/proxy 2>/dev/null").await;
    let listens = std::fs::read_to_string("/proc/net/unix").unwrap();
    let state = bench.tool.state().display().to_string();
    let listened = listens.lines().any(|it| it.contains(&state) && it.ends_with("api.sock"));
    assert!(!listened, "{transport}: nothing listens while the sandbox is unused");
    assert_eq!(seen, "", "{transport}: no socket is left");
    let at = bench.inside("0:0", "ls -d /.coracle/proxy 2>/dev/null").await;
    assert_eq!(at.is_empty(), transport == "link", "{transport}: {at}");
    bench.worktree(&["remove", &id]).await;
    bench.configures(&network, "[worker]");
    let output = events[2]["output"].as_str().unwrap();
    output.split_once("stdout:").expect("it printed something").1.to_owned()
}

#[tokio::test]
async fn x59_models_git_and_names_are_the_same_by_each_transport() {
    with_bench("", async |bench| {
        let by_sockets = tried(bench, "unix").await;
        for expected in ["fetched 0", "pushed 0", "refused 1", "\n1\n", "lo"] {
            assert!(by_sockets.contains(expected), "{expected}: {by_sockets}");
        }
        assert_eq!(tried(bench, "link").await, by_sockets);
        ran("x59", bench.tool.case.engine());
    })
    .await;
}

/// Networks of sandboxes of this state directory.
async fn networks(bench: &Bench<'_>) -> Vec<String> {
    let listed = bench.tool.engine(&["network", "ls", "--format", "{{.Name}}"]).await.1;
    let keys = std::fs::read_dir(bench.tool.state().join("sandboxes")).into_iter().flatten().flatten();
    let keys: Vec<String> = keys.map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    listed.lines().filter(|it| keys.iter().any(|key| it.contains(key.as_str()))).map(str::to_owned).collect()
}

#[tokio::test]
async fn x59_x08_no_sandbox_starts_on_a_network_that_reaches_more_than_the_proxy() {
    with_bench("", async |bench| {
        if bench.tool.case.lacks(Lack::NamedNetworks) {
            return;
        }
        bench.configures("[worker]", "[proxy]\ntransport = \"tcp\"\n\n[worker]");
        for _ in 0..2 {
            let refused = bench.tries(&["create", &bench.url(), "--workflow", "walled"]).await;
            assert_eq!(refused["code"], "egress_not_enforced", "{refused:#}");
            let hint = refused["hint"].as_str().unwrap_or_default();
            assert!(hint.contains("link") && hint.contains("unix"), "{refused:#}");
            assert_eq!((bench.sandboxes().await, networks(bench).await), (vec![], vec![]), "nothing is left");
        }
        // Without network isolation it does the same as the others.
        bench.configures("[proxy]", "[sandbox]\nnetwork = \"bridge\"\n\n[proxy]");
        let id = bench.id("netted");
        bench.created(&id).await;
        assert_eq!(networks(bench).await.len(), 1);
        let tries = TRIES.split("wget").next().unwrap().replace("BRANCH", &id);
        bench.model.then([calls([call("shell_execute", json!({ "command": ["sh", "-c", tries] }))]), says("tried")]);
        let (ended_well, events) = bench.works(&id, "Try it.").await;
        assert!(ended_well, "{events:#?}");
        let output = events[2]["output"].as_str().unwrap();
        for expected in ["fetched 0", "pushed 0", "refused 1"] {
            assert!(output.contains(expected), "{expected}: {output}");
        }
        // The next process listens where the container expects it.
        let before = bench.container().await;
        let again = bench.created(&id).await;
        assert_eq!((&again["created"], bench.container().await), (&json!(false), before), "{again:#}");
        assert_eq!(bench.inside("0:0", "ls -d /.coracle/proxy 2>/dev/null").await, "");
        bench.worktree(&["remove", &id]).await;
        assert_eq!(networks(bench).await, [""; 0], "it is gone with its container");
        ran("x59", bench.tool.case.engine());
        ran("x08", bench.tool.case.engine());
    })
    .await;
}
