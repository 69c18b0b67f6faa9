//! Worktrees in a directory of the host, where the user works on them with git (X28, X29).

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Bench, with_bench};
use crate::engines::ran;

/// The owner of the directory, where root runs the tests.
const PERSON: (u32, u32) = (1234, 1234);

/// The user, with a directory for sandboxes.
struct Person {
    uid: u32,
    gid: u32,
    root: PathBuf,
}

impl Person {
    fn of(bench: &Bench<'_>) -> Self {
        let root = bench.tool.work().join("agents");
        std::fs::create_dir(&root).unwrap();
        let mine = root.metadata().unwrap();
        let (uid, gid) = if mine.uid() == 0 { PERSON } else { (mine.uid(), mine.gid()) };
        if mine.uid() == 0 {
            chown(&root, Some(uid), Some(gid)).unwrap();
            for above in root.ancestors().skip(1).take(2) {
                std::fs::set_permissions(above, PermissionsExt::from_mode(0o711)).unwrap();
            }
        }
        let config = bench.tool.root.path().join("config.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        let more = format!("\n[sandbox.worktree]\nmode = \"shared\"\nshared_root = {root:?}\n");
        std::fs::write(&config, text + &more).unwrap();
        Self { uid, gid, root }
    }

    /// Runs a script of the user on the host, with git. Returns whether it succeeded, and its output.
    #[expect(clippy::disallowed_methods, reason = "a person's own git is played")]
    fn runs(&self, dir: &Path, script: &str) -> (bool, String) {
        use std::os::unix::process::CommandExt as _;
        let mut shell = std::process::Command::new("/bin/sh");
        let names = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
        shell.args(["-c", &format!("exec 2>&1; {script}")]).current_dir(dir).env_clear().env("PATH", "/usr/bin:/bin");
        shell.envs(names.map(|it| (it, "person"))).env("HOME", &self.root);
        if rustix::process::getuid().is_root() {
            shell.uid(self.uid).gid(self.gid);
        }
        let output = shell.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    fn says(&self, dir: &Path, script: &str) -> String {
        let (good, text) = self.runs(dir, script);
        assert!(good, "{script}: {text}");
        text
    }
}

impl Bench<'_> {
    /// A script of the agent's inside, in a worktree.
    async fn agent(&self, person: &Person, id: &str, script: &str) -> String {
        let script = format!("cd /workspace/worktrees/{id}; export HOME=/tmp; {script}");
        self.inside(&format!("{}:{}", person.uid, person.gid), &script).await
    }

    /// Reported files with changed content.
    async fn reviewed(&self) -> Vec<String> {
        let listed = self.worktree(&["list"]).await;
        let warnings = listed["warnings"].as_array().unwrap().iter();
        warnings
            .map(|it| (it["code"].as_str().unwrap(), it["message"].as_str().unwrap()))
            .map(|(code, message)| {
                assert_eq!(code, "review");
                message.to_owned()
            })
            .collect()
    }
}

const COMMITS: &str = "git -c user.name=a -c user.email=a@b commit -qm x";

#[tokio::test]
async fn x28_x29_the_user_and_the_agent_work_on_the_same_worktree() {
    with_bench("", async |bench| {
        let person = Person::of(bench);
        let made = bench.created("both").await;
        let here = PathBuf::from(made["host_path"].as_str().unwrap_or_else(|| panic!("{made:#}")));
        let dir = here.ancestors().nth(2).unwrap().to_owned();
        assert_eq!((dir.parent().unwrap(), &made["path"]), (&*person.root, &json!("/workspace/worktrees/both")));
        assert_eq!(here.join("add.sh").metadata().unwrap().uid(), person.uid);

        both_commit(bench, &person, &here).await;
        nothing_is_pruned(bench, &person, &here).await;
        files_that_git_runs_are_read_only(bench, &person).await;
        paths_that_cannot_be_masked_are_reported(bench, &person, &dir).await;
        only_foreign_files_are_left(bench, &person, &dir).await;
        ran("x28", bench.tool.case.engine());
        ran("x29", bench.tool.case.engine());
    })
    .await;
}

async fn both_commit(bench: &Bench<'_>, person: &Person, here: &Path) {
    assert_eq!(person.says(here, "git status --porcelain --branch"), "## coracle/both");
    person.says(here, &format!("echo here > here && git add here && {COMMITS}"));
    let seen = bench
        .agent(
            person,
            "both",
            &format!("git status --porcelain; cat here; echo in > in; git add in; {COMMITS} && echo ok"),
        )
        .await;
    assert_eq!(seen, "here\nok");
    person.says(here, &format!("cat in && echo again >> in && git add in && {COMMITS}"));
    assert_eq!(
        bench.agent(person, "both", "git log --format=%an | head -3; git status --porcelain").await,
        "person\na\nperson"
    );
    let diff = bench.worktree(&["diff", "both"]).await;
    let names: Vec<_> = diff["files"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert_eq!(names, ["here", "in"]);
}

async fn nothing_is_pruned(bench: &Bench<'_>, person: &Person, here: &Path) {
    let cleans = "git worktree prune --expire=now && git gc --quiet --prune=now && git worktree prune --expire=now";
    let repo = here.join("../../repo.git");
    person.says(&repo, cleans);
    person.says(here, "git status && git gc --quiet");
    let inside = bench
        .agent(person, "both", &format!("git status --porcelain; cd ../../repo.git && {cleans} 2>&1; echo $?"))
        .await;
    assert_eq!(inside, "0");
    for seen in [
        person.says(here, "git log --oneline | wc -l; cat .git"),
        bench.agent(person, "both", "git log --oneline | wc -l; cat .git").await,
    ] {
        assert_eq!(seen, "4\ngitdir: ../../repo.git/worktrees/both");
    }
}

async fn files_that_git_runs_are_read_only(bench: &Bench<'_>, person: &Person) {
    let tries = "cd /workspace; for it in 'echo x >> repo.git/config' 'touch repo.git/hooks/pre-push' \
                 'touch repo.git/info/attributes' 'rm -f repo.git/config' 'mv repo.git/config repo.git/c' \
                 'mv repo.git/hooks repo.git/h' 'mv repo.git r' 'cp repo.git/config /tmp/c && mv /tmp/c repo.git/config' \
                 'git --git-dir=repo.git config core.fsmonitor /tmp/x' 'chmod 777 repo.git/config' \
                 'mount -o remount,rw,bind /workspace/repo.git/config' 'umount /workspace/repo.git/hooks'; do \
                 (eval \"$it\") >/dev/null 2>&1 && echo \"done: $it\"; done; echo tried";
    for user in [format!("{}:{}", person.uid, person.gid), "0:0".to_owned()] {
        assert_eq!(bench.inside(&user, tries).await, "tried", "as {user}");
    }
}

async fn paths_that_cannot_be_masked_are_reported(bench: &Bench<'_>, person: &Person, dir: &Path) {
    assert_eq!(bench.reviewed().await, [""; 0]);
    let plants = "git init -q nested; git init -q --bare deep/bare; echo 'gitdir: /tmp/x' > .git; \
                  echo /tmp/x > ../../repo.git/commondir; echo /tmp > ../../repo.git/worktrees/both/commondir";
    bench.agent(person, "both", plants).await;
    let reported = bench.reviewed().await;
    let places = [
        "`worktrees/both/.git`",
        "`repo.git/commondir`",
        "`repo.git/worktrees/both/commondir`",
        "`worktrees/both/nested`",
        "`worktrees/both/deep/bare`",
    ];
    for place in places {
        assert!(
            reported.iter().any(|it| it.contains(place) && it.contains(&dir.display().to_string())),
            "{place}: {reported:#?}"
        );
    }
    assert_eq!(reported.len(), places.len(), "{reported:#?}");
    let review = bench.sandbox(&["review", "both"]).await;
    assert_eq!(review["directory"], dir.display().to_string(), "{review:#}");
    assert_eq!(review["differences"].as_array().map(Vec::len), Some(places.len()), "{review:#}");
    let output = bench.tool.run(["sandbox", "review", "both"], b"").await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && places.iter().all(|it| text.contains(it)), "{text}");
    let script = "rm -rf nested deep ../../repo.git/commondir; echo 'gitdir: ../../repo.git/worktrees/both' > .git; \
                 echo ../.. > ../../repo.git/worktrees/both/commondir";
    bench.agent(person, "both", script).await;
    assert_eq!(bench.reviewed().await, [""; 0]);
    assert_eq!(bench.sandbox(&["review", "both"]).await["differences"], json!([]));
    // The user's git replaces the file, so the container's version is gone.
    let before = bench.container().await;
    person.says(&dir.join("repo.git"), "git config user.name person");
    let reported = bench.reviewed().await;
    assert!(reported.len() == 1 && reported[0].contains("`repo.git/config`"), "{reported:#?}");
    assert_ne!(bench.container().await, before, "one with the new file has taken its place");
    files_that_git_runs_are_read_only(bench, person).await;
}

async fn only_foreign_files_are_left(bench: &Bench<'_>, person: &Person, dir: &Path) {
    person.says(
        dir,
        "echo mine > notes && git --git-dir=repo.git branch mine HEAD 2>/dev/null || git -C worktrees/both branch mine",
    );
    bench.agent(person, "both", "echo loose > loose").await;
    let removed = bench.worktree(&["remove", "both"]).await;
    assert_eq!((&removed["removed"], &removed["sandbox_removed"]), (&true.into(), &true.into()), "{removed:#}");
    assert!(removed["saved"]["location"].is_string(), "{removed:#}");
    assert_eq!(removed["also_saved"].as_array().map(Vec::len), Some(1), "a branch more: {removed:#}");
    assert_eq!(removed["kept"], json!([dir.join("notes")]), "{removed:#}");
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["notes"]);
    assert_eq!(bench.worktree(&["list"]).await["worktrees"], Value::Array(vec![]));
}

/// The lines of a trace in which a process of git names a path below one of these directories.
fn lines_of_git<'a>(trace: &'a str, dirs: &[PathBuf]) -> (usize, Vec<&'a str>) {
    let (mut processes, mut found) = (std::collections::BTreeSet::new(), Vec::new());
    for line in trace.lines() {
        let Some((process, call)) = line.split_once(' ') else { continue };
        if call.trim_start().starts_with("execve(") {
            let program = call.split('"').nth(1).unwrap_or_default();
            let is_git = program.ends_with("/git") || program.contains("/git-core/");
            if is_git {
                processes.insert(process)
            } else {
                processes.remove(process)
            };
        }
        let names = |dir: &PathBuf| call.contains(&*dir.to_string_lossy());
        if processes.contains(process) && dirs.iter().any(names) {
            found.push(line);
        }
    }
    (processes.len(), found)
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the program is started by a tracer")]
async fn git_on_the_host_reads_nothing_that_a_container_can_write() {
    // A traced program gains no privileges, and without root the embedded engine needs those of `newuidmap`.
    if !crate::engines::is_root() {
        return crate::engines::skip(coracle_skips::NEEDS_ROOT);
    }
    if coracle_host::find_program::find_program("strace").is_err() {
        return crate::engines::skip(coracle_skips::NEEDS_STRACE);
    }
    with_bench("", async |bench| {
        let person = Person::of(bench);
        let id = bench.id("traced");
        let trace = bench.tool.temp().join("trace");
        let traced = async |words: &[&str]| {
            let calls =
                "--trace=execve,open,openat,openat2,chdir,readlink,readlinkat,stat,lstat,newfstatat,access,faccessat2";
            let options = ["-D", "-f", "-qq", "-y", "-s", "4096", "-A", calls, "-o"];
            let command = bench.tool.command(words);
            let mut with_strace = tokio::process::Command::new("/usr/bin/strace");
            with_strace
                .args(options)
                .arg(&trace)
                .arg(command.as_std().get_program())
                .arg("worktree")
                .args(words)
                .arg("--json");
            with_strace.env_clear().envs(command.as_std().get_envs().filter_map(|it| Some((it.0, it.1?))));
            with_strace.current_dir(bench.tool.work()).stdin(std::process::Stdio::null());
            // The tracer runs as long as the container, so it must not hold a pipe.
            let answer = bench.tool.temp().join("answer");
            let output = std::fs::File::create(&answer).unwrap();
            with_strace.stdout(output.try_clone().unwrap()).stderr(output);
            assert!(
                with_strace.status().await.unwrap().success(),
                "{words:?}: {}",
                std::fs::read_to_string(&answer).unwrap()
            );
        };
        traced(&["create", &bench.url(), "--workflow", &id]).await;
        // The agent leaves configurations in every place where git could find one.
        let hostile = "echo work > work; git add work; for d in . ..; do echo x > $d/.gitconfig; \
            echo '* filter=x' > $d/.gitattributes; printf '[core]\\n\\tfsmonitor = /x\\n' > $d/config; done";
        bench.agent(&person, &id, &format!("{hostile}; {COMMITS}")).await;
        for words in [&["list"][..], &["diff", &id], &["log", &id], &["push", &id], &["remove", &id]] {
            traced(words).await;
        }
        let text = std::fs::read_to_string(&trace).unwrap();
        let writable = [person.root.clone(), bench.tool.state().join("link")];
        let (processes, found) = lines_of_git(&text, &writable);
        assert!(processes > 0, "git ran on the host");
        assert_eq!(found, [""; 0]);
    })
    .await;
}
