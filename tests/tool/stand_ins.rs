//! Images that are made where no registry answers behave like what they stand for. Python's is built in
//! `cache.rs`, and a workspace's in `work/network.rs`.

use serde_json::{Value, json};

use super::person::step;
use super::{Tool, with_rootful_engine};

/// A container of a purpose for a user other than root.
async fn purpose(tool: &Tool<'_>, purpose: &str) -> (String, Value) {
    let answer = tool.made(json!({ "image": null, "purpose": purpose, "user": "1000" })).await;
    assert_eq!(answer["provisioning_ok"], true, "{answer:#}");
    (answer["container"].as_str().unwrap().to_owned(), answer)
}

/// Checks the warning, and that the report says that the image replaces another.
pub(super) fn assert_names(answer: &Value, words: &str) {
    let warnings = answer["warnings"].as_array().unwrap();
    let warning = warnings.iter().find(|it| it["code"] == "bootstrap_image");
    let warning = warning.unwrap_or_else(|| panic!("no warning: {answer:#}"))["message"].as_str().unwrap();
    let report = step(answer, "image")["detail"].as_str().unwrap();
    assert!(
        warning.contains(words) && report.contains(" on Debian 1") && report.contains("(stand-in for "),
        "{words}\n{warning}\n{report}"
    );
}

#[tokio::test]
async fn node_has_the_requested_release_and_installs_programs() {
    if !coracle_skips::may_download() {
        return;
    }
    with_rootful_engine("", async |tool| {
        let (name, answer) = purpose(tool, "node").await;
        let version = tool.prints(&name, "node -v").await;
        assert!(version.starts_with("v20."), "{version}");
        assert_names(&answer, &format!("node {} on Debian", &version[1..]));
        let install = "npm install --global --silent --no-fund --no-update-notifier semver && semver 1.2.3 && command -v semver";
        assert_eq!(tool.prints(&name, install).await, "1.2.3\n/home/agent/.local/bin/semver", "a user's own");
        let root = json!({ "operation": "exec", "container": name, "as_root": true, "command": format!("{install}; npx --version") });
        let root = tool.call(root).await;
        assert_eq!(root["exit_code"], 0, "{root:#}");
        assert!(root["stdout"].as_str().unwrap().starts_with("1.2.3\n/usr/local/bin/semver\n"), "for everybody: {root:#}");
    })
    .await;
}

#[tokio::test]
async fn go_has_the_requested_release_and_builds() {
    if !coracle_skips::may_download() {
        return;
    }
    with_rootful_engine("", async |tool| {
        let (name, answer) = purpose(tool, "go").await;
        let version = tool.prints(&name, "go env GOVERSION").await;
        assert!(version.starts_with("go1.22."), "{version}");
        assert_names(&answer, &format!("go {} on Debian", &version[2..]));
        let program = "package main\n\n// int two() { return 2; }\nimport \"C\"\n\nfunc main() { println(C.two()) }\n";
        let build = format!(
            "mkdir -p /tmp/two && cd /tmp/two && printf '%s' '{program}' >main.go && \
            go mod init example.org/two 2>/dev/null && go build && ./two 2>&1"
        );
        assert_eq!(tool.prints(&name, &build).await, "2", "a package that is partly in C");
    })
    .await;
}

#[tokio::test]
async fn rust_builds_a_crate_and_says_whose_it_is() {
    if !coracle_skips::may_download() {
        return;
    }
    with_rootful_engine("", async |tool| {
        let (name, answer) = purpose(tool, "rust").await;
        let version = tool.prints(&name, "rustc --version | cut -d ' ' -f 2").await;
        assert_names(&answer, &format!("expected rust 1 (rust:1-slim), this is rust {version} of Debian"));
        let build =
            "cd /tmp && cargo new --quiet --vcs none small && cd small && cargo build --quiet && target/debug/small";
        assert_eq!(tool.prints(&name, build).await, "Hello, world!");
    })
    .await;
}

#[tokio::test]
async fn bun_runs_typescript_and_installs_packages() {
    if !coracle_skips::may_download() {
        return;
    }
    with_rootful_engine("", async |tool| {
        let (name, answer) = purpose(tool, "bun").await;
        let version = tool.prints(&name, "bun --version").await;
        assert_names(&answer, &format!("bun {version} on Debian"));
        let script = "import semver from 'semver'; const it: string = '1.2.3'; console.log(semver.inc(it, 'patch'))";
        let run = format!(
            "mkdir -p /tmp/app && cd /tmp/app && bun add semver >/dev/null 2>&1 && echo \"{script}\" >a.ts && bun a.ts"
        );
        assert_eq!(tool.prints(&name, &run).await, "1.2.4");
    })
    .await;
}
