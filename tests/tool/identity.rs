//! The user's identity inside: git, gh and ssh, and which parts stay outside.

use std::collections::BTreeMap;
use std::path::Path;

use coracle_types::random_hex;
use serde_json::json;

use super::debian::debian;
use super::person::{Person, Programs, program, step};
use super::{Tool, with_rootful_engine};
use crate::engines::{IMAGE, git, ran};

/// Settings that are forwarded and are hard to write and parse.
const FORWARDED: [(&str, &str); 14] = [
    ("user.name", "Ann \"the\" O'Neil; # no remark \\ ends"),
    ("user.email", "ann@example.com"),
    ("alias.lg", "log --graph --format='%h \"%s\"'"),
    ("alias.sh", "!f() { echo \"$1\"; }; f"),
    ("branch.release/1.0.x.rebase", "true"),
    ("branch.with \"quotes\" and \\.rebase", "merges"),
    ("color.diff.meta", "yellow bold"),
    ("commit.verbose", "true"),
    ("core.autocrlf", "input"),
    ("init.defaultBranch", "trunk"),
    ("pull.rebase", "true"),
    ("url.https://github.com/.insteadOf", "gh:"),
    ("url.https://git.example.com/a.b/.pushInsteadOf", "https://git.example.com/c.d/"),
    ("format.pretty", "  blanks around  "),
];

/// Settings with a canary in place of `@@`.
const LEFT_OUT: [(&str, &str); 14] = [
    ("url.https://ann:@@@github.com/.insteadOf", "private:"),
    ("url.https://@@@github.com/.pushInsteadOf", "other:"),
    ("http.extraHeader", "Authorization: Bearer @@"),
    ("http.https://example.com/.extraHeader", "X-Token: @@"),
    ("http.proxy", "http://ann:@@@proxy.example.com"),
    ("http.cookieFile", "/@@"),
    ("credential.helper", "!echo password=@@"),
    ("credential.https://example.com.username", "@@"),
    ("core.sshCommand", "ssh -i /@@"),
    ("core.hooksPath", "/@@"),
    ("user.signingKey", "@@"),
    ("gpg.program", "/@@"),
    ("include.path", "/@@"),
    ("sendemail.smtpPass", "@@"),
];

async fn configure(file: &Path, key: &str, value: &str) {
    git(file.parent().unwrap(), &["config", "--file", file.to_str().unwrap(), "--add", key, value], "").await;
}

/// Writes a git configuration whose second half is included. Returns its canary.
async fn configured(tool: &Tool<'_>) -> String {
    let (canary, file, included) = (random_hex::<16>(), tool.home().join(".gitconfig"), tool.home().join("more.conf"));
    for (at, (key, value)) in FORWARDED.iter().enumerate() {
        configure(if at % 2 == 0 { &file } else { &included }, key, value).await;
    }
    for (key, value) in LEFT_OUT {
        configure(&included, &key.replace("@@", &canary), &value.replace("@@", &canary)).await;
    }
    configure(&file, "include.path", "more.conf").await;
    canary
}

#[tokio::test]
async fn s40_git_is_configured_inside_like_outside_without_secrets() {
    with_rootful_engine("", async |tool| {
        let canary = configured(tool).await;
        let answer = tool.made(json!({ "image": debian(tool.case).await, "user": "1000" })).await;
        let (name, report) = (answer["container"].as_str().unwrap(), step(&answer, "forward_git"));
        assert_eq!((&report["status"], report["probe"].is_string()), (&"success".into(), true), "{report:#}");
        assert!(report["detail"].as_str().unwrap().starts_with("14 settings forwarded"), "{report:#}");
        let listed = tool.bytes(name, json!(["git", "config", "--global", "--list", "-z"]), json!({})).await;
        let listed = String::from_utf8(listed).unwrap();
        let inside: BTreeMap<&str, &str> =
            listed.split_terminator('\0').map(|it| it.split_once('\n').unwrap_or((it, ""))).collect();
        for (key, value) in FORWARDED {
            // Git writes the first and the last part of a key small.
            let read = tool.bytes(name, json!(["git", "config", "--global", "--get", key]), json!({})).await;
            assert_eq!(String::from_utf8(read).unwrap(), format!("{value}\n"), "{key}: {inside:#?}");
        }
        assert!(inside.contains_key("safe.directory"), "{inside:#?}");
        let text = tool.prints(name, "cat ~/.gitconfig; env; find ~ -type f -exec cat {} +").await;
        assert!(!text.contains(&canary) && !answer.to_string().contains(&canary), "{text}");
        assert!(
            !inside.keys().any(|it| ["http", "credential", "gpg", "include"].contains(&it.split('.').next().unwrap()))
        );
        assert_eq!(tool.prints(name, "stat -c %U ~/.gitconfig").await, "agent");
        ran("s40", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_host_without_git_configuration_and_a_call_without_git_are_skipped() {
    with_rootful_engine("", async |tool| {
        let answer = tool.made(json!({})).await;
        assert_eq!(step(&answer, "forward_git")["status"], "skipped", "{answer:#}");
        tool.at_home(".gitconfig", "[user]\n\tname = Ann\n");
        let answer = tool.made(json!({ "forward_git": false })).await;
        assert_eq!(step(&answer, "forward_git")["status"], "skipped", "{answer:#}");
        assert_eq!(tool.prints(answer["container"].as_str().unwrap(), "ls -A ~").await, "");
        // Without git inside, the test checks the file itself.
        let answer = tool.made(json!({})).await;
        assert_eq!(step(&answer, "forward_git")["status"], "success", "{answer:#}");
        assert!(tool.prints(answer["container"].as_str().unwrap(), "cat ~/.gitconfig").await.contains("Ann"));
    })
    .await;
}

#[tokio::test]
async fn hosts_that_are_known_are_known_inside() {
    with_rootful_engine("[auto_passthrough]\nknown_hosts = [\"github.com\"]\n", async |tool| {
        tool.at_home(
            ".ssh/known_hosts",
            "github.com ssh-ed25519 AAAAgithub\ninternal.example ssh-ed25519 AAAAinternal\n",
        );
        tool.at_home(".gitconfig", "[user]\n\tname = Ann\n");
        let name = tool.created(json!({})).await;
        let known = tool.prints(&name, "cat ~/.ssh/known_hosts").await;
        assert_eq!(known, "github.com ssh-ed25519 AAAAgithub");
    })
    .await;
}

#[tokio::test]
async fn s41_the_token_of_gh_is_only_in_memory() {
    let token = format!("gho_{}", random_hex::<16>());
    let programs = Programs::new().with_gh(&token);
    Person::new("")
        .with_programs(&programs)
        .on_every_engine(async |tool| {
            let answer = tool.made(json!({})).await;
            let (name, report) = (answer["container"].as_str().unwrap(), step(&answer, "forward_gh"));
            assert_eq!((&report["status"], report["probe"].is_string()), (&"success".into(), true), "{report:#}");
            let inside = tool.environ(name, json!({})).await;
            assert_eq!((&inside["GH_TOKEN"], &inside["GITHUB_TOKEN"]), (&token, &token));
            assert!(!answer.to_string().contains(&token), "{answer:#}");
            if tool.case.is_real() {
                let config = tool.prints(name, "cat ~/.gitconfig").await;
                assert!(config.contains("github.com") && config.contains("$GH_TOKEN"), "{config}");
                let at = tool.work().join("export.tar").display().to_string();
                tool.engine_says(&["export", "--output", &at, name]).await;
                let disk = std::fs::read(&at).unwrap();
                assert!(disk.windows(8).any(|it| it == b"GH_TOKEN"), "the helper names the variable");
                assert!(!disk.windows(token.len()).any(|it| it == token.as_bytes()), "the token is on a disk");
            }
            let given = tool.made(json!({ "env": { "GH_TOKEN": "the call's own" } })).await;
            let inside = tool.environ(given["container"].as_str().unwrap(), json!({})).await;
            assert_eq!(inside["GH_TOKEN"], "the call's own");
            let without = tool.made(json!({ "forward_gh": false })).await;
            assert_eq!(step(&without, "forward_gh")["status"], "skipped");
            assert!(!tool.environ(without["container"].as_str().unwrap(), json!({})).await.contains_key("GH_TOKEN"));
            ran("s41", tool.case.engine());
        })
        .await;
}

#[tokio::test]
async fn a_gh_that_says_nothing_useful_forwards_nothing() {
    for script in
        ["exit 1", "echo", "echo 'not signed in' >&2; exit 4", "printf 'two\\nlines\\n'", "echo 'a token with blanks'"]
    {
        let programs = Programs::new().with("gh", script);
        Person::new("")
            .with_programs(&programs)
            .on_every_engine(async |tool| {
                let answer = tool.made(json!({})).await;
                let status = &step(&answer, "forward_gh")["status"];
                assert!(status == "skipped" || status == "failed", "{script}: {answer:#}");
                assert!(!tool.environ(answer["container"].as_str().unwrap(), json!({})).await.contains_key("GH_TOKEN"));
            })
            .await;
    }
}

#[tokio::test]
async fn a_gh_that_others_can_write_to_is_not_run() {
    Person::new("")
        .with_env("PATH", "{work}/bin:/usr/bin:/bin")
        .on_every_engine(async |tool| {
            std::fs::create_dir(tool.work().join("bin")).unwrap();
            program(&tool.work().join("bin/gh"), "touch \"$(dirname \"$0\")/started\"; echo gho_planted");
            program(&tool.work().join("bin/git"), "touch \"$(dirname \"$0\")/started\"");
            tool.at_home(".gitconfig", "[user]\n\tname = Ann\n");
            let answer = tool.made(json!({})).await;
            assert!(!tool.work().join("bin/started").exists(), "a program of the working directory was started");
            assert_eq!(step(&answer, "forward_gh")["status"], "skipped", "{answer:#}");
            // Git of the fake reads the host's own files.
            let git = &step(&answer, "forward_git")["status"];
            assert!(!tool.case.is_real() || git == "success", "{answer:#}");
        })
        .await;
}

#[tokio::test]
async fn s42_ssh_keys_need_the_users_permission_and_are_only_in_memory() {
    let key = format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END-----\n", random_hex::<32>());
    let plant = |tool: &Tool<'_>| {
        tool.at_home(".ssh/id_ed25519", &key);
        tool.at_home(".ssh/id_ed25519.pub", "ssh-ed25519 AAAA ann\n");
        tool.at_home(".ssh/config", "Host *\n  ServerAliveInterval 30\n");
        tool.at_home(".ssh/other.pem", &key);
    };
    with_rootful_engine("", async |tool| {
        plant(tool);
        let answer = tool.create(json!({ "forward_ssh": true })).await;
        assert_eq!((&answer["code"], &answer["details"]["rule"]), (&"policy_denied".into(), &"identity.ssh".into()));
        assert_eq!(answer["details"]["setting"], "security.allow_ssh", "{answer:#}");
        tool.nothing_left().await;
    })
    .await;
    with_rootful_engine("[security]\nallow_ssh = true\n", async |tool| {
        plant(tool);
        let by_default = tool.made(json!({})).await;
        assert_eq!(step(&by_default, "forward_ssh")["status"], "skipped", "{by_default:#}");
        let answer = tool.made(json!({ "forward_ssh": true, "user": "1234" })).await;
        let (name, report) = (answer["container"].as_str().unwrap(), step(&answer, "forward_ssh"));
        assert_eq!((&report["status"], report["probe"].is_string()), (&"success".into(), true), "{report:#}");
        assert_eq!(tool.prints(name, "cat ~/.ssh/id_ed25519").await, key.trim_end());
        assert_eq!(tool.prints(name, "stat -L -c %a:%u ~/.ssh/id_ed25519 ~/.ssh/config").await, "600:1234\n600:1234");
        assert_eq!(tool.prints(name, "cd ~/.ssh && pwd -P").await, "/.coracle/run/ssh");
        assert_eq!(tool.prints(name, "ls ~/.ssh/other.pem 2>/dev/null; true").await, "");
        let kind = tool.prints(name, "grep ' /.coracle/run ' /proc/mounts").await;
        assert!(kind.contains("tmpfs"), "{kind}");
        let at = tool.work().join("export.tar").display().to_string();
        tool.engine_says(&["export", "--output", &at, name]).await;
        let (disk, secret) = (std::fs::read(&at).unwrap(), key.lines().nth(1).unwrap());
        assert!(!disk.windows(secret.len()).any(|it| it == secret.as_bytes()), "the key is on a disk");
        assert!(!answer.to_string().contains(secret));
        ran("s42", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s46_a_clean_container_has_nothing_of_the_host() {
    let canary = random_hex::<16>();
    let programs = Programs::new().with_gh(&format!("gho_{canary}"));
    let config = format!(
        "[profiles.clean]\nimage = \"{IMAGE}\"\npackages = []\n[dotfiles]\nrepo = \"https://example.com/{canary}.git\"\n"
    );
    let person = Person::new(config).with_programs(&programs);
    let person =
        ["NPM_TOKEN", "OPENAI_API_KEY", "AMPLIFIER_X"].iter().fold(person, |it, name| it.with_env(name, &canary));
    person
        .on_real_engines(async |tool| {
            tool.at_home(".gitconfig", &format!("[user]\n\tname = {canary}\n"));
            tool.at_home(".ssh/id_ed25519", &canary);
            tool.at_home(".amplifier/settings.yaml", &canary);
            let answer = tool.made(json!({ "image": null, "purpose": "clean" })).await;
            let name = answer["container"].as_str().unwrap();
            assert_eq!((&answer["purpose"], &answer["provisioning_ok"]), (&"clean".into(), &true.into()), "{answer:#}");
            for skipped in ["env_passthrough", "forward_git", "forward_gh", "forward_ssh", "dotfiles"] {
                assert_eq!(step(&answer, skipped)["status"], "skipped", "{answer:#}");
            }
            assert_eq!(tool.prints(name, "ls -A ~").await, "");
            let inside = tool.environ(name, json!({})).await;
            assert!(!inside.values().any(|it| it.contains(&canary)), "{inside:?}");
            let at = tool.work().join("export.tar").display().to_string();
            tool.engine_says(&["export", "--output", &at, name]).await;
            assert!(!std::fs::read(&at).unwrap().windows(canary.len()).any(|it| it == canary.as_bytes()));
            ran("s46", tool.case.engine());
        })
        .await;
}

#[tokio::test]
async fn settings_of_amplifier_lie_in_memory() {
    let config = format!("[profiles.amplifier]\nimage = \"{IMAGE}\"\npackages = []\nsetup = []\n");
    with_rootful_engine(&config, async |tool| {
        let key = random_hex::<16>();
        tool.at_home(".amplifier/settings.yaml", &format!("api_key: {key}\n"));
        let answer = tool.made(json!({ "image": null, "purpose": "amplifier", "user": "1234" })).await;
        let (name, report) = (answer["container"].as_str().unwrap(), step(&answer, "amplifier_settings"));
        assert_eq!((&report["status"], report["probe"].is_string()), (&"success".into(), true), "{report:#}");
        assert_eq!(tool.prints(name, "cat ~/.amplifier/settings.yaml").await, format!("api_key: {key}"));
        let leads = tool.prints(name, "busybox readlink -f ~/.amplifier/settings.yaml").await;
        assert!(leads.starts_with("/.coracle/run/"), "{leads}");
        let at = tool.work().join("export.tar").display().to_string();
        tool.engine_says(&["export", "--output", &at, name]).await;
        assert!(!std::fs::read(&at).unwrap().windows(key.len()).any(|it| it == key.as_bytes()), "the key is on a disk");
    })
    .await;
}
