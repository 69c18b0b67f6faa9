//! Unusual projects: `create --repo` and worktrees can clone what git can clone, or explain what to do.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::debian::debian;
use super::person::{Person, step};
use super::sandbox::with_bench;
use super::{Tool, with_rootful_engine};
use crate::engines::LABEL;

/// The expected result for a project.
#[derive(Clone, Copy)]
enum Outcome {
    /// It is cloned. Has the checked-out branch (`HEAD` for none) and the number of commits.
    Works(&'static str, usize),
    /// It is refused with this code, and with this in its message.
    Refused(&'static str, &'static str),
}

use Outcome::{Refused, Works};

/// A repository `r` in a directory of its own.
struct Project {
    name: &'static str,
    /// Creates it, in a shell.
    setup: &'static str,
    /// With `create --repo`.
    cloned: Outcome,
    /// With `worktree create`.
    worktree: Outcome,
}

/// One commit on `main`.
const ONE: &str = "git init -qb main r; echo x > r/f; git -C r add f; git -C r commit -qm one; ";

/// A server's repository with two commits.
const SERVER: &str = "git init -qb main o; echo x > o/f; git -C o add f; git -C o commit -qm one; \
                      echo y > o/f; git -C o commit -qam two; git -C o config uploadpack.allowFilter true; ";

fn projects() -> Vec<Project> {
    let all = |name, setup, cloned, worktree| Project { name, setup, cloned, worktree };
    let both = |name, setup, outcome| all(name, setup, outcome, outcome);
    vec![
        both("usual", "one", Works("main", 1)),
        both(
            "branch",
            "git init -qb trunk r; git -C r commit -q --allow-empty -m one; git -C r branch main",
            Works("trunk", 1),
        ),
        all(
            "detached",
            "server; git clone -q o r; git -C r checkout -q --detach HEAD~1",
            Works("HEAD", 2),
            Works("main", 1),
        ),
        all(
            "sha256",
            "git init -q --object-format=sha256 -b main r; git -C r commit -q --allow-empty -m one",
            Works("main", 1),
            Refused("unsupported", "SHA-256"),
        ),
        both(
            "partial",
            "server; git clone -q --filter=blob:none file://$PWD/o r",
            Refused("fetch_failed", "partial clone"),
        ),
        both(
            "refetched",
            "server; git clone -q --filter=blob:none file://$PWD/o r; git -C r fetch -q --refetch --no-filter",
            Works("main", 2),
        ),
        all(
            "shallow",
            "server; git clone -q --depth=1 file://$PWD/o r",
            Works("main", 1),
            Refused("unsupported", "shallow clone"),
        ),
        all("empty", "git init -qb trunk r", Works("trunk", 0), Refused("base_not_found", "no commit")),
        both(
            "reftable",
            "git init -q --ref-format=reftable -b main r; git -C r commit -q --allow-empty -m one",
            Works("main", 1),
        ),
        both("foreign", "one; chown -R 4321:4321 r", Refused("policy_denied", "user 4321")),
        both("trusted", "one; chown -R 4321:4321 r; git config --global --add safe.directory $PWD/r", Works("main", 1)),
        both("alternates", "server; git clone -qs o r", Works("main", 2)),
        both("bare", "one; mv r s; git clone -q --bare s r", Works("main", 1)),
        both("linked", "one; mv r m; git -C m worktree add -q -b wt ../r", Works("wt", 1)),
        both(
            "submodules",
            "one; mv r s; one; git -C r -c protocol.file.allow=always submodule --quiet add $PWD/s sub; git -C r commit -qm two",
            Works("main", 2),
        ),
        both(
            "a-submodule",
            "one; mv r s; mkdir x; cd x; one; cd ..; mv x/r top; \
             git -C top -c protocol.file.allow=always submodule --quiet add $PWD/s sub; ln -s top/sub r",
            Works("main", 1),
        ),
        both("no-repository", "mkdir r", Refused("fetch_failed", "no git repository")),
        both(
            "damaged",
            "one; rm -f r/.git/objects/$(git -C r rev-parse HEAD:f | sed 's|^..|&/|')",
            Refused("fetch_failed", "git cannot read the repository"),
        ),
        both(
            "newer",
            "one; git -C r config core.repositoryformatversion 1; git -C r config extensions.later x",
            Refused("fetch_failed", "`extensions.later = x`"),
        ),
    ]
}

/// Runs a script of a project with the user's git.
#[expect(clippy::disallowed_methods, reason = "the user's own git makes the projects")]
async fn set_up(tool: &Tool<'_>, dir: &Path, script: &str) -> bool {
    std::fs::create_dir_all(dir).unwrap();
    let functions = format!("one() {{ {ONE} }}; server() {{ {SERVER} }}; ");
    let mut shell = tokio::process::Command::new("/bin/sh");
    shell.args(["-ec", &format!("{functions}{script}")]).current_dir(dir).env_clear();
    shell.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", tool.home()).env("GIT_CONFIG_NOSYSTEM", "1");
    for (role, name) in [("AUTHOR", "a"), ("COMMITTER", "a")] {
        shell.env(format!("GIT_{role}_NAME"), name).env(format!("GIT_{role}_EMAIL"), "a@b");
    }
    let output = shell.stdin(Stdio::null()).output().await.unwrap();
    if !output.status.success() {
        eprintln!("{}: {}", dir.display(), String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

/// Creates the projects that the git of this host supports.
async fn made(tool: &Tool<'_>) -> Vec<Project> {
    let mut all = Vec::new();
    for project in projects() {
        let dir = tool.work().join(project.name);
        if set_up(tool, &dir, project.setup).await {
            all.push(project);
        } else {
            // Git before 2.45 cannot create the former, and only root can change owners.
            let needs_root = ["foreign", "trusted"].contains(&project.name) && !rustix::process::geteuid().is_root();
            assert!(project.name == "reftable" || needs_root, "{}", project.name);
        }
    }
    all
}

/// Whether a refusal is Coracle's own: code, message, hint, and no output of git.
fn refusal_fault(found: (&Value, &Value, &Value), code: &str, says: &str) -> Option<String> {
    let text = found.1.as_str().unwrap_or_default();
    let raw = ["fatal:", "error:", "remote:", "\n"].iter().any(|word| text.contains(word));
    let good = found.0 == code && text.contains(says) && found.2.is_string() && !raw;
    (!good).then(|| format!("{} {text:?}, hint {}", found.0, found.2))
}

#[tokio::test]
async fn repositories_of_every_kind_are_cloned_or_refused_in_our_own_words() {
    with_rootful_engine("", async |tool| {
        let all = made(tool).await;
        let repo = |project: &Project| {
            json!({ "url": format!("./{}/r", project.name), "path": format!("/workspace/clones/{}", project.name) })
        };
        let repos: Vec<_> = all.iter().map(repo).collect();
        let answer = tool.made(json!({ "image": debian(tool.case).await, "repos": repos })).await;
        let (container, report) = (answer["container"].as_str().unwrap(), step(&answer, "repos"));
        let mut faults = Vec::new();
        for project in &all {
            let path = format!("/workspace/clones/{}", project.name);
            let items = report["items"].as_array().unwrap();
            let item = items.iter().find(|item| item["path"] == path.as_str());
            let fault = match (project.cloned, item) {
                (Works(head, commits), Some(item)) if item["status"] == "success" => {
                    let counts = "git rev-list --count --all";
                    let asks = format!("cd {path} && git symbolic-ref -q --short HEAD || echo HEAD; {counts}");
                    let seen = tool.prints(container, &asks).await;
                    (seen != format!("{head}\n{commits}")).then_some(seen)
                }
                (Refused(code, says), Some(item)) if item["status"] == "failed" => {
                    refusal_fault((&item["code"], &item["error"], &item["hint"]), code, says)
                }
                (_, item) => Some(format!("{item:?}")),
            };
            faults.extend(fault.map(|fault| format!("{}: {fault}", project.name)));
        }
        let detail = report["detail"].as_str().unwrap();
        for says in ["has no commit yet", "submodules of `r` are empty"] {
            assert!(detail.contains(says), "{detail}");
        }
        assert_eq!(tool.prints(container, "ls /tmp | grep -c coracle- || true").await, "0");
        assert!(faults.is_empty(), "on {}:\n{}", tool.case.engine(), faults.join("\n"));
    })
    .await;
}

#[tokio::test]
async fn worktrees_of_every_kind_are_created_or_refused_in_our_own_words() {
    with_bench("", async |bench| {
        let tool = bench.tool;
        let mut faults = Vec::new();
        for project in made(tool).await {
            let (source, workflow) = (format!("./{}/r", project.name), format!("of-{}", project.name));
            let answer = bench.tries(&["create", &source, "--workflow", &workflow]).await;
            let fault = match project.worktree {
                Works(..) => (answer["success"] != true).then(|| answer.to_string()),
                Refused(code, says) => {
                    refusal_fault((&answer["code"], &answer["message"], &answer["hint"]), code, says)
                }
            };
            faults.extend(fault.map(|fault| format!("{}: {fault}", project.name)));
            bench.tries(&["remove", &workflow, "--discard"]).await;
        }
        assert!(faults.is_empty(), "on {}:\n{}", tool.case.engine(), faults.join("\n"));
    })
    .await;
}

/// A linked worktree as the working directory, with its repository next to it.
#[tokio::test]
async fn git_reads_in_a_linked_worktree_and_where_it_cannot_the_report_says_what_to_do() {
    let roots = "[workspace]\nallow_roots = [\"{root}\"]\n";
    with_rootful_engine("", async |tool| {
        let (image, work) = (debian(tool.case).await, tool.work());
        let real = work.canonicalize().unwrap();
        let beside = real.parent().unwrap().join("beside");
        assert!(set_up(tool, &beside, "one; git -C r worktree add -qfb wt ../../work").await);
        let call = json!({ "image": image, "mount_cwd": true });
        let answer = tool.made(call.clone()).await;
        let item = &step(&answer, "workspace")["items"];
        let text = item.to_string();
        let repository = beside.join("r/.git");
        assert!(text.contains(&repository.display().to_string()) && text.contains("workspace.allow_roots"), "{item:#}");
        assert!(text.contains("create --repo"), "{item:#}");
        // With the repository in a directory that may be used, git reads it.
        let config = tool.work().parent().unwrap().join("config.toml");
        let allowed = roots.replace("{root}", &repository.display().to_string());
        let before = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, before.replacen("[workspace]\n", &allowed, 1)).unwrap();
        let answer = tool.made(call).await;
        let container = answer["container"].as_str().unwrap();
        let git =
            "cd /workspace && git log --format=%s && git symbolic-ref --short HEAD && git status --short && cat f";
        assert_eq!(tool.prints(container, git).await, "one\nwt\nx");
        assert!(step(&answer, "workspace")["items"].to_string().contains("read-only"), "{answer:#}");
        // Code inside cannot make git on the host run anything.
        let commit = tool
            .exec(container, "cd /workspace && git -c user.name=a -c user.email=a@b commit -qm x --allow-empty")
            .await;
        assert_ne!(commit["exit_code"], 0, "{commit:#}");
        let put = format!("echo x > {}/config", repository.display());
        assert_ne!(tool.exec(container, put).await["exit_code"], 0);
        // A repository that names another directory as its worktree is not mounted: code inside may have written `.git`.
        let names = std::fs::read_dir(repository.join("worktrees")).unwrap().next().unwrap().unwrap().path();
        std::fs::write(names.join("gitdir"), "/elsewhere/.git\n").unwrap();
        let answer = tool.made(json!({ "image": image, "mount_cwd": true })).await;
        let container = answer["container"].as_str().unwrap();
        let found = tool.exec(container, format!("test -e {}", repository.display())).await;
        assert_ne!(found["exit_code"], 0, "{answer:#}");
    })
    .await;
}

#[tokio::test]
async fn a_submodule_and_a_link_say_where_git_works() {
    with_rootful_engine("", async |tool| {
        let image = debian(tool.case).await;
        let real = tool.work().canonicalize().unwrap();
        let beside = real.parent().unwrap().join("beside");
        assert!(set_up(tool, &beside, "one").await);
        for (pointer, is_link) in [("link", true), ("file", false)] {
            let (git, target) = (real.join(".git"), beside.join("r/.git"));
            let _ = std::fs::remove_file(&git);
            if is_link {
                std::os::unix::fs::symlink(&target, &git).unwrap();
            } else {
                std::fs::write(beside.join("r/.git/config"), "[core]\n\tworktree = ../../../work\n").unwrap();
                std::fs::write(&git, format!("gitdir: {}\n", target.display())).unwrap();
            }
            let answer = tool.made(json!({ "image": image, "mount_cwd": true })).await;
            let text = step(&answer, "workspace")["items"].to_string();
            assert!(text.contains(&target.display().to_string()) && text.contains("hint"), "{pointer}: {text}");
        }
    })
    .await;
}

/// The user's own git is used if it is newer than the system's.
#[tokio::test]
async fn a_newer_git_of_the_user_runs() {
    let programs = super::person::Programs::new().with(
        "git",
        "case \"$*\" in version) echo git version 99.0.0 ;; *) echo \"$*\" >> \"$(dirname \"$0\")/ran\"; \
         for git in /usr/local/bin/git /usr/bin/git; do test -x $git && exec $git \"$@\"; done ;; esac",
    );
    let ran = programs.path("ran");
    Person::new("")
        .with_programs(&programs)
        .on_the_fake(async |tool| {
            assert!(set_up(tool, &tool.work().join("own"), "one").await);
            tool.made(json!({ "repos": [{ "url": "./own/r" }] })).await;
            let words = std::fs::read_to_string(&ran).unwrap();
            assert!(words.contains("ls-remote"), "{words}");
        })
        .await;
}

#[tokio::test]
async fn a_bound_directory_that_is_made_again_is_named_until_it_is_mounted_again() {
    with_rootful_engine("", async |tool| {
        let dir = tool.work().join("bound");
        std::fs::create_dir(&dir).unwrap();
        let mounts = json!([{ "host": "bound", "container": "/data" }]);
        let container = tool.created(json!({ "mounts": mounts })).await;
        let codes =
            async |answer: Value| super::person::warnings(&answer).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let status = json!({ "operation": "status", "container": container });
        assert!(codes(tool.exec(&container, "true").await).await.is_empty());
        std::fs::remove_dir(&dir).unwrap();
        // Its number is not given to the new one.
        std::fs::create_dir(tool.work().join("other")).unwrap();
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("new"), "new").unwrap();
        let answer = tool.exec(&container, "ls /data").await;
        assert_eq!(answer["stdout"], "", "{answer:#}");
        let message = answer["warnings"][0]["message"].as_str().unwrap();
        for says in [dir.canonicalize().unwrap().to_str().unwrap(), "/data", &format!("coracle start {container}")] {
            assert!(message.contains(says), "{message}");
        }
        assert_eq!(codes(answer).await, ["mount_replaced"]);
        assert_eq!(codes(tool.call(status.clone()).await).await, ["mount_replaced"]);
        for word in ["stop", "start"] {
            let output = tool.run([word, &container], b"").await;
            assert!(output.status.success(), "{word}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let answer = tool.exec(&container, "ls /data").await;
        assert_eq!(answer["stdout"], "new\n", "{answer:#}");
        assert!(codes(answer).await.is_empty() && codes(tool.call(status).await).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn files_that_no_image_can_hold_are_named_by_a_snapshot() {
    with_rootful_engine("", async |tool| {
        let container = tool.created(json!({})).await;
        tool.prints(&container, "mkdir -p /srv/d; echo x > /srv/d/.wh.odd; echo y > /srv/d/plain").await;
        let snapshot = tool.case.name("odd").to_string();
        let call = json!({ "operation": "snapshot", "container": container, "snapshot": snapshot });
        let answer = tool.call(call).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        let left_out = answer["not_included"].to_string();
        assert!(left_out.contains("/srv/d/.wh.odd") && !left_out.contains("plain"), "{left_out}");
        let labels = json!({ LABEL: tool.case.container_label().1 });
        let restored = tool.call(json!({ "operation": "restore", "snapshot": snapshot, "labels": labels })).await;
        let name = restored["container"].as_str().unwrap_or_else(|| panic!("{restored:#}"));
        assert_eq!(tool.prints(name, "cat /srv/d/plain; test -e /srv/d/.wh.odd || echo gone").await, "y\ngone");
        tool.destroy(name).await;
        tool.call(json!({ "operation": "snapshot_delete", "name": snapshot })).await;
    })
    .await;
}
