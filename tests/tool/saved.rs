//! Unsaved work, saved on the host when a container is removed.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::debian::debian;
use super::{Tool, with_engine, with_rootful_engine, with_tool};
use crate::engines::{GitServer, Lack, engine_program, git, is_root, ran, skip, tries_git};

/// The server of a test listens on this host, which has a private address and no certificate.
const PRIVATE: &str = "[images]\ngit_allow_private = true\n";

/// Typical work in a clone.
const WORK: &str = "cd app && git config user.email a@example.com && git config user.name A \
    && echo committed > b && git add b && git commit -qm mine \
    && echo changed > a && echo new > 'un tracked' && echo staged > c && git add c \
    && echo '*.log' > .gitignore && echo noise > x.log";

async fn destroy(tool: &Tool<'_>, name: &str) -> Value {
    tool.call(json!({ "operation": "destroy", "container": name })).await
}

/// The saved item of a path and kind.
fn item<'a>(answer: &'a Value, path: &str, kind: &str) -> &'a Value {
    let saved = answer["saved"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    let found = saved.iter().find(|it| it["path"] == path).unwrap_or_else(|| panic!("no {path}: {answer:#}"));
    assert_eq!(found["kind"], kind, "{answer:#}");
    found
}

fn manifest(answer: &Value) -> Value {
    let location = answer["saved"][0]["location"].as_str().unwrap_or_else(|| panic!("nothing was saved: {answer:#}"));
    serde_json::from_slice(&std::fs::read(Path::new(location).join("manifest.json")).unwrap()).unwrap()
}

/// The file of a part, from the manifest.
fn part(answer: &Value, path: &str, what: &str) -> PathBuf {
    let manifest = manifest(answer);
    let item = manifest["items"].as_array().unwrap().iter().find(|it| it["path"] == path).unwrap();
    let part = item["parts"].as_array().unwrap().iter().find(|it| it["what"] == what);
    let part = part.unwrap_or_else(|| panic!("no {what} of {path}: {manifest:#}"));
    Path::new(answer["saved"][0]["location"].as_str().unwrap()).join(part["file"].as_str().unwrap())
}

/// Names and contents of files in an archive.
fn unpacked(tar: &Path) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(std::fs::File::open(tar).unwrap());
    let read = |entry: std::io::Result<tar::Entry<'_, std::fs::File>>| {
        let mut entry = entry.unwrap();
        let mut text = Vec::new();
        entry.read_to_end(&mut text).unwrap();
        (entry.path().unwrap().display().to_string(), String::from_utf8_lossy(&text).into_owned())
    };
    let mut files: Vec<_> = archive.entries().unwrap().map(read).filter(|(name, _)| !name.ends_with('/')).collect();
    files.sort();
    files
}

fn names(tar: &Path) -> Vec<String> {
    unpacked(tar).into_iter().map(|it| it.0).collect()
}

fn saves(tool: &Tool<'_>) -> Vec<PathBuf> {
    let list =
        |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().map(|it| it.unwrap().path()).collect::<Vec<_>>();
    list(&tool.state().join("saved")).iter().flat_map(|it| list(it)).collect()
}

#[tokio::test]
async fn s78_a_commit_a_change_and_an_untracked_file_are_saved() {
    let server = GitServer::start();
    server.repository("app", &[("a", "one\n"), ("gone", "x\n")]).await;
    with_rootful_engine(PRIVATE, async |tool| {
        if tool.case.lacks(Lack::HostAddress) {
            return;
        }
        let image = debian(tool.case).await;
        let repos = json!([{ "url": server.url("app") }]);
        let name = tool.created(json!({ "image": image, "user": "1000", "repos": repos })).await;
        tool.prints(&name, WORK).await;
        tool.prints(&name, "rm app/gone; echo loose > loose; mkdir -p node_modules && echo x > node_modules/x").await;
        let again = "cd app && for it in node_modules/it target/debug sub/.venv __pycache__ .cache; do mkdir -p $it && echo x > $it/x; done";
        tool.prints(&name, again).await;
        let answer = destroy(tool, &name).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        let app = item(&answer, "/workspace/app", "git");
        assert_eq!((&app["files"], &app["left_out"]), (&4.into(), &0.into()), "{answer:#}");
        assert_eq!(item(&answer, "/workspace", "files")["files"], 1, "{answer:#}");

        let clone = tempfile::tempdir().unwrap();
        let bundle = part(&answer, "/workspace/app", "bundle");
        git(clone.path(), &["clone", "--quiet", bundle.to_str().unwrap(), "it"], "").await;
        let it = clone.path().join("it");
        assert_eq!(git(&it, &["log", "--format=%s"], "").await, "mine\ntest");
        assert_eq!(std::fs::read_to_string(it.join("b")).unwrap(), "committed\n");
        let text = |name: &str, text: &str| (format!("app/{name}"), text.to_owned());
        assert_eq!(
            unpacked(&part(&answer, "/workspace/app", "archive")),
            [text(".gitignore", "*.log\n"), text("a", "changed\n"), text("c", "staged\n"), text("un tracked", "new\n")]
        );
        let patch = std::fs::read_to_string(part(&answer, "/workspace/app", "staged")).unwrap();
        assert!(patch.contains("+staged"), "{patch}");
        assert_eq!(manifest(&answer)["items"][0]["deleted"]["names"], json!(["gone"]));
        assert_eq!(names(&part(&answer, "/workspace", "archive")), ["workspace/loose"]);

        let again = destroy(tool, &name).await;
        assert_eq!((&again["already_gone"], &again["saved"]), (&true.into(), &json!([])), "{again:#}");
        ran("s78", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s78_work_is_discarded_only_with_permission() {
    with_tool("", async |tool| {
        let name = tool.created(json!({})).await;
        tool.prints(&name, "echo mine > mine").await;
        for operation in [
            json!({ "operation": "destroy", "container": name, "discard": true }),
            json!({ "operation": "destroy_all", "confirm": true, "discard": true }),
        ] {
            let answer = tool.call(operation).await;
            assert_eq!((&answer["code"], &answer["details"]["rule"]), (&"policy_denied".into(), &"discard".into()));
            assert_eq!(answer["details"]["setting"], "security.allow_discard");
        }
        assert_eq!(tool.prints(&name, "cat mine").await, "mine");
    })
    .await;
    with_tool("[security]\nallow_discard = true\n", async |tool| {
        let name = tool.created(json!({})).await;
        tool.prints(&name, "echo mine > mine").await;
        let answer = tool.call(json!({ "operation": "destroy", "container": name, "discard": true })).await;
        assert_eq!((&answer["success"], &answer["saved"]), (&true.into(), &json!([])), "{answer:#}");
        assert!(saves(tool).is_empty());
    })
    .await;
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        tool.prints(&name, "echo mine > mine").await;
        let output = tool.run(["destroy", &name, "--discard"], b"").await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(saves(tool).is_empty(), "the user may remove it");
    })
    .await;
}

/// A small disk of its own.
pub(crate) struct Disk(PathBuf);

impl Disk {
    pub(crate) async fn at(dir: &Path, size: &str) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        let options = format!("size={size},mode=700");
        let words = ["-t", "tmpfs", "-o", &options, "tmpfs", dir.to_str().unwrap()];
        assert!(engine_program("mount").args(words).status().await.unwrap().success());
        Self(dir.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn s78_a_full_disk_keeps_the_container() {
    with_rootful_engine("", async |tool| {
        if !is_root() {
            return skip(coracle_skips::NEEDS_ROOT);
        }
        let disk = Disk::at(&tool.state(), "32m").await;
        let image = debian(tool.case).await;
        let name = tool.created(json!({ "image": image, "user": "1000" })).await;
        tool.prints(&name, "git init -q app && head -c 40000000 /dev/urandom > app/large && sleep 0").await;
        let answer = destroy(tool, &name).await;
        assert_eq!((&answer["code"], &answer["retryable"]), (&"save_failed".into(), &false.into()), "{answer:#}");
        assert_eq!(answer["details"]["paths"], json!(["/workspace/app"]), "{answer:#}");
        assert!(answer["details"]["reason"].as_str().unwrap().contains("No space left"), "{answer:#}");
        assert!(saves(tool).is_empty(), "what was written so far takes no room");
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        assert_eq!((&status["running"], &status["metadata"]["state"]), (&false.into(), &"ready".into()), "{status:#}");
        let answer = tool.call(json!({ "operation": "destroy", "container": name, "discard": true })).await;
        assert_eq!(answer["code"], "policy_denied");
        // Standing still it is saved whole, which does not fit either.
        assert_eq!(destroy(tool, &name).await["code"], "save_failed");
        assert!(tool.run(["destroy", &name, "--discard"], b"").await.status.success());
        drop(disk);
        ran("s78", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn nothing_of_a_hostile_repository_runs() {
    with_rootful_engine("", async |tool| {
        let out = tool.work().join("out");
        std::fs::create_dir(&out).unwrap();
        std::fs::set_permissions(&out, PermissionsExt::from_mode(0o777)).unwrap();
        let mounts = json!([{ "host": "out", "container": "/out" }]);
        let image = debian(tool.case).await;
        let name = tool.created(json!({ "image": image, "user": "1000", "mounts": mounts })).await;
        let trap = "git init -q app && cd app && git config user.email a@b && git config user.name a \
            && echo x > f && git add f && git commit -qm x \
            && lure() { printf '#!/bin/sh\\nid -u >> /out/%s\\ncat\\n' $1 > /tmp/$1; chmod +x /tmp/$1; } \
            && lure fsmonitor && lure clean && lure textconv && lure hook && lure diff && lure pager \
            && git config core.fsmonitor /tmp/fsmonitor && git config filter.t.clean /tmp/clean \
            && git config filter.t.required true && git config diff.t.textconv /tmp/textconv \
            && git config diff.external /tmp/diff && git config core.pager /tmp/pager \
            && echo '* filter=t diff=t' > .gitattributes \
            && for it in post-index-change reference-transaction pre-commit; do cp /tmp/hook .git/hooks/$it; done";
        tool.prints(&name, trap).await;
        // The traps are real: running git in there without care triggers them.
        tool.exec(&name, "cd app && echo y > f && git status && git diff && git add f").await;
        let caught: Vec<_> = std::fs::read_dir(&out).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert!(caught.iter().any(|it| it == "fsmonitor") && caught.iter().any(|it| it == "clean"), "{caught:?}");
        caught.iter().for_each(|it| std::fs::remove_file(out.join(it)).unwrap());
        tool.prints(&name, "cd app && rm -f /out/* && echo z > f && echo new > g && rm -f /out/*").await;
        let answer = destroy(tool, &name).await;
        item(&answer, "/workspace/app", "git");
        let ran: Vec<_> = std::fs::read_dir(&out).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert!(ran.is_empty(), "{ran:?}");
        assert_eq!(names(&part(&answer, "/workspace/app", "archive")), ["app/.gitattributes", "app/f", "app/g"]);
    })
    .await;
}

#[tokio::test]
async fn a_malicious_git_inside_leads_nowhere() {
    with_rootful_engine("[lifecycle]\nsave_max = \"8m\"\n", async |tool| {
        let name = tool.created(json!({ "image": debian(tool.case).await, "user": "1000" })).await;
        tool.prints(&name, "git init -q app && echo mine > app/mine && ln -s /etc app/etc").await;
        let lies = r##"printf '%s\n' '#!/bin/sh' 'case "$*" in' \
            '*" status "*) printf "# branch.oid \033[31m\000? ../../etc/shadow\000? /etc/shadow\000? mine\000? etc/passwd\000? mine\000";;' \
            '*" bundle "*) yes;;' '*" rev-list "*) echo 1;;' 'esac' > /usr/bin/git; rm -f /usr/local/bin/git"##;
        let call = json!({ "operation": "exec", "container": name, "command": lies, "as_root": true });
        assert_eq!(tool.call(call).await["exit_code"], 0);
        let answer = destroy(tool, &name).await;
        // A bundle without an end is too large, so the files were saved as they are.
        let names = names(&part(&answer, "/workspace/app", "archive"));
        item(&answer, "/workspace/app", "tree");
        assert!(names.iter().any(|it| it == "app/mine") && names.iter().any(|it| it == "app/.git/HEAD"), "{names:?}");
        assert!(!names.iter().any(|it| it.contains("shadow") || it.contains("passwd")), "{names:?}");
    })
    .await;
}

#[tokio::test]
async fn special_files_and_outside_links_are_named_and_excess_files_omitted() {
    with_tool("[lifecycle]\nsave_max = \"1m\"\n", async |tool| {
        let name = tool.created(json!({})).await;
        let work = "mkdir -p d target .cache && echo in > d/in && ln -s in d/link && ln -s /etc/passwd d/out && mkfifo d/pipe \
            && echo x > target/x && echo x > .cache/x && dd if=/dev/zero of=large bs=1024 count=2000 2>/dev/null \
            && for it in 1 2 3; do dd if=/dev/zero of=half$it bs=1024 count=400 2>/dev/null; done";
        tool.prints(&name, work).await;
        let answer = destroy(tool, &name).await;
        let saved = item(&answer, "/workspace", "files");
        let expected = ["workspace/d/in", "workspace/d/link", "workspace/half1", "workspace/half2"];
        assert_eq!(names(&part(&answer, "/workspace", "archive")), expected, "{answer:#}");
        let left = manifest(&answer)["items"][0]["left_out"].clone();
        let left: Vec<_> = left["entries"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
        assert_eq!((left.len() as u64, &saved["left_out"]), (3, &3.into()), "{answer:#}");
        assert_eq!(left, ["d/out", "half3", "large"]);
    })
    .await;
}

#[tokio::test]
async fn earlier_and_bound_files_are_not_saved() {
    with_tool("", async |tool| {
        let files = json!({ "given": "of the caller\n" });
        let name = tool.created(json!({ "config_files": files })).await;
        let answer = destroy(tool, &name).await;
        assert_eq!((&answer["success"], &answer["saved"]), (&true.into(), &json!([])), "{answer:#}");
    })
    .await;
    with_engine("", async |tool| {
        let name = tool.created(json!({ "mount_cwd": true })).await;
        tool.prints(&name, "echo mine > mine && mkdir .git").await;
        let answer = destroy(tool, &name).await;
        assert_eq!((&answer["success"], &answer["saved"]), (&true.into(), &json!([])), "{answer:#}");
        assert_eq!(std::fs::read_to_string(tool.work().join("mine")).unwrap(), "mine\n");
        assert!(saves(tool).is_empty());
    })
    .await;
}

#[tokio::test]
async fn without_git_whole_trees_are_saved() {
    let tree = "mkdir -p app/.git/refs app/.git/objects app/src app/node_modules && echo 'ref: x' > app/.git/HEAD \
        && echo mine > app/src/a && echo x > app/node_modules/x && echo loose > loose";
    let expected = ["app/.git/HEAD", "app/src/a"].map(str::to_owned);
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        tool.prints(&name, tree).await;
        let answer = destroy(tool, &name).await;
        item(&answer, "/workspace/app", "tree");
        assert_eq!(names(&part(&answer, "/workspace/app", "archive")), expected, "{answer:#}");
        assert_eq!(names(&part(&answer, "/workspace", "archive")), ["workspace/loose"]);

        let name = tool.created(json!({})).await;
        tool.prints(&name, tree).await;
        assert!(tool.engine(&["stop", "--time=0", &name]).await.0);
        let answer = destroy(tool, &name).await;
        item(&answer, "/workspace/app", "tree");
        let names_of = names(&part(&answer, "/workspace/app", "archive"));
        assert!(expected.iter().all(|it| names_of.contains(it)), "{names_of:?}");
        assert!(!names_of.iter().any(|it| it.contains("node_modules/x")), "{names_of:?}");
        assert_eq!(names(&part(&answer, "/workspace", "archive")), ["workspace/loose"], "{answer:#}");

        let name = tool.created(json!({})).await;
        assert!(tool.engine(&["stop", "--time=0", &name]).await.0);
        assert_eq!(destroy(tool, &name).await["saved"], json!([]), "nothing was written in it");
    })
    .await;
}

#[tokio::test]
async fn a_restored_repository_is_inert_until_the_user_activates_it() {
    with_engine("", async |tool| {
        let mark = tool.temp().canonicalize().unwrap().join("ran");
        let name = tool.created(json!({})).await;
        let plant = format!(
            "for git in app/.git bare; do mkdir -p $git/objects $git/refs $git/hooks && echo 'ref: refs/heads/main' >$git/HEAD \
             && printf '[core]\\n\\tfsmonitor = touch {0}\\n' >$git/config \
             && printf '#!/bin/sh\\ntouch {0}\\n' >$git/hooks/pre-commit && chmod 755 $git/hooks/pre-commit; done; \
             printf '\\tworktree = ..\\n' >>bare/config; echo x >app/f",
            mark.display()
        );
        tool.prints(&name, &plant).await;
        assert_eq!(destroy(tool, &name).await["success"], true);
        let output = tool.run(["saved", "restore", &name, "--into", "./back", "--json"], b"").await;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{err}: {output:?}"));
        let back = tool.work().join("back/workspace");
        let acts = async || {
            for dir in ["app", "app/.git.inert", "bare"] {
                for words in [&["status"][..], &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-mx"]] {
                    let _ = tries_git(&back.join(dir), words, "").await;
                }
            }
            mark.exists()
        };
        assert!(!acts().await, "git on the host ran what was saved: {answer:#}");
        assert!(!back.join("app/.git").exists() && back.join("app/.git.inert/config").exists(), "{answer:#}");
        // The command in the answer activates the repositories, and then git does run it.
        let commands: Vec<_> =
            answer["restored"].as_array().unwrap().iter().filter_map(|it| it["activate"].as_str()).collect();
        assert!(run_in_shell(&commands.join(" && ")).await, "{commands:?}");
        let _ = std::fs::create_dir(back.join("app/.git.inert"));
        assert!(acts().await, "{answer:#}");
        ran("inert", tool.case.engine());
    })
    .await;
}

#[expect(clippy::disallowed_methods, reason = "the user copies a command into a shell")]
async fn run_in_shell(line: &str) -> bool {
    tokio::process::Command::new("/bin/sh").args(["-c", line]).status().await.unwrap().success()
}

#[tokio::test]
async fn changes_during_the_save_block_nothing_and_commands_are_ended() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let busy = "mkdir d; while :; do for it in 1 2 3 4 5 6 7 8 9; do echo $it > d/$it; mv d/$it d/x$it; rm -f d/x$it; done; done";
        let job = tool.call(json!({ "operation": "exec_background", "container": name, "command": busy })).await;
        assert_eq!(job["success"], true, "{job:#}");
        tool.prints(&name, "echo kept > kept; setsid sh -c 'while :; do echo x > y; rm y; done' >/dev/null 2>&1 &").await;
        let call = json!({ "operation": "destroy", "container": name, "force": true });
        let answer = tool.call(call).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        assert!(names(&part(&answer, "/workspace", "archive")).contains(&"workspace/kept".to_owned()), "{answer:#}");
    })
    .await;
}

#[tokio::test]
async fn a_killed_save_is_discarded_and_the_next_one_is_complete() {
    with_tool("", async |tool| {
        let name = tool.created(json!({})).await;
        tool.prints(&name, "echo mine > mine").await;
        let half = tool.state().join("saved").join(name.to_lowercase()).join("20200101T000000.000Z");
        std::fs::create_dir_all(&half).unwrap();
        std::fs::write(half.join("0.tar"), "half").unwrap();
        let answer = destroy(tool, &name).await;
        assert_eq!(item(&answer, "/workspace", "files")["files"], 1, "{answer:#}");
        assert_eq!(saves(tool), [PathBuf::from(answer["saved"][0]["location"].as_str().unwrap())]);
    })
    .await;
}

#[tokio::test]
async fn saved_work_is_restored_into_a_container_and_into_a_directory() {
    let server = GitServer::start();
    server.repository("app", &[("a", "one\n"), ("gone", "x\n")]).await;
    with_rootful_engine(PRIVATE, async |tool| {
        if tool.case.lacks(Lack::HostAddress) {
            return;
        }
        let image = debian(tool.case).await;
        let made = json!({ "image": image, "user": "1000", "repos": [{ "url": server.url("app") }] });
        let name = tool.created(made.clone()).await;
        tool.prints(&name, WORK).await;
        tool.prints(&name, "rm app/gone; echo loose > loose").await;
        let dated = "mkdir -p dir/inner app/new; echo x | tee dir/inner/x > app/new/x; \
            touch -d @1000000000 dir/inner dir app/new";
        tool.prints(&name, dated).await;
        assert_eq!(destroy(tool, &name).await["success"], true);

        let output = tool.run(["saved", "list", "--json"], b"").await;
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&listed["count"], &listed["saves"][0]["name"]),
            (&1.into(), &name.to_lowercase().into()),
            "{listed:#}"
        );
        let restore = async |into: &str| {
            let output = tool.run(["saved", "restore", &name, "--into", into, "--json"], b"").await;
            let answer: Value =
                serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{err}: {output:?}"));
            assert_eq!(answer["success"], true, "{answer:#}");
            answer
        };
        // Creates a repository if there is none; an existing one retains its own branches.
        let empty = tool.created(json!({ "image": image, "user": "1000" })).await;
        assert_eq!(restore(&empty).await["restored"][0]["commits"], "checkedout");
        let seen = tool
            .prints(&empty, "cat loose; cd app; git log --format=%s; git status --short; cat a; stat -c %U a b")
            .await;
        assert_eq!(
            seen,
            "loose\nmine\ntest\n M a\n D gone\n?? .gitignore\n?? c\n?? new/\n?? \"un tracked\"\nchanged\nagent\nagent"
        );
        let times = tool.prints(&empty, "stat -c %Y dir dir/inner app/new").await;
        assert_eq!(times, "1000000000\n".repeat(3).trim_end());
        let clone = tool.created(made).await;
        assert_eq!(restore(&clone).await["restored"][0]["commits"], "fetched");
        let seen = tool
            .prints(&clone, "cd app; git log --format=%s refs/coracle/saved/HEAD; git log --format=%s; cat a")
            .await;
        assert_eq!(seen, "mine\ntest\ntest\nchanged");

        let answer = restore("./back").await;
        let app = tool.work().join("back/workspace/app");
        for path in
            [app.join("new"), tool.work().join("back/workspace/dir"), tool.work().join("back/workspace/dir/inner")]
        {
            let changed = path.metadata().unwrap().modified().unwrap();
            assert_eq!(changed, std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000), "{path:?}");
        }
        assert_eq!(std::fs::read_to_string(app.join("a")).unwrap(), "changed\n");
        let bundle = answer["restored"][0]["commits"]["bundle"].as_str().unwrap();
        git(tool.work().as_path(), &["clone", "--quiet", bundle, "cloned"], "").await;
        let output = tool.run(["saved", "restore", &name, "--into", "./back"], b"").await;
        assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("path_exists"));
        for other in [&empty, &clone] {
            let discarded = tool.run(["destroy", other, "--discard"], b"").await;
            assert!(discarded.status.success());
        }
    })
    .await;
}
