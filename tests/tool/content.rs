//! The caller's content: repositories, dotfiles, files, setup commands.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::debian::{debian, derived};
use super::person::{place_of, step, warnings};
use super::{Tool, with_rootful_engine, with_rootful_tool};
use crate::engines::{GitServer, Lack, ran};

/// The server of a test listens on this host, which has a private address and no certificate.
const PRIVATE: &str = "[images]\ngit_allow_private = true\n";

/// The sum of a file by a program inside.
async fn sum_inside(tool: &Tool<'_>, container: &str, path: &str) -> String {
    let words = if tool.case.is_real() { json!(["busybox", "sha256sum", path]) } else { json!(["sha256sum", path]) };
    let printed = String::from_utf8(tool.bytes(container, words, json!({})).await).unwrap();
    // For a name with special characters `sha256sum` prints a backslash before the sum.
    printed.trim_start_matches('\\').split(' ').next().unwrap().to_owned()
}

fn sum(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[tokio::test]
async fn s36_packages_are_there_before_repositories_need_them() {
    let server = GitServer::start();
    let commit = server.repository("app", &[("README.md", "hello\n")]).await;
    let config = format!("{PRIVATE}[profiles.slim]\nimage = \"ubuntu:24.04\"\npackages = [\"git\"]\n");
    with_rootful_engine(&config, async |tool| {
        if tool.case.lacks(Lack::HostAddress) {
            return;
        }
        let slim = "rm -f /usr/bin/git; dpkg --purge --force-depends git 2>&1; ! command -v git";
        let image = derived(tool, debian(tool.case).await, slim, &[]).await;
        let repos = json!([{ "url": server.url("app"), "install": "git log --format=%H > installed" }]);
        let answer = tool.made(json!({ "image": image, "purpose": "slim", "repos": repos })).await;
        assert!(place_of(&answer, "packages") < place_of(&answer, "repos"), "{answer:#}");
        for name in ["packages", "repos"] {
            assert_eq!(
                (&step(&answer, name)["status"], step(&answer, name)["probe"].is_string()),
                (&"success".into(), true),
                "{answer:#}"
            );
        }
        let name = answer["container"].as_str().unwrap();
        assert_eq!(tool.prints(name, "cat /workspace/app/installed").await, commit);
        ran("s36", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn one_bad_repository_of_three_is_reported_and_the_others_are_cloned() {
    let server = GitServer::start();
    let one = server.repository("one", &[("a", "1\n")]).await;
    server.repository("two", &[("a", "2\n")]).await;
    let branch = server.commit("two", "feature/x", &[("b", "of the branch\n")]).await;
    with_rootful_engine(PRIVATE, async |tool| {
        if tool.case.lacks(Lack::HostAddress) {
            return;
        }
        let repos = json!([
            { "url": server.url("one"), "install": ["sh", "-c", "id -u > who; exit 5"] },
            { "url": server.url("missing") },
            { "url": server.url("two"), "path": "sub/-two", "branch": "feature/x", "install": "id -u > who", "as_root": true },
        ]);
        let answer = tool.made(json!({ "image": debian(tool.case).await, "user": "1000", "repos": repos })).await;
        let (name, report) = (answer["container"].as_str().unwrap(), step(&answer, "repos"));
        assert_eq!((&report["status"], &answer["provisioning_ok"]), (&"partial".into(), &false.into()), "{report:#}");
        assert!(!warnings(&answer).is_empty() && warnings(&answer).iter().all(|it| *it == "insecure_url"), "{answer:#}");
        let items = report["items"].as_array().unwrap();
        let statuses: Vec<_> = items.iter().map(|it| it["status"].as_str().unwrap()).collect();
        assert_eq!(statuses, ["failed", "failed", "success"], "{report:#}");
        assert!(items[0]["error"].as_str().unwrap().contains('5'), "{report:#}");
        assert!(items[1]["error"].as_str().unwrap().contains("not found"), "{report:#}");
        assert_eq!((&items[0]["commit"], &items[2]["commit"]), (&one.as_str().into(), &branch.as_str().into()));
        assert_eq!((&items[0]["path"], &items[2]["path"]), (&"/workspace/one".into(), &"/workspace/sub/-two".into()));
        assert_eq!(tool.prints(name, "cat one/who sub/-two/who sub/-two/b; stat -c %U one sub/-two").await,
            "1000\n0\nof the branch\nagent\nagent");
    })
    .await;
}

#[tokio::test]
async fn a_repository_is_cloned_to_the_home_if_the_workdir_is_the_users_and_overwrites_nothing() {
    let server = GitServer::start();
    server.repository("one", &[("a", "1\n")]).await;
    with_rootful_engine(PRIVATE, async |tool| {
        if tool.case.lacks(Lack::HostAddress) {
            return;
        }
        let more = json!({ "image": debian(tool.case).await, "mount_cwd": true, "user": "1000", "repos": [
            { "url": server.url("one") }, { "url": server.url("one"), "path": "/usr/share" } ] });
        let answer = tool.made(more).await;
        let items = &step(&answer, "repos")["items"];
        let home = answer["home"].as_str().unwrap();
        assert_eq!(items[0]["path"], format!("{home}/one"), "{items:#}");
        assert_eq!(items[1]["code"], "path_exists", "{items:#}");
        assert_eq!(std::fs::read_dir(tool.work()).unwrap().count(), 0);
        assert_eq!(tool.prints(answer["container"].as_str().unwrap(), "cat ~/one/a").await, "1");
    })
    .await;
}

#[tokio::test]
async fn urls_that_are_no_urls_of_git_are_refused_before_anything_is_made() {
    with_rootful_tool(PRIVATE, async |tool| {
        for url in [
            "--upload-pack=x",
            "ext::sh -c id",
            "file:///etc",
            "/etc",
            "https://user:secret-word@example.com/x.git",
            "https://token@example.com/x.git",
            "https://example.com/a\nb",
            "git@github.com:a/b.git",
            "ssh://git@github.com/a/b.git",
        ] {
            let by_repos = tool.create(json!({ "repos": [{ "url": url }] })).await;
            let by_dotfiles = tool.create(json!({ "dotfiles_repo": url })).await;
            for answer in [by_repos, by_dotfiles] {
                assert!(answer["code"] == "invalid_input" || answer["code"] == "policy_denied", "{url}: {answer:#}");
                assert!(
                    !answer.to_string().contains("secret-word") && !answer.to_string().contains("token@"),
                    "{answer:#}"
                );
            }
        }
        tool.nothing_left().await;
    })
    .await;
    with_rootful_tool("", async |tool| {
        let answer = tool.create(json!({ "repos": [{ "url": "http://192.168.1.1/x.git" }] })).await;
        assert_eq!((&answer["code"], &answer["details"]["rule"]), (&"policy_denied".into(), &"repo.private".into()));
        assert_eq!(answer["details"]["setting"], "images.git_allow_private", "{answer:#}");
    })
    .await;
}

/// Every byte in every neighbourhood that a shell or an editor would spoil.
fn hard_files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("quotes", b"it's \"hard\" `x` $(id) ${HOME} $HOME \\n \\\\ %s !! *".to_vec()),
        ("no last newline", b"line\nlast".to_vec()),
        ("crlf", b"one\r\ntwo\r\n\r\n".to_vec()),
        ("empty", vec![]),
        ("EOF", b"<<'EOF'\nEOF\n'EOF'\n".to_vec()),
        ("big", "0123456789abcdef".repeat(900 * 64).into_bytes()),
        ("it's \"a\" $(path)/new/-x", b"deep\n".to_vec()),
    ]
}

#[tokio::test]
async fn s37_files_arrive_byte_by_byte() {
    with_rootful_tool("", async |tool| {
        let bytes: Vec<u8> = (0..=255).cycle().take(1024).collect();
        let mut files: serde_json::Map<String, Value> = hard_files()
            .into_iter()
            .map(|(path, it)| (path.to_owned(), String::from_utf8(it).unwrap().into()))
            .collect();
        files.insert("bytes".into(), json!({ "content_base64": BASE64_STANDARD.encode(&bytes), "mode": "0600" }));
        let answer = tool.made(json!({ "config_files": files })).await;
        let (name, report) = (answer["container"].as_str().unwrap(), step(&answer, "config_files"));
        assert_eq!((&report["status"], report["probe"].is_string()), (&"success".into(), true), "{report:#}");
        assert_eq!(report["items"].as_array().unwrap().len(), files.len());
        for (path, content) in hard_files().into_iter().chain([("bytes", bytes)]) {
            assert_eq!(sum_inside(tool, name, path).await, sum(&content), "{path}");
        }
        ran("s37", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn files_have_owner_and_mode_and_follow_no_link() {
    with_rootful_engine("", async |tool| {
        let image = derived(
            tool,
            crate::engines::IMAGE,
            "mkdir /trap; ln -s /etc/passwd /trap/link; busybox chown 1000:1000 /home/agent",
            &[],
        )
        .await;
        let files = json!({ "~/of/home": "1", "of/workdir": "2", "/opt/of/root": { "content": "3", "mode": "0750" },
            "/trap/link": "4", "run.sh": { "content": "#!/bin/sh\n", "mode": "755" } });
        let name = tool.created(json!({ "image": image, "user": "1234", "config_files": files })).await;
        let seen = tool.prints(&name, "stat -c %a:%u ~/of/home of/workdir /opt/of/root run.sh; cat /trap/link").await;
        assert_eq!(seen, "644:1234\n644:1234\n750:0\n755:1234\n4");
        assert!(tool.prints(&name, "cat /etc/passwd").await.contains("agent"));
        assert_eq!(tool.prints(&name, "stat -c %u ~/of of").await, "1234\n1234");
    })
    .await;
}

#[tokio::test]
async fn files_do_not_go_where_none_may() {
    with_rootful_tool("", async |tool| {
        for (path, content) in [
            ("/proc/x", json!("x")),
            ("/sys/x", json!("x")),
            ("/dev/x", json!("x")),
            ("/.coracle/guest", json!("x")),
            ("/opt/../proc/x", json!("x")),
            ("", json!("x")),
            ("x", json!({ "content": "x", "mode": "4755" })),
            ("x", json!({ "content": "x", "content_base64": "eA==" })),
            ("x", json!({ "content_base64": "***" })),
            ("x", json!("x".repeat((1 << 20) + 1))),
        ] {
            let answer = tool.create(json!({ "config_files": { path: content } })).await;
            assert_eq!(answer["code"], "invalid_input", "{path}: {answer:#}");
        }
        std::fs::create_dir_all(tool.work().join(".git/hooks")).unwrap();
        std::fs::write(tool.work().join(".git/config"), "kept").unwrap();
        let more = json!({ "mount_cwd": true, "config_files": { ".git/hooks/pre-commit": "#!/bin/sh\n" } });
        let answer = tool.create(more).await;
        assert_eq!(
            (&answer["code"], &answer["details"]["rule"]),
            (&"policy_denied".into(), &"files.protected".into()),
            "{answer:#}"
        );
        assert_eq!(std::fs::read_dir(tool.work().join(".git/hooks")).unwrap().count(), 0);
        tool.nothing_left().await;
    })
    .await;
}

#[tokio::test]
async fn s38_dotfiles_are_set_up_in_the_home_of_who_runs_commands() {
    let server = GitServer::start();
    server.repository("dots", &[("install.sh", "#!/bin/sh\nid -u > \"$HOME/x\"; pwd > \"$HOME/where\"\n")]).await;
    server.repository("broken", &[("install.sh", "#!/bin/sh\necho why >&2; exit 3\n")]).await;
    server.repository("links", &[(".bashrc", "# of the dotfiles\n"), (".vimrc", "set nu\n"), ("README", "")]).await;
    with_rootful_engine(PRIVATE, async |tool| {
        if tool.case.lacks(Lack::HostAddress) {
            return;
        }
        let image = debian(tool.case).await;
        let with = async |repo: &str, more: Value| {
            let mut call = json!({ "image": image, "user": "1000", "dotfiles_repo": server.url(repo) });
            super::merge(call.as_object_mut().unwrap(), more);
            tool.made(call).await
        };
        let answer = with("dots", json!({ "dotfiles_inline": { "x2": "inline\n", "~/.where": "too" } })).await;
        let (name, report) = (answer["container"].as_str().unwrap(), step(&answer, "dotfiles"));
        assert_eq!((&report["status"], report["probe"].is_string()), (&"success".into(), true), "{report:#}");
        assert_eq!(
            tool.prints(name, "cat ~/x ~/where ~/x2 ~/.where; stat -c %U ~/x").await,
            "1000\n/home/agent/.dotfiles\ninline\ntooagent"
        );
        let answer = with("broken", json!({})).await;
        let report = step(&answer, "dotfiles");
        assert_eq!((&report["status"], &answer["provisioning_ok"]), (&"failed".into(), &false.into()), "{report:#}");
        assert!(report["error"].as_str().unwrap().contains('3'), "{report:#}");
        let answer = with("dots", json!({ "dotfiles_script": "no-such-script.sh" })).await;
        assert_eq!(step(&answer, "dotfiles")["status"], "failed", "{answer:#}");
        let answer = with("links", json!({ "dotfiles_target": "~/dots" })).await;
        let name = answer["container"].as_str().unwrap();
        assert_eq!(step(&answer, "dotfiles")["status"], "success", "{answer:#}");
        assert_eq!(
            tool.prints(name, "cat ~/.bashrc ~/.vimrc; ls ~/README 2>/dev/null; true").await,
            "# of the dotfiles\nset nu"
        );
        let answer = with("dots", json!({ "dotfiles_skip": true, "dotfiles_inline": { "x": "y" } })).await;
        assert_eq!(step(&answer, "dotfiles")["status"], "skipped", "{answer:#}");
        assert_eq!(tool.prints(answer["container"].as_str().unwrap(), "ls -A ~ | grep -v gitconfig; true").await, "");
        ran("s38", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn inline_dotfiles_stay_below_the_home() {
    with_rootful_tool("", async |tool| {
        for path in ["../x", "/etc/x", "a/../../x", "~other/x"] {
            let answer = tool.create(json!({ "dotfiles_inline": { path: "x" } })).await;
            assert_eq!(answer["code"], "invalid_input", "{path}: {answer:#}");
        }
        tool.nothing_left().await;
    })
    .await;
}

#[tokio::test]
async fn s39_setup_commands_are_distinguished_by_their_codes() {
    with_rootful_tool("", async |tool| {
        let answer = tool.made(json!({ "setup_commands": ["true", "false"] })).await;
        assert_eq!((&answer["success"], &answer["provisioning_ok"]), (&true.into(), &false.into()), "{answer:#}");
        let report = step(&answer, "setup_commands");
        assert_eq!((&report["status"], &report["detail"]), (&"partial".into(), &"1/2 commands succeeded".into()));
        let items = report["items"].as_array().unwrap();
        for (item, (command, code, status)) in items.iter().zip([("true", 0, "success"), ("false", 1, "failed")]) {
            assert_eq!((&item["command"], &item["exit_code"]), (&command.into(), &code.into()), "{report:#}");
            assert_eq!((&item["status"], &item["hint"]), (&status.into(), &false.into()), "{report:#}");
        }
        let answer = tool.made(json!({ "setup_commands": ["exit 2", ["no-such-program-x"]] })).await;
        assert_eq!(step(&answer, "setup_commands")["status"], "failed", "{answer:#}");
        ran("s39", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn setup_commands_are_roots_see_the_session_and_what_came_before() {
    with_rootful_engine("[setup]\ntimeout = 2\n", async |tool| {
        let commands = json!([
            "id -u > /opt/who && pwd >> /opt/who && printf '%s' \"$OWN\" >> /opt/who && cat given >> /opt/who",
            "echo begun; setsid sleep 303 & sleep 303",
            ["touch", "/opt/after it's over"],
        ]);
        let more = json!({ "setup_commands": commands, "user": "1000", "env": { "OWN": "it's \"own\"\n" },
            "config_files": { "given": "before\n", "/opt/x": "" } });
        let answer = tool.made(more).await;
        let (name, items) = (answer["container"].as_str().unwrap(), &step(&answer, "setup_commands")["items"]);
        assert_eq!(
            tool.prints(name, "cat /opt/who; ls /opt").await,
            "0\n/workspace\nit's \"own\"\nbefore\nafter it's over\nwho\nx"
        );
        assert_eq!(
            (&items[1]["status"], &items[1]["exit_code"], &items[1]["output"]),
            (&"failed".into(), &Value::Null, &"begun\n".into()),
            "{items:#}"
        );
        let left = tool.prints(name, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").await;
        assert!(!left.contains("sleep 303"), "{left}");
    })
    .await;
}

#[tokio::test]
async fn a_step_that_everything_needs_fails_the_call_by_name_and_leaves_nothing() {
    use std::os::unix::fs::PermissionsExt;
    with_rootful_engine("", async |tool| {
        std::fs::set_permissions(tool.work(), PermissionsExt::from_mode(0o700)).unwrap();
        let answer = tool.create(json!({ "mount_cwd": true, "user": "4321:4321" })).await;
        assert_eq!(answer["success"], false, "{answer:#}");
        assert!(answer["message"].as_str().unwrap().contains("/workspace"), "{answer:#}");
        tool.nothing_left().await;
        let answer = tool.create(json!({ "user": "nobody-knows-them", "setup_commands": ["true"] })).await;
        assert_eq!(
            (&answer["code"], &answer["details"]["user"]),
            (&"user_not_found".into(), &"nobody-knows-them".into())
        );
        tool.nothing_left().await;
    })
    .await;
}
