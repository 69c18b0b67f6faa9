//! Repositories and dotfiles, by the git inside, from a real server.

use std::time::Duration;

use coracle_host::branch::BranchName;
use coracle_host::git_url::{GitRules, GitUrl};
use coracle_provision::{Dotfiles, RepoRequest, RepoSource, Status, StepReport, dotfiles, repos};
use coracle_types::Command;

use super::image::with_git;
use super::{path, place, sh};
use crate::engines::{GitServer, Lack, Manner, with_a_real_guest, with_real_engines};

fn url(text: &str) -> GitUrl {
    GitUrl::parse(text, GitRules { allow_private: true, ssh: false }).unwrap()
}

fn repo(server: &GitServer, name: &str, at: &str) -> RepoRequest {
    RepoRequest {
        from: RepoSource::Url(url(&server.url(name))),
        path: path(at),
        branch: None,
        install: None,
        as_root: false,
    }
}

fn errors(step: &StepReport) -> Vec<&str> {
    step.items.iter().map(|it| it.error.as_deref().unwrap_or("-")).collect()
}

#[tokio::test]
async fn repositories_are_the_users_and_at_their_commits() {
    let server = GitServer::start();
    let commit = server.repository("web", &[("run", "#!/bin/sh\nid -u\n")]).await;
    let second = server.commit("web", "second", &[("only", "here")]).await;
    with_real_engines(async |case| {
        if case.lacks(Lack::HostAddress) {
            return;
        }
        let running = with_git(case).await;
        let place = place(&running).await;
        let install = Some(Command::Argv(vec!["./run".into()]));
        let wanted = [
            RepoRequest { install: install.clone(), ..repo(&server, "web", "/workspace/new/web") },
            RepoRequest { install, as_root: true, ..repo(&server, "web", "/home/agent/it's web") },
            RepoRequest { branch: BranchName::parse("second").ok(), ..repo(&server, "web", "/workspace/second") },
            repo(&server, "gone", "/workspace/gone"),
            repo(&server, "web", "/opt/web"),
        ];
        let step = repos(&place, &wanted, None).await;
        assert_eq!(
            (step.status, step.detail.as_str()),
            (Status::Partial, "3/5 repositories are in place"),
            "{step:#?}"
        );
        let commits = [0, 1, 2].map(|at| step.items[at].about["commit"].as_str().unwrap());
        assert_eq!(commits, [&commit, &commit, &second]);
        let installed = [0, 1].map(|at| step.items[at].about["install"]["output"].as_str().unwrap());
        assert_eq!(installed, ["1000\n", "0\n"]);
        assert!(errors(&step)[3].starts_with("git: repository 'http://"), "{step:#?}");
        assert!(errors(&step)[4].contains("is not accessible"), "{step:#?}");
        let owners =
            sh(&running, "cd /; stat -c %u workspace/new workspace/new/web/run 'home/agent/it'\"'\"'s web/.git'").await;
        assert_eq!(owners, "1000\n1000\n1000\n");
        assert_eq!(sh(&running, "cat /workspace/second/only; ls -A /workspace").await, "herenew\nsecond\n");
    })
    .await;
}

#[tokio::test]
async fn a_private_repository_prompts_for_nothing_and_a_silent_server_times_out() {
    let (private, silent) = (GitServer::start(), GitServer::start());
    private.repository("web", &[]).await;
    private.requires("x-access-token", "sesame");
    silent.behaves(Manner::Silent);
    with_real_engines(async |case| {
        if case.lacks(Lack::HostAddress) {
            return;
        }
        let running = with_git(case).await;
        let mut place = place(&running).await;
        place.clone_timeout = Duration::from_secs(5);
        let wanted = [repo(&private, "web", "/workspace/a"), repo(&silent, "web", "/workspace/b")];
        let step = repos(&place, &wanted, None).await;
        assert_eq!(step.status, Status::Failed);
        assert!(errors(&step)[0].contains("could not read Username"), "{step:#?}");
        assert_eq!(errors(&step)[1], "ended after 5 s");
        let left = sh(&running, "ps -o comm | grep -c '^git' || true; ls -A /workspace").await;
        assert_eq!(left, "0\n", "no program and no half of a clone is left");
    })
    .await;
}

#[tokio::test]
async fn an_image_without_git_says_so() {
    let server = GitServer::start();
    with_a_real_guest(async |running| {
        let place = place(running).await;
        let step = repos(&place, &[repo(&server, "web", "/workspace/web")], None).await;
        assert_eq!(
            (errors(&step), step.items[0].code.as_deref()),
            (vec!["git is not in the image"], Some("unsupported"))
        );
    })
    .await;
}

#[tokio::test]
async fn dotfiles_are_set_up_as_the_user() {
    let server = GitServer::start();
    let install = "#!/bin/sh\nset -e\ncp beside \"$HOME/x\"\ntest \"$(id -u)\" = 1000\n";
    server.repository("good", &[("install.sh", install), ("beside", "mine")]).await;
    server.repository("bad", &[("script/setup", "echo not by name; exit 3")]).await;
    server.repository("plain", &[(".bashrc", "mine"), (".vimrc", "mine")]).await;
    with_real_engines(async |case| {
        if case.lacks(Lack::HostAddress) {
            return;
        }
        let running = with_git(case).await;
        let place = place(&running).await;
        sh(&running, "echo theirs >/home/agent/.bashrc").await;
        let set_up = async |name: &str| {
            let target = place.home.join(&format!(".{name}")).unwrap();
            let it = Dotfiles { url: url(&server.url(name)), branch: None, target, script: None };
            dotfiles(&place, &it, None).await
        };
        let step = set_up("good").await;
        assert_eq!((step.status, step.items[0].name.as_str()), (Status::Success, "install.sh"), "{step:#?}");
        assert_eq!(sh(&running, "stat -c %u /home/agent/x; cat /home/agent/x").await, "1000\nmine");
        let step = set_up("bad").await;
        assert_eq!((step.status, step.error.as_deref()), (Status::Failed, Some("script/setup: exit 3")), "{step:#?}");
        let step = set_up("plain").await;
        assert_eq!(step.status, Status::Success, "{step:#?}");
        let seen = sh(&running, "cd /home/agent; cat .bashrc .vimrc; readlink .bashrc; cat .bashrc.orig").await;
        assert_eq!(seen, "minemine.plain/.bashrc\ntheirs\n");
    })
    .await;
}
