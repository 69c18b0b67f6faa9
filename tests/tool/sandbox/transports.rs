//! Each way to the proxy gives the same: models, git and names outside (X59).

use serde_json::json;

use super::{Bench, with_bench};
use crate::engines::{git, ran};
use crate::servers::model::{call, calls, says};

/// What an agent gets done by the proxy, and what of it is seen inside.
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
    // What the container sees of the host for it.
    let seen = bench.inside("0:0", "ls /.coracle/proxy 2>/dev/null").await;
    let listens = std::fs::read_to_string("/proc/net/unix").unwrap();
    let state = bench.tool.state().display().to_string();
    let listened = listens.lines().any(|it| it.contains(&state) && it.ends_with("api.sock"));
    assert!(!listened, "{transport}: nobody listens when nobody uses the sandbox");
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
