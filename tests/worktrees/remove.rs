//! Removing worktrees, and what is saved of them (X35 to X38).

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_lifecycle::{SaveManifest, SavedKind};
use coracle_protocol::ExecState;
use coracle_sandbox::Code;
use coracle_types::{Command, ContainerPath, Exec, JobId};
use coracle_worktrees::changes::{DiffOptions, PushRequest};
use coracle_worktrees::remove::RemoveRequest;
use coracle_worktrees::{WorktreeManager, WorktreeSettings};

use super::{Bench, code, id, settings, with_bench};
use crate::engines::git;

async fn is_gone(bench: &Bench<'_>, name: &str) -> bool {
    let script = format!(
        "ls -d worktrees/{name} repo.git/worktrees/{name} 2>/dev/null; git --git-dir=repo.git branch --list coracle/{name}"
    );
    bench.sh(&format!("{script} || true")).await.is_empty()
}

#[tokio::test]
async fn x35_unsaved_work_is_bundled_before_removal() {
    with_bench(async |bench| {
        let made = bench.created("a").await;
        bench.commit("a", "committed", "1").await;
        bench.sh("cd worktrees/a && echo changed > README.md && echo new > new && rm src/main.rs && echo x > staged && git add staged").await;
        let removed = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap();
        let saved = removed.saved.unwrap();
        assert_eq!((removed.removed, saved.kind, saved.files), (true, SavedKind::Git, 4));
        assert!(is_gone(bench, "a").await);
        assert!(bench.saves().contains(&saved.location) && bench.saves().len() == 1);
        let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(saved.location.join("manifest.json")).unwrap()).unwrap();
        let item = &manifest["items"][0];
        assert_eq!((item["bundle"].as_str(), item["base_commit"].as_str()), (Some("new"), Some(&*made.base_commit)));
        let clone = bench.clone().await;
        let it = clone.path().join("it");
        let bundle = saved.location.join("a.bundle").display().to_string();
        git(&it, &["fetch", "--quiet", &bundle, "+refs/*:refs/saved/*"], "").await;
        let reference = item["salvage"].as_str().unwrap().replace("refs/", "refs/saved/");
        git(&it, &["checkout", "--quiet", &reference], "").await;
        let read = |name: &str| std::fs::read_to_string(it.join(name)).unwrap();
        assert_eq!([read("README.md"), read("new"), read("staged"), read("committed")], ["changed\n", "new\n", "x\n", "1"]);
        assert!(!it.join("src/main.rs").exists());
        // A second time there is nothing to do.
        assert!(!bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap().removed);
    })
    .await;
}

/// Repeatedly writes a number to a file of the worktree, and prints it afterwards.
const COUNTS: &str = "n=0; while :; do n=$((n+1)); echo $n >> LOG && echo $n; sleep 0.02; done";

#[tokio::test]
async fn commands_end_before_the_work_is_saved_and_what_they_wrote_is_in_the_save() {
    with_bench(async |bench| {
        let made = bench.created("a").await;
        let other = bench.try_create("b").await.unwrap();
        let link = &bench.inside.link;
        let start = async |script: &str, workdir: ContainerPath, env| {
            let mut exec = Exec::new(Command::Shell(script.to_owned()), bench.inside.agent, workdir);
            exec.env = env;
            JobId::parse(&link.start(exec, None).await.unwrap().job).unwrap()
        };
        let tree = bench.inside.tree_path(&id("a"));
        // One process works elsewhere; its variables name its workflow.
        let elsewhere = COUNTS.replace("LOG", "worktrees/a/elsewhere");
        let mut ended = vec![("elsewhere", start(&elsewhere, bench.inside.root.clone(), made.env()).await)];
        if bench.running.case.is_real() {
            ended.push(("within", start(&COUNTS.replace("LOG", "within"), tree, BTreeMap::new()).await));
        }
        let of_other = start("sleep 600", bench.inside.tree_path(&id("b")), other.env()).await;
        for (name, _) in &ended {
            bench.sh(&format!("until [ -s worktrees/a/{name} ]; do sleep 0.05; done")).await;
        }
        let saved = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap().saved.unwrap();
        let clone = bench.clone().await;
        let it = clone.path().join("it");
        let bundle = saved.location.join("a.bundle").display().to_string();
        git(&it, &["fetch", "--quiet", &bundle, "+refs/coracle/*:refs/saved/*"], "").await;
        let reference = git(&it, &["for-each-ref", "--format=%(refname)", "refs/saved"], "").await;
        git(&it, &["checkout", "--quiet", reference.trim()], "").await;
        for (name, job) in ended {
            assert_ne!(link.job(&job).await.unwrap().end.state, ExecState::Running, "{name}");
            let (_, printed) = link.tail(&job, 1, 1 << 10).await.unwrap();
            let last = String::from_utf8(printed).unwrap();
            let retained = std::fs::read_to_string(it.join(name)).unwrap();
            assert!(retained.lines().any(|line| line == last.trim()), "{name}: {last} is not in the save");
        }
        assert_eq!(link.job(&of_other).await.unwrap().end.state, ExecState::Running, "another workflow goes on");
        link.cancel(&of_other, Duration::ZERO).await.unwrap();
        assert!(is_gone(bench, "a").await);
    })
    .await;
}

#[tokio::test]
async fn a_damaged_record_does_not_keep_the_work_from_being_saved_and_removed() {
    with_bench(async |bench| {
        bench.created("a").await;
        bench.commit("a", "committed", "1").await;
        let file = bench.state.path().join(format!("sandboxes/{}/workflows/a.json", bench.inside.key));
        std::fs::write(&file, "{").unwrap();
        let listing = bench.manager.list(&bench.inside).await.unwrap();
        assert!(listing.listed.is_empty() && listing.warnings[0].message.contains("damaged"), "{listing:?}");
        let removed = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap();
        let bundle = removed.saved.unwrap().location.join("a.bundle").display().to_string();
        let clone = bench.clone().await;
        let it = clone.path().join("it");
        git(&it, &["fetch", "--quiet", &bundle, "coracle/a"], "").await;
        git(&it, &["checkout", "--quiet", "FETCH_HEAD"], "").await;
        assert_eq!(std::fs::read_to_string(it.join("committed")).unwrap(), "1");
        assert!(is_gone(bench, "a").await && !file.exists());
        // A record of a newer version is not touched.
        bench.try_create("n").await.unwrap();
        let newer = file.with_file_name("n.json");
        std::fs::write(&newer, "{\"schema\":2}").unwrap();
        let refused = bench.manager.remove(&bench.inside, &id("n"), &bench.removal()).await;
        assert_eq!(code(refused), Code::NewerVersion);
        assert_eq!(std::fs::read_to_string(&newer).unwrap(), "{\"schema\":2}");
        assert!(!is_gone(bench, "n").await);
    })
    .await;
}

#[tokio::test]
async fn x35_the_repositorys_claims_about_its_remote_are_not_trusted() {
    with_bench(async |bench| {
        bench.created("a").await;
        let one = bench.commit("a", "one", "1").await;
        bench.commit("a", "two", "2").await;
        // A commit that the remote does not have.
        bench.sh(&format!("git --git-dir=repo.git update-ref refs/remotes/origin/forged {one}")).await;
        let saved = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap().saved.unwrap();
        let clone = tempfile::tempdir().unwrap();
        let bundle = saved.location.join("a.bundle").display().to_string();
        git(clone.path(), &["clone", "--quiet", "-b", "coracle/a", &bundle, "it"], "").await;
        assert_eq!(std::fs::read_to_string(clone.path().join("it/one")).unwrap(), "1");
    })
    .await;
}

#[tokio::test]
async fn x36_without_room_for_the_bundle_nothing_is_removed() {
    with_bench(async |bench| {
        bench.created("a").await;
        let tip = bench.commit("a", "one", "1").await;
        bench.sh("echo x > worktrees/a/x").await;
        let small = WorktreeSettings { save_max: 10, ..settings(bench.state.path()) };
        let refused = WorktreeManager::new(small).unwrap().remove(&bench.inside, &id("a"), &bench.removal()).await;
        assert_eq!(code(refused), Code::SaveFailed);
        // Where the directory for saves should be there is a file.
        std::fs::write(bench.state.path().join("file"), "").unwrap();
        let mut nowhere = bench.removal();
        nowhere.save_to.dir = bench.state.path().join("file/box");
        assert_eq!(code(bench.manager.remove(&bench.inside, &id("a"), &nowhere).await), Code::SaveFailed);
        assert!(bench.saves().is_empty());
        assert_eq!(bench.sh("cat worktrees/a/x && git -C worktrees/a rev-parse coracle/a").await, format!("x\n{tip}"));
        assert_eq!(bench.sh("git --git-dir=repo.git for-each-ref refs/coracle").await, "");
        let discard = RemoveRequest { discard: true, ..bench.removal() };
        assert_eq!(code(bench.manager.remove(&bench.inside, &id("a"), &discard).await), Code::PolicyDenied);
        let leave = WorktreeSettings { allow_discard: true, ..settings(bench.state.path()) };
        let removed = WorktreeManager::new(leave).unwrap().remove(&bench.inside, &id("a"), &discard).await.unwrap();
        assert!(removed.removed && removed.saved.is_none() && is_gone(bench, "a").await);
    })
    .await;
}

#[tokio::test]
async fn x37_pushed_work_is_removed_without_a_bundle() {
    with_bench(async |bench| {
        bench.created("a").await;
        bench.commit("a", "one", "1").await;
        bench.manager.push(&bench.inside, &id("a"), &PushRequest::default()).await.unwrap();
        let removed = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap();
        assert!(removed.removed && removed.saved.is_none() && is_gone(bench, "a").await);
        assert!(bench.saves().is_empty());
        let missing = bench.manager.remove(&bench.inside, &id("none"), &bench.removal()).await.unwrap();
        assert!(!missing.removed && missing.saved.is_none());
        // Its directory is removed, but its commits exist.
        bench.try_create("b").await.unwrap();
        bench.commit("b", "other", "2").await;
        bench.sh("rm -r worktrees/b").await;
        assert!(bench.manager.remove(&bench.inside, &id("b"), &bench.removal()).await.unwrap().saved.is_some());
        assert!(is_gone(bench, "b").await);
    })
    .await;
}

#[tokio::test]
async fn x38_a_worktree_that_git_cannot_read_is_saved_as_an_archive() {
    with_bench(async |bench| {
        bench.created("a").await;
        bench.sh("cd worktrees/a && echo nonsense > .git && echo mine > mine && ln -s mine in && ln -s /etc out && mkdir -p d/e && echo x > d/e/x").await;
        let saved = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap().saved.unwrap();
        assert_eq!((saved.kind, saved.files), (SavedKind::Tree, 6));
        assert!(is_gone(bench, "a").await);
        let mut tar = tar::Archive::new(std::fs::File::open(saved.location.join("a.tar")).unwrap());
        let names: Vec<_> =
            tar.entries().unwrap().map(|it| it.unwrap().path().unwrap().display().to_string()).collect();
        for name in ["a/mine", "a/in", "a/d/e/x", "a/.git", "a/src/main.rs"] {
            assert!(names.contains(&name.to_owned()), "{name}: {names:?}");
        }
        let manifest = std::fs::read_to_string(saved.location.join("manifest.json")).unwrap();
        assert!(manifest.contains("a link out of the tree"), "{manifest}");
    })
    .await;
}

#[tokio::test]
async fn x38_commits_are_saved_where_git_cannot_read_the_worktree() {
    with_bench(async |bench| {
        for (name, breaks) in [("a", "echo nonsense > .git"), ("b", "git switch -q --orphan pages && echo page > page")]
        {
            bench.created(name).await;
            let tip = bench.commit(name, "one", "1").await;
            bench.sh(&format!("cd worktrees/{name} && {breaks}")).await;
            let removed = bench.manager.remove(&bench.inside, &id(name), &bench.removal()).await.unwrap();
            assert_eq!(removed.saved.as_ref().map(|it| it.kind), Some(SavedKind::Tree), "{removed:?}");
            assert!(is_gone(bench, name).await);
            let clone = bench.clone().await;
            let it = clone.path().join("it");
            let bundle = removed.also_saved[0].location.join(format!("{name}.bundle")).display().to_string();
            git(&it, &["fetch", "--quiet", &bundle, "+refs/*:refs/saved/*"], "").await;
            assert_eq!(git(&it, &["rev-parse", &format!("refs/saved/heads/coracle/{name}")], "").await, tip);
        }
    })
    .await;
}

#[tokio::test]
async fn commits_of_a_detached_head_stay_while_git_can_write_no_reference() {
    with_bench(async |bench| {
        bench.created("a").await;
        bench.sh("cd worktrees/a && git switch -q --detach").await;
        let tip = bench.commit("a", "one", "1").await;
        // As on a full disk. Git cannot add the repository within either.
        bench.sh("rm -rf repo.git/refs/coracle && echo > repo.git/refs/coracle && git init -q worktrees/a/sub").await;
        let refused = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await;
        assert_eq!(code(refused), Code::SaveFailed);
        assert_eq!(bench.sh("git -C worktrees/a rev-parse HEAD").await, tip);
        // A branch that has them needs no other reference.
        bench.sh(&format!("cd worktrees/a && git switch -q coracle/a && git merge -q {tip}")).await;
        let removed = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap();
        assert!(removed.also_saved[0].kind == SavedKind::Git && removed.kept_branch.is_none(), "{removed:?}");
        assert!(is_gone(bench, "a").await);
    })
    .await;
}

#[tokio::test]
async fn commits_of_a_detached_head_are_saved_despite_a_damaged_branch() {
    with_bench(async |bench| {
        bench.created("a").await;
        let lost = bench.commit("a", "one", "1").await;
        bench.commit("a", "two", "2").await;
        bench.sh("cd worktrees/a && git switch -q --detach origin/main").await;
        let mine = bench.commit("a", "mine", "3").await;
        let (dir, file) = lost.split_at(2);
        bench.sh(&format!("rm -f repo.git/objects/{dir}/{file}")).await;
        let refused = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await;
        assert_eq!(code(refused), Code::SaveFailed);
        assert_eq!(bench.sh("git -C worktrees/a rev-parse HEAD").await, mine);
    })
    .await;
}

#[tokio::test]
async fn a_branch_whose_commits_cannot_be_saved_stays_and_is_reported() {
    with_bench(async |bench| {
        for (name, breaks, lost, branch) in [
            ("a", "rm -r worktrees/a", "", "coracle/a"),
            ("b", "echo work > worktrees/b/new", "", "coracle/b"),
            ("c", "git -C worktrees/c switch -q -c fix", "", "fix"),
            ("d", "git -C worktrees/d rm -q one && git -C worktrees/d commit -qm gone", ":one", "coracle/d"),
            ("e", "git -C worktrees/e switch -q --no-track -c well origin/main", "", "coracle/e"),
        ] {
            bench.created(name).await;
            let commit = bench.commit(name, "one", name).await;
            bench.commit(name, "two", "2").await;
            let lost = bench.sh(&format!("git --git-dir=repo.git rev-parse {commit}{lost}")).await;
            let (dir, file) = lost.trim().split_at(2);
            bench.sh(&format!("{breaks} && rm -f repo.git/objects/{dir}/{file}")).await;
            let removed = bench.manager.remove(&bench.inside, &id(name), &bench.removal()).await.unwrap();
            assert_eq!((removed.removed, removed.kept_branch.as_deref()), (true, Some(branch)), "{removed:?}");
            let files = (name != "a").then_some(SavedKind::Tree);
            assert_eq!(removed.saved.map(|it| it.kind), files, "{name}");
            bench.sh(&format!("git --git-dir=repo.git rev-parse --verify refs/heads/{branch}")).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_repository_without_a_commit_in_a_worktree_is_named_and_keeps_nothing_from_being_saved() {
    with_bench(async |bench| {
        bench.created("a").await;
        bench.commit("a", "one", "1").await;
        bench.sh("cd worktrees/a && git init -q sub && echo deep > sub/deep").await;
        let refused = bench.manager.diff(&bench.inside, &id("a"), &DiffOptions::default()).await.unwrap_err();
        assert!(refused.message.contains("`sub`") && refused.hint.is_some(), "{refused:?}");
        let removed = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap();
        let saved = removed.saved.unwrap();
        assert!(saved.location.join("a.tar").exists() && removed.also_saved[0].kind == SavedKind::Git, "{saved:?}");
        assert!(is_gone(bench, "a").await);
    })
    .await;
}

#[tokio::test]
async fn x38_a_name_with_a_replacement_character_is_preserved_and_one_that_is_not_utf8_is_reported() {
    with_bench(async |bench| {
        bench.created("a").await;
        let script = "cd worktrees/a && echo nonsense > .git && echo mine > \"$(printf 'a\\357\\277\\275b')\" \
                   && mkdir \"$(printf 'd\\357\\277\\275')\" && echo deep > \"$(printf 'd\\357\\277\\275/e')\"";
        bench.sh(script).await;
        bench.sh("cd worktrees/a && echo lost > \"$(printf 'a\\377b')\"").await;
        for alone in [false, true] {
            if alone {
                bench.sh("cd worktrees/a && rm a\u{fffd}b").await;
            }
            let failure = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap_err();
            assert_eq!(
                (failure.code, bench.saves().len()),
                (Code::SaveFailed, 0),
                "alone: {alone}: {}",
                failure.message
            );
            assert!(failure.message.contains("a name that cannot be saved"), "{}", failure.message);
        }
        bench.sh("cd worktrees/a && mv \"$(printf 'a\\377b')\" a\u{fffd}b").await;
        let saved = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap().saved.unwrap();
        let mut tar = tar::Archive::new(std::fs::File::open(saved.location.join("a.tar")).unwrap());
        let names: Vec<_> =
            tar.entries().unwrap().map(|it| it.unwrap().path().unwrap().display().to_string()).collect();
        for name in ["a/a\u{fffd}b", "a/d\u{fffd}/e"] {
            assert!(names.contains(&name.to_owned()), "{name}: {names:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn x35_work_saved_before_an_interrupted_removal_is_not_saved_twice() {
    with_bench(async |bench| {
        let bundles = |name: &str| bench.saves().into_iter().filter(|it| it.join(name).exists()).count();
        for (name, more) in [("a", false), ("b", true)] {
            bench.created(name).await;
            bench.commit(name, "one", "1").await;
            bench.sh(&format!("cd worktrees/{name} && echo 2 > two")).await;
            let (bundle, id, removal) = (format!("{name}.bundle"), id(name), bench.removal());
            // Another process locks the list of worktrees, so nothing is removed yet, and the waiting call is
            // interrupted.
            let lock = bench.state.path().join("sandboxes").join(&bench.inside.key).join("worktrees.lock");
            let lock = std::fs::File::options().write(true).open(lock).unwrap();
            lock.lock().unwrap();
            let saved = async {
                while bundles(&bundle) == 0 {
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
            };
            tokio::select! {
                removed = bench.manager.remove(&bench.inside, &id, &removal) => panic!("{removed:?}"),
                () = saved => {}
            }
            lock.unlock().unwrap();
            if more {
                bench.sh("cd worktrees/b && echo 3 > three").await;
            }
            let removed = bench.manager.remove(&bench.inside, &id, &removal).await.unwrap();
            assert!(removed.saved.unwrap().location.join(&bundle).exists());
            assert_eq!((bundles(&bundle), is_gone(bench, name).await), (if more { 2 } else { 1 }, true), "{name}");
        }
        // And the rest of the repository.
        bench.created("c").await;
        bench.commit("c", "one", "1").await;
        bench.sh("cd worktrees/c && git branch mine && mkdir ../unknown && echo x > ../unknown/x").await;
        let first = bench.manager.save_rest(&bench.inside, &bench.removal()).await.unwrap();
        assert_eq!(first.len(), 2, "{first:?}");
        assert_eq!(bench.manager.save_rest(&bench.inside, &bench.removal()).await.unwrap(), first);
    })
    .await;
}

#[tokio::test]
async fn a_repository_within_a_worktree_is_saved_too() {
    with_bench(async |bench| {
        bench.created("a").await;
        bench
            .sh("cd worktrees/a && git init -q sub && cd sub && echo deep > deep && git add deep && git commit -qm x")
            .await;
        bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap();
        let saves = bench.saves();
        let archive = saves.iter().map(|it| it.join("a.tar")).find(|it| it.exists()).unwrap();
        let mut tar = tar::Archive::new(std::fs::File::open(archive).unwrap());
        let names: Vec<_> =
            tar.entries().unwrap().map(|it| it.unwrap().path().unwrap().display().to_string()).collect();
        assert!(names.contains(&"a/sub/deep".to_owned()) && names.contains(&"a/sub/.git/HEAD".to_owned()), "{names:?}");
        assert!(is_gone(bench, "a").await);
    })
    .await;
}

#[tokio::test]
async fn files_outside_the_worktrees_are_saved_before_the_sandbox_is_removed() {
    with_bench(async |bench| {
        bench.created("a").await;
        assert!(bench.manager.save_rest(&bench.inside, &bench.removal()).await.unwrap().is_empty());
        bench.commit("a", "one", "1").await;
        let extra = "cd worktrees/a && git branch mine && git tag marked && echo 2 > two && git add two && git stash -q \
                     && cd ../.. && mkdir -p worktrees/.orphans/b-1 && echo kept > worktrees/.orphans/b-1/kept";
        bench.sh(extra).await;
        bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap();
        let discard = RemoveRequest { discard: true, ..bench.removal() };
        assert_eq!(code(bench.manager.save_rest(&bench.inside, &discard).await), Code::PolicyDenied);
        let saved = bench.manager.save_rest(&bench.inside, &bench.removal()).await.unwrap();
        assert_eq!(saved.iter().map(|it| it.kind).collect::<Vec<_>>(), [SavedKind::Git, SavedKind::Tree]);
        let clone = bench.clone().await;
        let (it, bundle) = (clone.path().join("it"), saved[0].location.join("repository.bundle").display().to_string());
        git(&it, &["fetch", "--quiet", &bundle, "+refs/*:refs/saved/*"], "").await;
        assert_eq!(git(&it, &["show", "refs/saved/heads/mine:one"], "").await, "1");
        assert_eq!(git(&it, &["show", "refs/saved/tags/marked:one"], "").await, "1");
        assert_eq!(git(&it, &["show", "refs/saved/stash:two"], "").await, "2");
        let mut tar = tar::Archive::new(std::fs::File::open(saved[1].location.join("orphans.tar")).unwrap());
        let names: Vec<_> =
            tar.entries().unwrap().map(|it| it.unwrap().path().unwrap().display().to_string()).collect();
        assert!(names.contains(&".orphans/b-1/kept".to_owned()), "{names:?}");
    })
    .await;
}

/// Another crate can read the save, for `coracle saved`.
#[tokio::test]
async fn a_save_is_one_for_those_who_restore_it() {
    with_bench(async |bench| {
        bench.created("a").await;
        bench.sh("echo x > worktrees/a/x").await;
        let saved = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap().saved.unwrap();
        let manifest: SaveManifest =
            serde_json::from_slice(&std::fs::read(saved.location.join("manifest.json")).unwrap()).unwrap();
        assert_eq!((manifest.items.len(), manifest.bytes()), (1, saved.bytes));
        let save =
            coracle_lifecycle::Save { name: "box".into(), time: String::new(), location: saved.location, manifest };
        let into = tempfile::tempdir().unwrap();
        let restored = save.unpack(into.path()).unwrap();
        assert!(matches!(restored[0].commits, coracle_lifecycle::Commits::Bundle(_)), "{restored:?}");
    })
    .await;
}
