//! `try-repo`: detects the kind of a repository without running anything of it on the host.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::debian::{DEBIAN, debian};
use super::person::step;
use super::{Tool, with_rootful_engine, with_rootful_tool};
use crate::engines::{GitServer, Lack, Manner, git, ran};

/// Profiles without a recipe, since the test is about the repository.
fn config(image: &str) -> String {
    let profile = |name: &str| format!("[profiles.{name}]\nimage = \"{image}\"\npackages = []\nsetup = []\n");
    let profiles: String = ["general", "rust", "python", "node", "go", "bun"].map(profile).concat();
    format!("[images]\ngit_allow_private = true\n{profiles}")
}

/// As [`with_rootful_engine`], with those profiles on the test Debian.
async fn with_profiles(check: impl AsyncFn(&Tool<'_>)) {
    with_rootful_engine("", async |tool| assert_eq!(debian(tool.case).await, DEBIAN)).await;
    with_rootful_engine(&config(DEBIAN), check).await;
}

async fn tried(tool: &Tool<'_>, more: Value) -> Value {
    let mut call = json!({ "image": null, "mount_cwd": null, "purpose": "try-repo" });
    super::merge(call.as_object_mut().unwrap(), more);
    tool.create(call).await
}

/// Every file below a directory, with its bytes and its time.
fn snapshot(dir: &Path) -> BTreeMap<String, (Vec<u8>, std::time::SystemTime)> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let (path, meta) = (entry.as_ref().unwrap().path(), entry.unwrap().metadata().unwrap());
        let bytes = if meta.is_file() { std::fs::read(&path).unwrap() } else { vec![] };
        all.insert(path.display().to_string(), (bytes, meta.modified().unwrap()));
        if meta.is_dir() {
            all.extend(snapshot(&path));
        }
    }
    all
}

/// A git configuration of the user that would run programs for any repository, and redirect git.
fn hostile_person(tool: &Tool<'_>) {
    let marker = tool.home().join("started").display().to_string();
    let template = tool.home().join("template/hooks");
    std::fs::create_dir_all(&template).unwrap();
    for hook in ["post-checkout", "reference-transaction", "post-merge"] {
        super::person::program(&template.join(hook), &format!("touch {marker}"));
    }
    tool.at_home(
        ".gitconfig",
        &format!(
            "[init]\n\ttemplateDir = {0}\n[core]\n\thooksPath = {0}/hooks\n\tfsmonitor = touch {1}\n\tsshCommand = touch {1}\n\
             [filter \"evil\"]\n\tsmudge = touch {1}\n\tprocess = touch {1}\n\trequired = true\n\
             [credential]\n\thelper = !touch {1}\n[protocol]\n\tallow = always\n\
             [url \"ext::touch {1} \"]\n\tinsteadOf = http\n",
            tool.home().join("template").display(),
            marker
        ),
    );
}

#[tokio::test]
async fn s54_a_hostile_repository_runs_nothing_here_and_is_known_by_its_marker() {
    let server = GitServer::start();
    let files = [
        ("Cargo.toml", "[package]\n"),
        ("Makefile", "all:\n\tcat a.evil > made; exit 3\n"),
        ("a.evil", "content\n"),
        (".gitattributes", "* filter=evil\n"),
        (".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = ext::sh -c id\n\tupdate = !touch started\n"),
        (".lfsconfig", "[lfs]\n\turl = file:///etc\n"),
        ("hooks/post-checkout", "#!/bin/sh\ntouch started\n"),
        ("--upload-pack=touch started", ""),
        ("package.json", "{}"),
    ];
    server.repository("evil", &files).await;
    git(&server.dir("evil"), &["config", "core.fsmonitor", "touch started"], "").await;
    with_profiles(async |tool| {
        if tool.case.lacks(Lack::HostAddress) {
            return;
        }
        hostile_person(tool);
        let answer = tried(tool, json!({ "repo_url": server.url("evil") })).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        assert!(!tool.home().join("started").exists(), "a program was started on the host");
        assert_eq!(
            (&answer["purpose"], &answer["requested_purpose"]),
            (&"rust".into(), &"try-repo".into()),
            "{answer:#}"
        );
        assert_eq!((&answer["repo_path"], &answer["workdir"]), (&"/workspace/repo".into(), &"/workspace/repo".into()));
        let items = step(&answer, "setup_commands")["items"].as_array().unwrap().clone();
        let seen: Vec<_> =
            items.iter().map(|it| (it["name"].to_string(), it["exit_code"].as_i64(), &it["hint"])).collect();
        let hints = [("cargo build", 127), ("make", 2)];
        assert_eq!(seen.len(), 2, "{items:#?}");
        for ((command, code, hint), (wanted, ended)) in seen.iter().zip(hints) {
            assert!(command.contains(wanted) && *code == Some(ended) && **hint == Value::Bool(true), "{items:#?}");
        }
        let name = answer["container"].as_str().unwrap();
        assert_eq!(
            tool.prints(name, "pwd; cat made; git status --porcelain | grep -v made; true").await,
            "/workspace/repo\ncontent"
        );
        ran("s54", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_repository_that_cannot_be_inspected_gets_the_purpose_general_with_a_reason() {
    let server = GitServer::start();
    server.repository("it", &[("Cargo.toml", "")]).await;
    with_profiles(async |tool| {
        let general = async |url: String| {
            let answer = tried(tool, json!({ "repo_url": url })).await;
            assert_eq!((&answer["success"], &answer["purpose"]), (&true.into(), &"general".into()), "{answer:#}");
            assert_eq!(step(&answer, "repos")["status"], "failed", "{answer:#}");
            tool.destroy(answer["container"].as_str().unwrap()).await;
            step(&answer, "image").to_string()
        };
        assert!(general(server.url("missing")).await.contains("not"));
        server.behaves(Manner::Redirects(server.local_url("it")));
        general(server.url("it")).await;
        server.behaves(Manner::Honest);
        server.requires("x-access-token", "sesame");
        general(server.url("it")).await;
    })
    .await;
}

#[tokio::test]
async fn s55_the_users_directory_is_never_the_repository_to_try() {
    let server = GitServer::start();
    server.repository("it", &[("go.mod", "module x\n"), ("file", "of the repository\n")]).await;
    with_profiles(async |tool| {
        if tool.case.lacks(Lack::HostAddress) {
            return;
        }
        let project = tool.work().join("project");
        std::fs::create_dir_all(project.join(".git/hooks")).unwrap();
        std::fs::write(project.join("requirements.txt"), "idna\n").unwrap();
        std::fs::write(project.join("Makefile"), "all:\n\ttouch made; rm requirements.txt\n").unwrap();
        std::fs::write(project.join(".git/config"), "[core]\n\tfsmonitor = touch started\n").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", project.join("link")).unwrap();
        let before = snapshot(&tool.work());
        for (source, purpose) in [(server.url("it"), "go"), ("project".to_owned(), "python")] {
            for (mount, at) in [(Value::Null, "/workspace/repo"), (true.into(), "~/repo")] {
                let answer = tried(tool, json!({ "repo_url": source, "mount_cwd": mount })).await;
                assert_eq!((&answer["success"], &answer["purpose"]), (&true.into(), &purpose.into()), "{answer:#}");
                let at = at.replace('~', answer["home"].as_str().unwrap());
                assert_eq!(
                    (&answer["repo_path"], &answer["workdir"]),
                    (&at.as_str().into(), &at.as_str().into()),
                    "{answer:#}"
                );
                let name = answer["container"].as_str().unwrap();
                tool.prints(name, "pwd; ls file || ls made; touch own; rm -rf .git").await;
                assert_eq!(snapshot(&tool.work()), before, "{source}, mount_cwd {mount}");
            }
        }
        let given = tried(tool, json!({ "repo_url": server.url("it"), "workdir": "/elsewhere" })).await;
        assert_eq!(given["workdir"], "/elsewhere", "{given:#}");
        ran("s55", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s55_a_directory_without_a_repository_is_refused() {
    with_rootful_tool(&config("x"), async |tool| {
        for url in [
            "--upload-pack=x",
            "ext::sh -c id",
            "file:///x",
            "fd::17",
            "https://a:b@example.com/x",
            "https://exa mple.com/",
            "git://example.com/x",
        ] {
            let answer = tried(tool, json!({ "repo_url": url })).await;
            assert_eq!(answer["code"], "invalid_input", "{url}: {answer:#}");
        }
        assert_eq!(tried(tool, json!({ "repo_url": "/etc" })).await["code"], "policy_denied");
        assert_eq!(tried(tool, json!({ "repo_url": "no-such-directory" })).await["code"], "path_not_found");
        assert_eq!(tried(tool, json!({})).await["code"], "conflicting_fields");
        assert_eq!(tool.create(json!({ "repo_url": "https://example.com/x" })).await["code"], "conflicting_fields");
        tool.nothing_left().await;
    })
    .await;
}
