//! Showing, exporting and pushing work (X27, X30 to X34).

use std::path::Path;

use coracle_sandbox::Code;
use coracle_worktrees::changes::{ApplyMode, ApplyRequest, DiffOptions, PatchFormat, PushRequest};
use coracle_worktrees::create::SetupRequest;

use super::setup::walk;
use super::{Bench, code, git_with, id, with_bench};
use crate::engines::git;

/// Staged, unstaged, untracked, deleted, binary and ignored, on top of a commit.
async fn changed(bench: &Bench<'_>) {
    bench
        .server
        .commit("web", "main", &[("README.md", "hello\n"), ("gone", "x\n"), (".ignore", ""), ("b", "b\n")])
        .await;
    bench.created("a").await;
    bench.sh("mkdir -p repo.git/info && echo '*.log' > repo.git/info/exclude").await;
    bench.commit("a", "committed", "1").await;
    bench
        .sh("cd worktrees/a && echo staged > staged && git add staged && echo changed > README.md && rm gone \
             && echo new > 'new file' && printf '\\000\\001' > bin && echo x > x.log")
        .await;
}

#[tokio::test]
async fn x30_all_but_what_is_ignored_is_in_a_diff_and_the_index_stays() {
    with_bench(async |bench| {
        changed(bench).await;
        let before =
            bench.sh("cd worktrees/a && git status --porcelain && sha256sum < ../../repo.git/worktrees/a/index").await;
        let diff = bench.diff("a").await;
        let seen: Vec<_> = diff.files.iter().map(|it| (it.path.as_str(), it.status, it.binary)).collect();
        assert_eq!(
            seen,
            [
                ("README.md", "modified", false),
                ("bin", "added", true),
                ("committed", "added", false),
                ("gone", "deleted", false),
                ("new file", "added", false),
                ("staged", "added", false),
            ]
        );
        assert!(diff.patch.contains("+changed") && !diff.truncated, "{}", diff.patch);
        let after =
            bench.sh("cd worktrees/a && git status --porcelain && sha256sum < ../../repo.git/worktrees/a/index").await;
        assert_eq!(before, after);
        assert_eq!(bench.sh("ls repo.git/worktrees/a | grep -c coracle-index || true").await, "0");
        let ask = DiffOptions { max_bytes: 400, ..DiffOptions::default() };
        let cut = bench.manager.diff(&bench.inside, &id("a"), &ask).await.unwrap();
        assert!(cut.truncated && cut.patch.len() <= 400 && cut.patch.ends_with('\n'), "{cut:?}");
        assert_eq!(cut.omitted_files.len() + cut.patch.matches("diff --git").count(), 6);
        let ask = DiffOptions { against: Some("HEAD".into()), stat_only: true, ..DiffOptions::default() };
        let stat = bench.manager.diff(&bench.inside, &id("a"), &ask).await.unwrap();
        assert_eq!((stat.files.len(), stat.patch.as_str()), (5, ""));
        let ask = DiffOptions { against: Some("--output=/tmp/x".into()), ..DiffOptions::default() };
        assert_eq!(code(bench.manager.diff(&bench.inside, &id("a"), &ask).await), Code::BaseNotFound);
        assert_eq!(
            code(bench.manager.diff(&bench.inside, &id("b"), &DiffOptions::default()).await),
            Code::WorktreeMissing
        );
        let listed = bench.manager.list(&bench.inside).await.unwrap().listed;
        let it = &listed[0];
        assert_eq!((it.ahead, it.behind, it.dirty, it.untracked, it.unpushed, it.missing), (1, 0, true, 2, 1, false));
        assert_eq!((it.branch.as_deref(), it.base.as_str()), (Some("coracle/a"), "main"));
        assert!(it.last_commit_at.is_some());
    })
    .await;
}

fn ask(to: &Path) -> ApplyRequest {
    ApplyRequest { to: to.to_owned(), mode: ApplyMode::Files, protected: false, programs: Vec::new(), bound: false }
}

#[tokio::test]
async fn x31_a_patch_is_applied_whole_or_not_at_all() {
    with_bench(async |bench| {
        changed(bench).await;
        let clone = bench.clone().await;
        let to = clone.path().join("it");
        let applied = bench.manager.apply(&bench.inside, &id("a"), &ask(&to)).await.unwrap();
        assert_eq!(applied.files.len(), 6);
        assert_eq!(std::fs::read(to.join("bin")).unwrap(), [0, 1]);
        assert!(!to.join("gone").exists() && !to.join("x.log").exists());
        // A second time it does not apply, and nothing changes.
        std::fs::remove_file(to.join("new file")).unwrap();
        let err = bench.manager.apply(&bench.inside, &id("a"), &ask(&to)).await.unwrap_err();
        assert_eq!(err.code, Code::ApplyConflict);
        assert!(err.details["files"].as_array().unwrap().iter().any(|it| it == "README.md"), "{err:?}");
        assert!(!to.join("new file").exists());
        // Names that programs act on, and a link.
        let fresh = bench.clone().await;
        let to = fresh.path().join("it");
        bench.sh("cd worktrees/a && mkdir .github && echo x > .github/x && ln -s /etc/passwd link").await;
        let err = bench.manager.apply(&bench.inside, &id("a"), &ask(&to)).await.unwrap_err();
        assert_eq!((err.code, &err.details["files"][0]), (Code::PolicyDenied, &".github/x".into()));
        assert!(!to.join("committed").exists());
        let leave = ApplyRequest { protected: true, ..ask(&to) };
        bench.manager.apply(&bench.inside, &id("a"), &leave).await.unwrap();
        assert!(to.join(".github/x").exists() && to.join("link").is_symlink());
        assert_eq!(code(bench.manager.apply(&bench.inside, &id("a"), &ask("/usr".as_ref())).await), Code::PolicyDenied);
        let branch = ApplyRequest { mode: ApplyMode::Branch, ..ask(&to) };
        let bound = ApplyRequest { bound: true, ..branch.clone() };
        assert_eq!(code(bench.manager.apply(&bench.inside, &id("a"), &bound).await), Code::PolicyDenied);
        let applied = bench.manager.apply(&bench.inside, &id("a"), &branch).await.unwrap();
        assert_eq!(applied.branch.as_deref(), Some("coracle/a"));
        assert_eq!(git(&to, &["show", "coracle/a:committed"], "").await, "1");
    })
    .await;
}

#[tokio::test]
async fn x31_a_patch_that_cannot_be_written_leaves_all_files_unchanged() {
    with_bench(async |bench| {
        bench.created("a").await;
        let changes = "printf 'hello\\nmore\\n' > README.md && mkdir notes && echo x > notes/x && echo y > src/main.rs";
        bench.sh(&format!("cd worktrees/a && {changes}")).await;
        let clone = bench.clone().await;
        let to = clone.path().join("it");
        // A file has the name of a directory of the patch, which git's check does not see.
        std::fs::write(to.join("notes"), "mine\n").unwrap();
        let err = bench.manager.apply(&bench.inside, &id("a"), &ask(&to)).await.unwrap_err();
        assert_eq!(err.code, Code::ApplyFailed, "{err}");
        assert!(err.message.contains("All files are as they were before"), "{err}");
        let read = |name: &str| std::fs::read_to_string(to.join(name)).unwrap();
        assert_eq!([read("README.md"), read("notes"), read("src/main.rs")], ["hello\n", "mine\n", "fn main() {}\n"]);
        assert_eq!(git(&to, &["status", "--porcelain"], "").await, "?? notes");
        assert_eq!(std::fs::read_dir(bench.state.path().join("apply")).unwrap().count(), 0);
        std::fs::remove_file(to.join("notes")).unwrap();
        bench.manager.apply(&bench.inside, &id("a"), &ask(&to)).await.unwrap();
        assert_eq!([read("notes/x"), read("src/main.rs")], ["x\n", "y\n"]);
    })
    .await;
}

#[tokio::test]
async fn x32_each_form_of_the_commits_gives_the_same_tree() {
    with_bench(async |bench| {
        bench.created("a").await;
        bench.commit("a", "one", "1").await;
        bench.commit("a", "bin", "\\\\000\\\\001").await;
        let tree = bench.sh("git -C worktrees/a rev-parse HEAD^{tree}").await;
        for format in [PatchFormat::Diff, PatchFormat::Mbox, PatchFormat::Bundle] {
            let mut bytes = Vec::new();
            let exported = bench.manager.export_patch(&bench.inside, &id("a"), format, &mut bytes).await.unwrap();
            assert_eq!((exported.bytes, exported.warnings.len()), (bytes.len() as u64, 0));
            let clone = bench.clone().await;
            let it = clone.path().join("it");
            let done = match format {
                PatchFormat::Diff => git_with(&it, &["apply", "--index"], &bytes),
                PatchFormat::Mbox => git_with(&it, &["am", "--quiet"], &bytes),
                PatchFormat::Bundle => {
                    std::fs::write(clone.path().join("b"), &bytes).unwrap();
                    git_with(&it, &["pull", "--quiet", "--ff-only", "../b", "coracle/a"], b"")
                }
            };
            assert!(done, "{format:?}");
            assert_eq!(git(&it, &["write-tree"], "").await, tree, "{format:?}");
        }
        bench.sh("echo x > worktrees/a/x").await;
        let warned =
            bench.manager.export_patch(&bench.inside, &id("a"), PatchFormat::Mbox, &mut Vec::new()).await.unwrap();
        assert_eq!(warned.warnings[0].code, "uncommitted_not_included");
    })
    .await;
}

#[tokio::test]
async fn x33_a_push_makes_one_branch_and_leaves_no_credential() {
    with_bench(async |bench| {
        bench.server.requires("me", "open-sesame");
        let home = tempfile::tempdir().unwrap();
        let helper = "!f() { test \"$1\" = get && printf 'username=me\\npassword=open-sesame\\n'; }; f";
        std::fs::write(home.path().join(".gitconfig"), format!("[credential]\n\thelper = {helper:?}\n")).unwrap();
        let mut settings = super::settings(bench.state.path());
        settings.user_env.insert("HOME".into(), home.path().into());
        let manager = coracle_worktrees::WorktreeManager::new(settings).unwrap();
        manager.setup_repo(&bench.inside, &bench.ask()).await.unwrap();
        bench.try_create("a").await.unwrap();
        let first = bench.commit("a", "one", "1").await;
        let pushed = manager.push(&bench.inside, &id("a"), &PushRequest::default()).await.unwrap();
        assert_eq!((pushed.reference.as_str(), pushed.old, &pushed.new), ("refs/heads/coracle/a", None, &first));
        assert!(!pushed.uncommitted);
        let second = bench.commit("a", "two", "2").await;
        bench.sh("echo x > worktrees/a/x").await;
        let pushed = manager.push(&bench.inside, &id("a"), &PushRequest::default()).await.unwrap();
        assert_eq!((pushed.old, &pushed.new, pushed.uncommitted), (Some(first), &second, true));
        // Again, with nothing new.
        assert_eq!(manager.push(&bench.inside, &id("a"), &PushRequest::default()).await.unwrap().new, second);
        assert_eq!(bench.remote_refs().await, ["refs/heads/coracle/a", "refs/heads/main"]);
        assert_eq!(bench.manager.list(&bench.inside).await.unwrap().listed[0].unpushed, 0);
        assert_eq!(bench.sh("grep -rl sesame . || true").await, "");
        for file in walk(bench.state.path()) {
            assert!(memchr::memmem::find(&std::fs::read(&file).unwrap(), b"sesame").is_none(), "{file:?}");
        }
        // Quarantines are removed: only the mirror, its lock and a configuration of git are left.
        let left = std::fs::read_dir(bench.state.path().join("git")).unwrap().count();
        assert_eq!(left, 3);
    })
    .await;
}

#[tokio::test]
async fn commits_on_another_branch_are_named_and_not_called_missing() {
    with_bench(async |bench| {
        bench.created("a").await;
        bench.sh("cd worktrees/a && git switch -q -c fix").await;
        bench.commit("a", "one", "1").await;
        let refused = bench.manager.push(&bench.inside, &id("a"), &PushRequest::default()).await.unwrap_err();
        assert_eq!(refused.code, Code::NoCommits);
        assert!(refused.message.contains("`fix` is checked out, with a commit"), "{refused}");
        let export = bench.manager.export_patch(&bench.inside, &id("a"), PatchFormat::Bundle, &mut Vec::new()).await;
        assert_eq!(code(export), Code::NoCommits);
        let stray = async || bench.manager.stray_commits(&bench.inside, &id("a")).await.unwrap();
        let found = stray().await.unwrap();
        assert_eq!((found.commits, found.branch.as_deref(), found.expected_has_some), (1, Some("fix"), false));
        // Follows the hint.
        assert!(refused.hint.unwrap().ends_with("then `coracle worktree exec a --profile box -- git merge fix`"));
        bench.sh("cd worktrees/a && git switch -q coracle/a && git merge -q fix").await;
        assert_eq!(stray().await, None);
        let pushed = bench.manager.push(&bench.inside, &id("a"), &PushRequest::default()).await.unwrap();
        assert!(pushed.warnings.is_empty(), "{pushed:?}");
        // The branch has commits of its own now, and is not all of them.
        bench.sh("cd worktrees/a && git switch -q fix").await;
        bench.commit("a", "two", "2").await;
        let pushed = bench.manager.push(&bench.inside, &id("a"), &PushRequest::default()).await.unwrap();
        let clone = bench.clone().await;
        let branch = ApplyRequest { mode: ApplyMode::Branch, ..ask(&clone.path().join("it")) };
        let applied = bench.manager.apply(&bench.inside, &id("a"), &branch).await.unwrap();
        for warnings in [pushed.warnings, applied.warnings] {
            assert!(warnings.len() == 1 && warnings[0].code == "other_branch", "{warnings:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn commits_of_a_renamed_branch_are_named_with_the_command_that_brings_it_back() {
    with_bench(async |bench| {
        bench.created("a").await;
        bench.sh("cd worktrees/a && git branch -m fix").await;
        let missing = bench.manager.push(&bench.inside, &id("a"), &PushRequest::default()).await.unwrap_err();
        assert_eq!((missing.code, missing.hint.is_some()), (Code::WorktreeMissing, true), "{}", missing.message);
        bench.commit("a", "one", "1").await;
        let clone = bench.clone().await;
        let branch = ApplyRequest { mode: ApplyMode::Branch, ..ask(&clone.path().join("it")) };
        let (inside, id, push) = (&bench.inside, id("a"), PushRequest::default());
        for refused in [
            bench.manager.push(inside, &id, &push).await.unwrap_err(),
            bench.manager.apply(inside, &id, &branch).await.unwrap_err(),
            bench.manager.export_patch(inside, &id, PatchFormat::Bundle, &mut Vec::new()).await.unwrap_err(),
        ] {
            assert_eq!(refused.code, Code::NoCommits, "{}", refused.message);
            assert!(refused.message.contains("`coracle/a` does not exist"), "{}", refused.message);
            let hint = "`coracle worktree exec a --profile box -- git switch -c coracle/a`";
            assert_eq!(refused.hint.as_deref(), Some(hint));
        }
        // Follows the hint.
        bench.sh("cd worktrees/a && git switch -q -c coracle/a").await;
        bench.manager.push(inside, &id, &push).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn x34_no_other_branch_no_deletion_and_no_rewriting_is_pushed() {
    with_bench(async |bench| {
        bench.created("a").await;
        bench.commit("a", "one", "1").await;
        bench.manager.push(&bench.inside, &id("a"), &PushRequest::default()).await.unwrap();
        let before = git(&bench.server.dir("web"), &["for-each-ref"], "").await;
        for bad in ["main", ":coracle/a", "coracle/b", "+coracle/a", "refs/heads/main", ""] {
            let ask = PushRequest { branch: Some(bad.into()), ..PushRequest::default() };
            assert_eq!(code(bench.manager.push(&bench.inside, &id("a"), &ask).await), Code::PushRefused, "{bad}");
        }
        bench.sh("cd worktrees/a && git reset -q --hard HEAD~1").await;
        bench.commit("a", "other", "2").await;
        let rejected = bench.manager.push(&bench.inside, &id("a"), &PushRequest::default()).await;
        assert_eq!(code(rejected), Code::PushRejected);
        assert_eq!(git(&bench.server.dir("web"), &["for-each-ref"], "").await, before);
        let ask = PushRequest { force_with_lease: true, ..PushRequest::default() };
        bench.manager.push(&bench.inside, &id("a"), &ask).await.unwrap();
        // The branch was moved concurrently: the lease is over.
        git(&bench.server.dir("web"), &["update-ref", "refs/heads/coracle/a", "main"], "").await;
        bench.commit("a", "more", "3").await;
        bench.sh("cd worktrees/a && git commit -q --amend -m y").await;
        assert_eq!(code(bench.manager.push(&bench.inside, &id("a"), &ask).await), Code::PushRejected);
        // Objects that are not sound do not reach the remote.
        bench.sh("cd worktrees/a && git reset -q --hard HEAD && t=$(printf '100644 blob %s\\t.git\\n' $(git hash-object -w README.md) | git mktree) && c=$(git commit-tree -m x -p HEAD $t) && git update-ref refs/heads/coracle/a $c").await;
        let err = bench.manager.push(&bench.inside, &id("a"), &ask).await.unwrap_err();
        assert_eq!((&err.code, err.details.get("rule")), (&Code::PushRefused, Some(&"push.objects".into())), "{err:?}");
    })
    .await;
}

#[tokio::test]
async fn x27_reading_a_repository_runs_nothing_of_it() {
    with_bench(async |bench| {
        let hostile = [
            (".gitattributes", "* filter=evil diff=evil merge=evil\n"),
            (".gitmodules", "[submodule \"s\"]\npath = s\nurl = ext::sh -c 'touch /tmp/ran'\n"),
            ("a", "a\n"),
        ];
        bench.server.commit("web", "main", &hostile).await;
        bench.set_up().await;
        let ran = format!("ran-{}", coracle_types::random_hex::<6>());
        // On the fake both are the same machine.
        let host = Path::new("/tmp").join(&ran);
        let run = format!("touch /tmp/{ran}");
        bench
            .sh(&format!(
                "cd repo.git && mkdir -p hooks && for h in post-checkout reference-transaction pre-push post-index-change \
                 pre-auto-gc post-commit pre-commit fsmonitor-watchman; do printf '#!/bin/sh\\n{run}\\n' > hooks/$h; chmod +x hooks/$h; done; \
                 for k in core.fsmonitor core.sshCommand core.pager core.editor diff.external gpg.program filter.evil.clean \
                 filter.evil.smudge diff.evil.command diff.evil.textconv merge.evil.driver credential.helper core.alternateRefsCommand \
                 uploadpack.packObjectsHook; do git --git-dir=. config $k '{run}'; done; git --git-dir=. config filter.evil.required true; \
                 git --git-dir=. config commit.gpgSign true; git --git-dir=. config core.attributesFile /workspace/attributes"
            ))
            .await;
        // The canary sings for a git that is not held back.
        bench.sh("cd repo.git && git --git-dir=. -c core.hooksPath=hooks update-ref refs/x refs/remotes/origin/main").await;
        let sung = bench.sh(&format!("ls /tmp/{ran} && rm /tmp/{ran}")).await;
        assert!(!sung.is_empty());
        bench.try_create("a").await.unwrap();
        bench.set_up().await;
        // Without an index, so that git reads none of it.
        let commit = "git -c user.name=a -c user.email=a@b commit-tree -p refs/heads/coracle/a -m x 'refs/heads/coracle/a^{tree}'";
        let commit = format!("export GIT_DIR=repo.git; git -c core.hooksPath=/dev/null update-ref refs/heads/coracle/a $({commit})");
        bench.sh(&commit).await;
        bench.sh("cd worktrees/a && echo more >> a && echo new > new").await;
        bench.manager.list(&bench.inside).await.unwrap();
        let diff = bench.diff("a").await;
        assert_eq!(diff.files.len(), 2, "{diff:?}");
        for format in [PatchFormat::Diff, PatchFormat::Mbox] {
            bench.manager.export_patch(&bench.inside, &id("a"), format, &mut Vec::new()).await.unwrap();
        }
        let clone = bench.clone().await;
        let to = clone.path().join("it");
        git(&to, &["config", "filter.evil.clean", &run], "").await;
        git(&to, &["config", "core.fsmonitor", &run], "").await;
        bench.manager.apply(&bench.inside, &id("a"), &ask(&to)).await.unwrap();
        bench.manager.push(&bench.inside, &id("a"), &PushRequest::default()).await.unwrap();
        let removed = bench.manager.remove(&bench.inside, &id("a"), &bench.removal()).await.unwrap();
        assert!(removed.saved.is_some());
        assert_eq!(bench.sh(&format!("ls /tmp/{ran} 2>/dev/null || true")).await, "");
        assert!(!host.exists());
    })
    .await;
}

#[tokio::test]
async fn a_directory_of_the_host_is_a_source_too() {
    with_bench(async |bench| {
        let clone = bench.clone().await;
        let dir = clone.path().join("it");
        git(&dir, &["commit", "--quiet", "--allow-empty", "-m", "mine"], "").await;
        let ask = SetupRequest { source: dir.display().to_string(), replace: false };
        let repo = bench.manager.setup_repo(&bench.inside, &ask).await.unwrap();
        assert_eq!((repo.url.as_str(), repo.head.as_deref()), (dir.to_str().unwrap(), Some("main")));
        let made = bench.try_create("a").await.unwrap();
        assert_eq!(made.base_commit, git(&dir, &["rev-parse", "HEAD"], "").await);
        let tip = bench.commit("a", "one", "1").await;
        bench.manager.push(&bench.inside, &id("a"), &PushRequest::default()).await.unwrap();
        assert_eq!(git(&dir, &["rev-parse", "coracle/a"], "").await, tip);
        assert_eq!(git(&dir, &["status", "--porcelain"], "").await, "");
        let outside = SetupRequest { source: "/usr".into(), replace: true };
        assert_eq!(code(bench.manager.setup_repo(&bench.inside, &outside).await), Code::PolicyDenied);
    })
    .await;
}
