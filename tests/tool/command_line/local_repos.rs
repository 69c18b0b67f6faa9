//! `create --repo DIR`: a clone of a repository of this host.

use std::path::Path;

use serde_json::{Value, json};

use crate::engines::git;
use crate::tool::debian::debian;
use crate::tool::person::step;
use crate::tool::{Tool, with_rootful_engine};

/// A repository with two branches, of which the second is checked out.
async fn repository(dir: &Path, origin: Option<&str>) {
    std::fs::create_dir_all(dir).unwrap();
    let run = async |words: &[&str]| drop(git(dir, words, "").await);
    run(&["init", "--quiet", "--initial-branch=main"]).await;
    for (file, message) in [("a", "first"), ("b", "second")] {
        std::fs::write(dir.join(file), message).unwrap();
        run(&["add", file]).await;
        run(&["-c", "user.name=A", "-c", "user.email=a@b", "commit", "--quiet", "-m", message]).await;
    }
    run(&["checkout", "--quiet", "-b", "mine"]).await;
    run(&["tag", "v1"]).await;
    if let Some(origin) = origin {
        run(&["remote", "add", "origin", origin]).await;
    }
}

async fn made(tool: &Tool<'_>, repo: &str) -> Value {
    tool.made(json!({ "image": debian(tool.case).await, "repos": [{ "url": repo }] })).await
}

#[tokio::test]
async fn a_directory_is_cloned_with_its_branches_and_its_origin_and_stays_as_it_was() {
    with_rootful_engine("", async |tool| {
        let dir = tool.work().join("mine");
        repository(&dir, Some("https://git.example.org/team/mine.git")).await;
        std::fs::write(dir.join("a"), "changed").unwrap();
        std::fs::write(dir.join("new"), "untracked").unwrap();
        let answer = made(tool, "./mine").await;
        let (name, report) = (answer["container"].as_str().unwrap(), step(&answer, "repos"));
        assert_eq!(report["status"], "success", "{answer:#}");
        assert!(report["detail"].as_str().unwrap().contains("2 files of `mine` are not committed"), "{report:#}");
        let git = |words: &str| format!("git -C /workspace/mine {words}");
        assert_eq!(tool.prints(name, &git("log --format=%s")).await, "second\nfirst");
        assert_eq!(tool.prints(name, &git("symbolic-ref --short HEAD")).await, "mine");
        assert_eq!(tool.prints(name, &git("remote get-url origin")).await, "https://git.example.org/team/mine.git");
        assert_eq!(tool.prints(name, &git("rev-parse origin/main v1 | wc -l")).await, "2");
        assert_eq!(tool.prints(name, "cat /workspace/mine/a; ls /workspace/mine").await, "firsta\nb");
        assert_eq!(tool.prints(name, "ls /tmp | grep -c bundle || true").await, "0");
        // It is a copy: changes there do not appear here.
        tool.prints(name, "echo inside > /workspace/mine/b").await;
        assert_eq!(std::fs::read_to_string(dir.join("b")).unwrap(), "second");
        assert_eq!(std::fs::read_to_string(dir.join("a")).unwrap(), "changed");
    })
    .await;
}

#[tokio::test]
async fn a_clone_without_an_origin_has_all_branches_and_no_credential() {
    with_rootful_engine("", async |tool| {
        for (name, origin) in [("alone", None), ("secret", Some("https://me:hunter2@git.example.org/x.git"))] {
            repository(&tool.work().join(name), origin).await;
            let dir = tool.work().join(name);
            let answer = made(tool, &format!("file://{}", dir.display())).await;
            assert_eq!(step(&answer, "repos")["status"], "success", "{answer:#}");
            let container = answer["container"].as_str().unwrap();
            let at = format!("/workspace/{name}");
            let branches = format!("git -C {at} for-each-ref --format='%(refname)' refs/heads; git -C {at} remote");
            assert_eq!(tool.prints(container, &branches).await, "refs/heads/main\nrefs/heads/mine");
            assert_eq!(tool.prints(container, &format!("grep -rc hunter2 {at}/.git/config || true")).await, "0");
        }
    })
    .await;
}

#[tokio::test]
async fn directories_outside_the_roots_are_not_cloned_under_any_name() {
    with_rootful_engine("", async |tool| {
        let image = debian(tool.case).await;
        let private = tool.home().join("private");
        repository(&private, None).await;
        let refused = tool.create(json!({ "image": image, "repos": [{ "url": private.display().to_string() }] })).await;
        assert_eq!(refused["details"]["rule"], "copy.root", "{refused:#}");
        // A file of the directory that leads out of it, and another user's objects.
        let work = tool.work();
        std::fs::create_dir(work.join("leads")).unwrap();
        std::fs::write(work.join("leads/.git"), format!("gitdir: {}/.git\n", private.display())).unwrap();
        repository(&work.join("borrows"), None).await;
        let alternates = work.join("borrows/.git/objects/info/alternates");
        std::fs::write(alternates, format!("{}/.git/objects\n", private.display())).unwrap();
        std::fs::create_dir(work.join("nothing")).unwrap();
        for name in ["leads", "borrows", "nothing"] {
            let answer = made(tool, &format!("./{name}")).await;
            let item = &step(&answer, "repos")["items"][0];
            assert_eq!((&item["name"], &item["status"]), (&name.into(), &"failed".into()), "{answer:#}");
            let here = format!("ls -A /workspace/{name} 2>/dev/null | wc -l");
            assert_eq!(tool.prints(answer["container"].as_str().unwrap(), &here).await, "0");
        }
    })
    .await;
}
