//! The user's git configuration. git itself reads what was written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Program;

use coracle_provision::env::{SessionEnv, Sources};
use coracle_provision::git::{GitConfig, GitSkipReason, Settings, forward};
use coracle_provision::{Status, StepContext, gh};
use coracle_types::{ContainerPath, Secret};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{content, items, path, place, put, root, sh};
use crate::engines::{Case, Running, Way, tar_of, with_a_guest, with_real_engines};

/// The output of git with only this home's configuration.
#[expect(clippy::disallowed_methods, reason = "git is the judge")]
fn git(home: &Path, words: &[&str]) -> Vec<u8> {
    let path = "/usr/local/bin:/usr/bin:/bin";
    let mut it = Program::new("git");
    let it = it.args(words).env_clear().env("PATH", path).env("HOME", home).env("GIT_CONFIG_NOSYSTEM", "1");
    let output = it.current_dir(home).output().unwrap();
    assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn listed(home: &Path) -> Vec<u8> {
    git(home, &["config", "--global", "--list", "--includes", "-z"])
}

/// A setting of a section that is forwarded whole, as git prints it.
fn setting() -> impl Strategy<Value = String> {
    let text = || {
        vec(
            prop_oneof![Just('"'), Just('\\'), Just('#'), Just(';'), Just(' '), Just(']'), Just('='), any::<char>()],
            0..12,
        )
        .prop_map(|it| it.into_iter().filter(|it| !it.is_control()).collect::<String>())
    };
    let sub = proptest::option::of(text().prop_map(|it| format!("{it}.")));
    let value = proptest::option::of(text().prop_map(|it| format!("\n{it}")));
    ("(branch|color|advice|user)", sub, "[a-z][a-z0-9-]{0,8}", value).prop_map(|(section, sub, name, value)| {
        let (sub, name) =
            if section == "user" { (String::new(), "name".to_owned()) } else { (sub.unwrap_or_default(), name) };
        format!("{section}.{sub}{name}{}", value.unwrap_or_default())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn git_reads_back_exactly_what_was_forwarded(settings in vec(setting(), 0..8)) {
        let printed: String = settings.iter().map(|it| format!("{it}\0")).collect();
        let retained = Settings::read(printed.as_bytes(), &["user.name".into()]);
        // A value that looks like a path of the host is not forwarded.
        prop_assume!(retained.to_string().ends_with(" 0 left out"));
        let home = tempfile::tempdir().unwrap();
        let config = GitConfig { settings: Some(retained), ..GitConfig::default() };
        fs::write(home.path().join(".gitconfig"), config.file()).unwrap();
        prop_assert_eq!(String::from_utf8(listed(home.path())).unwrap(), printed);
    }
}

/// A configuration with includes, dotted sub-sections and quotes, and `CANARY` in what must stay on the host.
const CONFIG: &str = r#"
[user]
	name = "Ada \"The\" Löwe; # 1"
	email = ada@example.com
	signingkey = CANARY
[include]
	path = more
[url "https://mirror.example/a.b/"]
	insteadOf = https://github.com/
	insteadOf = gh:
[url "https://me:CANARY@git.example/"]
	insteadOf = https://git.example/
[http "https://git.example/"]
	extraHeader = Authorization: CANARY
[credential]
	helper = "!echo CANARY"
[alias]
	up = "!git pull && git push"
"#;

const MORE: &str =
    "[branch \"v1.2.x\"]\n\trebase = true\n[core]\n\tautocrlf = input\n\thooksPath = /CANARY\n[pull]\n\tff\n";

fn settings_of_host() -> Settings {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join(".gitconfig"), CONFIG).unwrap();
    fs::write(home.path().join("more"), MORE).unwrap();
    Settings::read(&listed(home.path()), &[])
}

/// A container with a guest and with the host's git.
#[expect(clippy::disallowed_methods, reason = "only the loader knows where it finds libraries")]
async fn with_git(case: &Case) -> Running<'_> {
    let program = String::from_utf8(git(Path::new("/"), &["--exec-path"])).unwrap();
    let program = Path::new(program.trim()).join("git");
    let printed = Program::new("ldd").arg(&program).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let libraries = printed.split_whitespace().filter(|it| it.starts_with('/')).map(PathBuf::from);
    let tar = tar_of(|tar| {
        tar.append_path_with_name(program.canonicalize().unwrap(), "bin/git").unwrap();
        for library in libraries {
            tar.append_path_with_name(&library, library.strip_prefix("/").unwrap()).unwrap();
        }
    });
    let running = case.runs(Way::Socket).await;
    case.runtime.upload(&running.id, &ContainerPath::root(), tar).await.unwrap();
    running
}

#[tokio::test]
async fn settings_go_in_and_what_is_secret_stays_out() {
    with_real_engines(async |case| {
        let running = with_git(case).await;
        let place = place(&running).await;
        let config =
            GitConfig { settings: Some(settings_of_host()), safe: vec![path("/workspace")], ..GitConfig::default() };
        let step = forward(&place, &config, GitSkipReason::NotRequested).await;
        assert_eq!(step.status, Status::Success, "{step:?}");
        assert!(step.probe.as_ref().unwrap().contains("git inside reports"), "{step:?}");
        let detail = "8 settings forwarded, 5 left out (3 credentials, 1 signing, 1 hooks)";
        assert_eq!(step.detail, detail);
        let seen = sh(&place, "git config --global --list -z").await;
        let expected = [
            "user.name\nAda \"The\" Löwe; # 1",
            "user.email\nada@example.com",
            "branch.v1.2.x.rebase\ntrue",
            "core.autocrlf\ninput",
            "pull.ff",
            "url.https://mirror.example/a.b/.insteadof\nhttps://github.com/",
            "url.https://mirror.example/a.b/.insteadof\ngh:",
            "alias.up\n!git pull && git push",
            "safe.directory\n/workspace",
        ];
        assert_eq!(seen.split_terminator('\0').collect::<Vec<_>>(), expected);
        assert_eq!(sh(&place, "stat -c '%u:%g %a' .gitconfig").await, "1000:1000 644\n");
        assert_eq!(root(&running, "grep -r CANARY /home /root /etc || true").await, "");
    })
    .await;
}

#[tokio::test]
async fn files_of_the_image_are_renamed_and_a_second_run_changes_nothing() {
    with_a_guest(async |running| {
        let place = place(running).await;
        let home = place.home.as_str();
        put(&place, &format!("{home}/.gitconfig"), "[user]\n\tname = Image\n").await;
        put(&place, &format!("{home}/.ssh/known_hosts"), "old.example ssh-rsa A").await;
        let settings = Settings::read(b"alias.x\nlog\0", &[]);
        let known_hosts = b"github.com ssh-ed25519 B\n".to_vec();
        let config = GitConfig { settings: Some(settings), known_hosts, ..GitConfig::default() };
        for _ in 0..2 {
            let step = forward(&place, &config, GitSkipReason::NotRequested).await;
            assert_eq!(
                (step.status, step.detail.as_str()),
                (Status::Success, "1 setting forwarded, 0 left out"),
                "{step:?}"
            );
            assert_eq!(content(&place, &format!("{home}/.gitconfig")).await, b"[alias]\n\tx = \"log\"\n");
            assert_eq!(content(&place, &format!("{home}/.gitconfig.orig")).await, b"[user]\n\tname = Image\n");
            let hosts = content(&place, &format!("{home}/.ssh/known_hosts")).await;
            assert_eq!(hosts, b"old.example ssh-rsa A\ngithub.com ssh-ed25519 B\n");
        }
    })
    .await;
}

#[tokio::test]
async fn a_step_that_did_not_work_says_so() {
    with_a_guest(async |running| {
        let place = place(running).await;
        let home = place.home.as_str();
        // A directory where the file of known hosts belongs.
        put(&place, &format!("{home}/.ssh/known_hosts/x"), "").await;
        let settings = Some(Settings::read(b"alias.x\nlog\0", &[]));
        let config = GitConfig { settings, known_hosts: b"a b c\n".to_vec(), ..GitConfig::default() };
        let step = forward(&place, &config, GitSkipReason::NotRequested).await;
        assert_eq!(items(&step), [".gitconfig success", ".ssh/known_hosts failed"], "{step:?}");
        assert_eq!(step.status, Status::Partial);
        let elsewhere = StepContext { home: path("/nowhere/at/all"), user: super::AGENT, ..place };
        if running.case.is_real() {
            let step = forward(&elsewhere, &config, GitSkipReason::NotRequested).await;
            assert_eq!(step.status, Status::Failed, "{step:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn git_inside_asks_the_session_for_the_token() {
    with_real_engines(async |case| {
        let running = with_git(case).await;
        let place = place(&running).await;
        let helper_for = Some("git.example".to_owned());
        let config = GitConfig { helper_for, ..GitConfig::default() };
        let step = forward(&place, &config, GitSkipReason::NoConfig).await;
        let detail =
            "there is no git configuration on the host; `.gitconfig` holds a credential helper for git.example";
        assert_eq!((step.status, step.detail.as_str()), (Status::Skipped, detail), "{step:?}");
        let session = SessionEnv::from_sources(Sources { token: Some(Secret::new(b"gho_canary".to_vec())), ..Sources::default() });
        let given = session.send(&place.link).await;
        let step = gh::forwarded(&place, &session, &given).await;
        assert_eq!(step.status, Status::Success, "{step:?}");
        assert_eq!(step.probe.as_deref(), Some("a command of the exec user has it, and it is not empty"));
        let ask = "printf 'protocol=https\\nhost=%s\\n\\n' \"$1\" | GIT_TERMINAL_PROMPT=0 git credential fill 2>/dev/null || true";
        let fill = |host: &str| format!("fill() {{ {ask}; }}; fill {host}");
        let filled = sh(&place, &fill("git.example")).await;
        assert!(filled.ends_with("username=x-access-token\npassword=gho_canary\n"), "{filled}");
        assert_eq!(sh(&place, &fill("other.example")).await, "");
        let file = content(&place, "/home/agent/.gitconfig").await;
        assert!(!String::from_utf8(file).unwrap().contains("gho_canary"));
        assert_eq!(root(&running, "grep -rsl gho_canary /home /root /etc /tmp /.coracle || true").await, "");
    })
    .await;
}
