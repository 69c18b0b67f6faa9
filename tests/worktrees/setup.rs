//! Repositories and worktrees are created, found again, and repaired (X20 to X27, X39).

use std::time::Instant;

use coracle_sandbox::Code;
use coracle_worktrees::create::{CreateRequest, SetupRequest, SourceChanges};
use coracle_worktrees::{WorktreeManager, WorktreeSettings};

use super::{code, id, settings, with_bench};
use crate::engines::git;

#[tokio::test]
async fn x20_a_worktree_is_at_the_remotes_commit_on_a_branch_of_its_own() {
    with_bench(async |bench| {
        let tip = git(&bench.server.dir("web"), &["rev-parse", "main"], "").await;
        let repo = bench.manager.setup_repo(&bench.inside, &bench.ask()).await.unwrap();
        assert_eq!((repo.head.as_deref(), repo.branches, repo.warnings.len()), (Some("main"), 1, 0));
        let begun = Instant::now();
        let made = bench.try_create("issue-1").await.unwrap();
        eprintln!("created in {:?} on {}", begun.elapsed(), bench.running.case.engine());
        assert_eq!((made.path.as_str(), made.branch.as_str()), ("/workspace/worktrees/issue-1", "coracle/issue-1"));
        assert_eq!((made.base.as_str(), &made.base_commit, made.created), ("main", &tip, true));
        assert_eq!(made.env()["PORT"], made.ports.0.to_string());
        let seen = bench
            .sh("cd worktrees/issue-1 && git rev-parse HEAD && git branch --show-current && cat README.md .git")
            .await;
        assert_eq!(seen, format!("{tip}\ncoracle/issue-1\nhello\ngitdir: ../../repo.git/worktrees/issue-1"));
        // It is not pruned, and has no upstream to push to.
        bench.sh("git --git-dir=repo.git worktree prune --expire=now && git --git-dir=repo.git gc --quiet").await;
        assert_eq!(
            bench.sh("cat repo.git/worktrees/issue-1/locked; cd worktrees/issue-1; git status --porcelain -b").await,
            "coracle\n## coracle/issue-1"
        );
    })
    .await;
}

#[tokio::test]
async fn x21_a_new_commit_of_the_remote_is_the_next_base() {
    with_bench(async |bench| {
        let first = bench.created("issue-1").await;
        git(&bench.server.dir("web"), &["branch", "old"], "").await;
        let second = bench.server.commit("web", "main", &[("b", "b\n")]).await;
        bench.set_up().await;
        let made = bench.try_create("issue-2").await.unwrap();
        assert_eq!(made.base_commit, second);
        assert_ne!(made.base_commit, first.base_commit);
        // A branch that became a directory of branches, and a deleted one.
        git(&bench.server.dir("web"), &["branch", "-m", "old", "old/er"], "").await;
        bench.set_up().await;
        let ask = CreateRequest { base: Some("old/er".into()), ..CreateRequest::new(id("issue-3")) };
        assert_eq!(bench.manager.create(&bench.inside, &ask).await.unwrap().base_commit, first.base_commit);
        let refs = bench.sh("git --git-dir=repo.git for-each-ref --format='%(refname)' refs/remotes").await;
        assert_eq!(refs, "refs/remotes/origin/HEAD\nrefs/remotes/origin/main\nrefs/remotes/origin/old/er");
    })
    .await;
}

#[tokio::test]
async fn x22_a_worktree_that_is_there_stays_as_it_is() {
    with_bench(async |bench| {
        let made = bench.created("a").await;
        bench.sh("echo mine > worktrees/a/README.md; echo new > worktrees/a/new").await;
        let again = bench.try_create("a").await.unwrap();
        assert_eq!((again.path, again.created, again.ports), (made.path, false, made.ports));
        assert_eq!(bench.sh("cat worktrees/a/README.md worktrees/a/new").await, "mine\nnew");
    })
    .await;
}

#[tokio::test]
async fn x23_an_incomplete_worktree_is_completed() {
    with_bench(async |bench| {
        bench.created("a").await;
        let tip = bench.commit("a", "kept", "kept").await;
        // Its directory is removed, and its entry is locked.
        bench.sh("rm -r worktrees/a").await;
        let again = bench.try_create("a").await.unwrap();
        assert!(again.created && again.resumed, "{again:?}");
        assert_eq!(bench.sh("git -C worktrees/a rev-parse HEAD; cat worktrees/a/kept").await, format!("{tip}\nkept"));
        // Only the branch is left.
        bench.sh("rm -r worktrees/a repo.git/worktrees/a").await;
        assert!(bench.try_create("a").await.unwrap().resumed);
        // A directory that is unknown to the repository.
        bench.sh("rm -r repo.git/worktrees/a; echo mine > worktrees/a/mine").await;
        let again = bench.try_create("a").await.unwrap();
        assert_eq!(again.warnings[0].code, "orphan_moved");
        assert_eq!(bench.sh("cat worktrees/.orphans/a-*/mine; ls worktrees/a").await, "mine\nREADME.md\nkept\nsrc");
        // Its branch is in use elsewhere.
        bench.sh("git --git-dir=repo.git worktree add -q -b coracle/b worktrees/other refs/remotes/origin/main").await;
        assert_eq!(code(bench.try_create("b").await), Code::BranchConflict);
    })
    .await;
}

/// A checkout of the user with every kind of change, and with traps that would run.
async fn checkout(canary: &std::path::Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    git(at, &["init", "--quiet", "-b", "main", "."], "").await;
    let runs = format!("touch {}; cat", canary.display());
    for (key, value) in
        [("user.name", "P"), ("user.email", "p@p"), ("filter.big.clean", &runs), ("core.fsmonitor", &runs)]
    {
        git(at, &["config", key, value], "").await;
    }
    std::fs::write(at.join(".gitignore"), "*.log\n").unwrap();
    std::fs::write(at.join(".gitattributes"), "*.big filter=big\n").unwrap();
    for name in ["same", "changed", "gone", "staged", "kept.big"] {
        std::fs::write(at.join(name), "old\n").unwrap();
    }
    git(at, &["-c", "core.fsmonitor=false", "-c", "filter.big.clean=cat", "add", "-A"], "").await;
    git(at, &["-c", "core.fsmonitor=false", "commit", "--quiet", "-m", "x"], "").await;
    for (name, content) in [
        ("changed", "new\n"),
        ("staged", "new\n"),
        ("fresh", "new\n"),
        ("x.log", "x"),
        ("kept.big", "larger\n"),
        ("secret", "x"),
    ] {
        std::fs::write(at.join(name), content).unwrap();
    }
    git(at, &["-c", "core.fsmonitor=false", "add", "staged"], "").await;
    std::fs::remove_file(at.join("gone")).unwrap();
    std::fs::write(at.join(".git/info/exclude"), "secret\n").unwrap();
    std::os::unix::fs::symlink("same", at.join("link")).unwrap();
    git(at, &["init", "--quiet", "nested"], "").await;
    git(&at.join("nested"), &["config", "core.fsmonitor", &runs], "").await;
    std::fs::write(at.join("nested/a"), "x").unwrap();
    let _ = std::fs::remove_file(canary);
    dir
}

#[tokio::test]
async fn x20_uncommitted_files_of_a_directory_are_reported_or_included() {
    with_bench(async |bench| {
        let canary = bench.state.path().join("canary");
        let source = checkout(&canary).await;
        let seen = async || {
            let refs = git(source.path(), &["for-each-ref"], "").await;
            let files: Vec<_> = walk(source.path()).into_iter().map(|it| (it.clone(), std::fs::read(it).unwrap())).collect();
            (refs, files)
        };
        let before = seen().await;
        let setup = SetupRequest { source: source.path().display().to_string(), replace: false };
        bench.manager.setup_repo(&bench.inside, &setup).await.unwrap();
        let reported = bench.try_create("without").await.unwrap();
        assert_eq!(reported.warnings[0].code, "uncommitted_not_included");
        assert!(reported.warnings[0].message.starts_with("5 files"), "{:?}", reported.warnings);
        let ask = CreateRequest { uncommitted: SourceChanges::Included, ..CreateRequest::new(id("with")) };
        let made = bench.manager.create(&bench.inside, &ask).await.unwrap();
        assert_eq!((made.warnings.len(), made.base.as_str()), (0, "main"));
        assert_eq!(made.base_commit.len(), 40);
        let inside = "cd worktrees/with && ls && cat changed staged kept.big && git log --format='%an <%ae> %p' | head -1 \
                      && readlink link && git status --porcelain";
        let parent = &reported.base_commit[..7];
        let files = "changed\nfresh\nkept.big\nlink\nsame\nstaged";
        let expected = format!("{files}\nnew\nnew\nold\ncoracle <coracle@invalid> {parent}\nsame");
        assert_eq!(bench.sh(inside).await, expected);
        // Included changes do not count as the workflow's, but are saved with it.
        assert!(bench.diff("with").await.files.is_empty());
        assert_eq!(seen().await, before, "index, files and references are as they were");
        assert!(!canary.exists(), "nothing of the repository ran");
        let removed = bench.manager.remove(&bench.inside, &id("with"), &bench.removal()).await.unwrap();
        assert_eq!(removed.saved.unwrap().kind, coracle_lifecycle::SavedKind::Git);
        let both = CreateRequest { base: Some("main".into()), ..CreateRequest { uncommitted: SourceChanges::Included, ..CreateRequest::new(id("b")) } };
        assert_eq!(code(bench.manager.create(&bench.inside, &both).await), Code::InvalidInput);
    })
    .await;
}

#[tokio::test]
async fn x24_a_setup_that_was_killed_anywhere_is_done_by_the_next_one() {
    with_bench(async |bench| {
        // Killed after increasing delays, so that each step is interrupted in some run.
        let mut done = 0;
        for step in 0..40 {
            let manager = WorktreeManager::new(settings(bench.state.path())).unwrap();
            let (ask, mut ended) = (bench.ask(), false);
            tokio::select! {
                it = manager.setup_repo(&bench.inside, &ask) => { it.unwrap(); ended = true; }
                () = tokio::time::sleep(std::time::Duration::from_millis(step * 4)) => {}
            }
            done += usize::from(ended);
            // Everything under the final names is complete.
            for entry in std::fs::read_dir(bench.state.path().join("git")).unwrap().flatten() {
                if entry.path().extension().is_some_and(|it| it == "git") {
                    git(&entry.path(), &["fsck", "--connectivity-only"], "").await;
                }
            }
            bench
                .sh("test ! -d repo.git || git --git-dir=repo.git rev-parse -q --verify refs/remotes/origin/main")
                .await;
            if done == 2 {
                break;
            }
        }
        bench.created("a").await;
        assert_eq!(bench.sh("ls -A").await, "repo.git\nworktrees");
        let left = std::fs::read_dir(bench.state.path().join("git")).unwrap().flatten();
        let mut left: Vec<_> = left.filter_map(|it| Some(it.path().extension()?.to_str()?.to_owned())).collect();
        left.sort();
        assert_eq!(left, ["git", "gitconfig", "lock"]);
    })
    .await;
}

#[tokio::test]
async fn x24_a_broken_mirror_and_a_broken_repository_are_moved_aside_and_recreated() {
    with_bench(async |bench| {
        bench.created("a").await;
        let entry = |is_wanted: fn(&str) -> bool| {
            let mut entries = std::fs::read_dir(bench.state.path().join("git")).unwrap().flatten();
            entries.find(|entry| is_wanted(entry.file_name().to_str().unwrap())).map(|entry| entry.path())
        };
        let dir = entry(|name| name.ends_with(".git")).unwrap();
        std::fs::write(dir.join("HEAD"), "nonsense").unwrap();
        bench.sh("echo nonsense > repo.git/HEAD").await;
        let repo = bench.manager.setup_repo(&bench.inside, &bench.ask()).await.unwrap();
        let codes: Vec<_> = repo.warnings.iter().map(|it| it.code.as_str()).collect();
        assert_eq!(codes, ["repo_corrupt", "repo_corrupt"]);
        assert!(entry(|name| name.contains(".git.broken-")).is_some());
        assert!(bench.sh("ls").await.contains("repo.git.old-"));
        let again = bench.try_create("a").await.unwrap();
        assert_eq!(again.warnings[0].code, "orphan_moved");
    })
    .await;
}

#[tokio::test]
async fn x24_without_a_remote_the_mirror_is_used() {
    with_bench(async |bench| {
        bench.set_up().await;
        std::fs::rename(bench.server.dir("web"), bench.server.dir("away")).unwrap();
        let repo = bench.manager.setup_repo(&bench.inside, &bench.ask()).await.unwrap();
        assert_eq!(repo.warnings[0].code, "fetch_stale");
        bench.try_create("a").await.unwrap();
        let strict = WorktreeSettings { offline_ok: false, ..settings(bench.state.path()) };
        let refused = WorktreeManager::new(strict).unwrap().setup_repo(&bench.inside, &bench.ask()).await;
        assert_eq!(code(refused), Code::FetchFailed);
        let other = SetupRequest { source: bench.server.local_url("none"), replace: false };
        assert_eq!(code(bench.manager.setup_repo(&bench.inside, &other).await), Code::BranchConflict);
        let other = SetupRequest { replace: true, ..other };
        assert_eq!(code(bench.manager.setup_repo(&bench.inside, &other).await), Code::FetchFailed);
    })
    .await;
}

#[tokio::test]
async fn x26_a_base_that_is_none_is_answered_with_near_names() {
    with_bench(async |bench| {
        for name in ["nope-1", "nopes", "unrelated"] {
            git(&bench.server.dir("web"), &["branch", name, "main"], "").await;
        }
        bench.set_up().await;
        let ask = |base: &str| CreateRequest { base: Some(base.into()), ..CreateRequest::new(id("a")) };
        let err = bench.manager.create(&bench.inside, &ask("nope")).await.unwrap_err();
        assert_eq!(err.code, Code::BaseNotFound);
        assert_eq!(err.details["near"][0], "nopes");
        for bad in ["--help", "refs/heads/main", "HEAD", "0000000", "main~1", "main:README.md", ""] {
            assert_eq!(code(bench.manager.create(&bench.inside, &ask(bad)).await), Code::BaseNotFound, "{bad}");
        }
        bench.sh("git --git-dir=repo.git tag v1 refs/remotes/origin/main").await;
        let tag = bench.manager.create(&bench.inside, &ask("v1")).await.unwrap();
        let ask = CreateRequest { base: Some(tag.base_commit[..10].into()), ..CreateRequest::new(id("b")) };
        assert_eq!(bench.manager.create(&bench.inside, &ask).await.unwrap().base_commit, tag.base_commit);
    })
    .await;
}

#[tokio::test]
async fn x39_workflows_at_once_have_ports_and_projects_of_their_own() {
    with_bench(async |bench| {
        bench.set_up().await;
        let names: Vec<String> = (0..30).map(|n| format!("w{n}")).collect();
        let made = futures_util::future::join_all(names.iter().map(|it| bench.try_create(it))).await;
        let made: Vec<_> = made.into_iter().map(Result::unwrap).collect();
        let ports: std::collections::BTreeSet<_> = made.iter().map(|it| it.ports.0).collect();
        let projects: std::collections::BTreeSet<_> = made.iter().map(|it| &it.compose_project).collect();
        assert_eq!((ports.len(), projects.len()), (30, 30));
        // As a later process finds them.
        let later = WorktreeManager::new(settings(bench.state.path())).unwrap();
        let again = later.create(&bench.inside, &CreateRequest::new(id("w7"))).await.unwrap();
        assert_eq!((again.ports, again.created), (made[7].ports, false));
        bench.manager.remove(&bench.inside, &id("w7"), &bench.removal()).await.unwrap();
        assert_eq!(bench.try_create("new").await.unwrap().ports, made[7].ports);
    })
    .await;
}

#[tokio::test]
async fn a_private_repository_is_fetched_with_the_users_credential_helper() {
    with_bench(async |bench| {
        bench.server.requires("me", "open-sesame");
        assert_eq!(code(bench.manager.setup_repo(&bench.inside, &bench.ask()).await), Code::FetchFailed);
        let home = tempfile::tempdir().unwrap();
        let helper = "!f() { test \"$1\" = get && printf 'username=me\\npassword=open-sesame\\n'; }; f";
        std::fs::write(home.path().join(".gitconfig"), format!("[credential]\n\thelper = {helper:?}\n")).unwrap();
        let mut settings = settings(bench.state.path());
        settings.user_env.insert("HOME".into(), home.path().into());
        let manager = WorktreeManager::new(settings).unwrap();
        manager.setup_repo(&bench.inside, &bench.ask()).await.unwrap();
        // Neither the state directory nor the container has it.
        let found = bench.sh("grep -rl sesame . || true").await;
        assert_eq!(found, "");
        for entry in walk(bench.state.path()) {
            let bytes = std::fs::read(&entry).unwrap();
            assert!(memchr::memmem::find(&bytes, b"sesame").is_none(), "{entry:?}");
        }
    })
    .await;
}

pub(super) fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
    entries.flat_map(|it| if it.is_dir() { walk(&it) } else { vec![it] }).collect()
}
