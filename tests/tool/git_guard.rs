//! Attacks by code in a container on a bound repository, and the effects on the host's git afterwards.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use coracle_lifecycle::{GUARDED, Guard};
use serde_json::{Value, json};

use super::debian::debian;
use super::{Tool, with_engine, with_rootful_engine};
use crate::engines::ran;

/// A configuration that protects nothing of git, as the control of the table.
pub(super) const UNPROTECTED: &str = "[workspace]\nprotected = [\".envrc\"]\n";

/// The mounts of a call.
const AT_ONCE: usize = 20;

/// Tries hard to write standard input to a path.
pub(super) const PUT: &str = r#"put() { c=$(cat); d=$(dirname "$1"); mkdir -p "$d"
  printf '%s\n' "$c" >"$1" && return; printf '%s\n' "$c" >"$d/.new" && mv -f "$d/.new" "$1" && return
  rm -rf "$1" && printf '%s\n' "$c" >"$1" && return
  mv "$d" "$d.was" && cp -R "$d.was" "$d" && rm -rf "$1" && printf '%s\n' "$c" >"$1"; }
evil() { rm -f evil.sh; printf '#!/bin/sh\ntouch %s\n' "$MARK" >evil.sh; chmod 755 evil.sh; }
hostile() { printf '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = %s/evil.sh\n' "$HERE" | put "$1"; }
evil
"#;

/// One way to make the host's git act.
struct Attack {
    /// The path of [`GUARDED`], or a path that the host's configuration names.
    path: &'static str,
    /// What the repository has in addition to one commit.
    setup: fn(&Repo),
    /// The attack by code inside.
    inside: &'static str,
    /// What the user does then. Returns whether the attack succeeded.
    act: fn(&Repo) -> bool,
}

/// A repository of the user, on the host.
struct Repo {
    dir: PathBuf,
    home: PathBuf,
}

impl Repo {
    /// The outcome of the user's git, in a directory relative to the repository.
    #[expect(clippy::disallowed_methods, reason = "the user's own git is tried")]
    fn git_in(&self, dir: &str, words: &[&str]) -> bool {
        let mut git = std::process::Command::new("git");
        git.current_dir(self.dir.join(dir)).args(words).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        git.env("HOME", &self.home).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_EDITOR", "true");
        git.output().unwrap().status.success()
    }

    fn git(&self, words: &[&str]) -> bool {
        self.git_in("", words)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn commit(&self, path: &str, text: &str) {
        self.put(path, text);
        assert!(self.git(&["add", "-A"]) && self.git(&["commit", "-qm", path]));
    }

    /// A file next to the repository.
    fn beside(&self, ending: &str) -> PathBuf {
        PathBuf::from(format!("{}{ending}", self.dir.display()))
    }

    /// Whether the program that code inside left has run.
    fn ran(&self) -> bool {
        self.beside(".ran").exists()
    }

    /// Another repository of the user, which no container sees.
    fn other(&self) -> Self {
        let other = Self { dir: self.beside(".other"), home: self.home.clone() };
        std::fs::create_dir_all(&other.dir).unwrap();
        assert!(other.git(&["init", "-q"]));
        other.commit("secret", "secret\n");
        other
    }

    fn is_there(&self, path: &str) -> bool {
        self.dir.join(path).symlink_metadata().is_ok()
    }

    /// Keeps the state of an operation that git began, and takes the repository back to its branch.
    fn keep_state(&self, name: &str) {
        let state = self.dir.join(".git").join(name);
        std::fs::rename(&state, self.dir.join("state")).unwrap_or_else(|err| panic!("{}: {err}", state.display()));
        let _ = std::fs::remove_file(self.dir.join(".git/CHERRY_PICK_HEAD"));
        assert!(self.git(&["checkout", "-qf", "main"]) && self.git(&["reset", "-q", "--hard"]));
    }
}

fn nothing(_: &Repo) {}

fn status(repo: &Repo) -> bool {
    repo.git(&["status"]);
    repo.ran()
}

fn commits(repo: &Repo) -> bool {
    repo.git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    repo.ran()
}

fn adds(repo: &Repo) -> bool {
    repo.git(&["add", "-A"]);
    repo.ran()
}

fn fetches(repo: &Repo) -> bool {
    repo.git(&["fetch", "-q"]);
    repo.is_there(".git/FETCH_HEAD") && repo.dir.join(".git/FETCH_HEAD").metadata().unwrap().len() > 0
}

/// Two commits on a branch, of which the first one conflicts.
fn conflicting(repo: &Repo) {
    assert!(repo.git(&["checkout", "-qb", "theirs"]));
    repo.commit("f", "theirs\n");
    repo.commit("g", "more\n");
    assert!(repo.git(&["checkout", "-q", "main"]));
    repo.commit("f", "ours\n");
}

fn changed(repo: &Repo, path: &str) -> bool {
    std::fs::read_to_string(repo.dir.join(path)).is_ok_and(|text| text.contains("hostile"))
}

fn attacks() -> Vec<Attack> {
    vec![
        Attack { path: ".git/config", setup: nothing, inside: "hostile .git/config", act: status },
        Attack {
            path: ".git/config.worktree",
            setup: |repo| assert!(repo.git(&["config", "extensions.worktreeConfig", "true"])),
            inside: "hostile .git/config.worktree",
            act: status,
        },
        Attack {
            path: ".git/commondir",
            setup: nothing,
            inside: "cp -R .git evil.git; rm -f evil.git/commondir; hostile evil.git/config; echo ../evil.git | put .git/commondir",
            act: status,
        },
        Attack {
            path: ".git/hooks",
            setup: nothing,
            inside: "put .git/hooks/pre-commit <evil.sh; chmod 755 .git/hooks/pre-commit",
            act: commits,
        },
        Attack {
            path: ".git/info",
            setup: nothing,
            inside: "echo '* filter=mark' | put .git/info/attributes; echo more >>f",
            act: adds,
        },
        Attack {
            path: ".git/modules",
            setup: |repo| {
                let other = repo.other().dir;
                assert!(repo.git(&["submodule", "--quiet", "add", other.to_str().unwrap(), "sub"]));
                assert!(repo.git(&["commit", "-qm", "sub"]));
            },
            inside: "cp .git/modules/sub/config c; printf '[core]\\n\\tfsmonitor = %s/evil.sh\\n' \"$HERE\" >>c; put .git/modules/sub/config <c",
            act: status,
        },
        Attack {
            path: ".git/worktrees",
            setup: |repo| assert!(repo.git(&["worktree", "add", "-q", repo.beside(".wt").to_str().unwrap()])),
            inside: "cp -R .git evil.git; hostile evil.git/config; echo $HERE/evil.git | put .git/worktrees/*.wt/commondir",
            act: |repo| {
                repo.git_in(repo.beside(".wt").to_str().unwrap(), &["status"]);
                repo.ran()
            },
        },
        Attack {
            path: ".git/objects/info/alternates",
            setup: |repo| drop(repo.other()),
            inside: "echo $HERE.other/.git/objects | put .git/objects/info/alternates",
            // The name of the content `secret\n`.
            act: |repo| repo.git(&["cat-file", "-e", "d97c5eada5d8c52079031eef0107a4430a9617c5"]),
        },
        Attack {
            path: ".git/rebase-merge",
            setup: |repo| {
                repo.commit("g", "g\n");
                assert!(repo.git(&["-c", "sequence.editor=sed -i 1ibreak", "rebase", "-q", "-i", "HEAD~1"]));
                repo.keep_state("rebase-merge");
            },
            inside: "cp -R state .git/rebase-merge; echo \"exec touch $MARK\" >.git/rebase-merge/git-rebase-todo",
            act: |repo| {
                repo.git(&["rebase", "--continue"]);
                repo.ran()
            },
        },
        Attack {
            path: ".git/rebase-apply",
            setup: |repo| {
                conflicting(repo);
                assert!(repo.git(&["format-patch", "-q", "-o", "mail", "main...theirs"]));
                let mail = ["0001-f.patch", "0002-g.patch"].map(|it| repo.dir.join("mail").join(it));
                let mail = mail.each_ref().map(|it| it.to_str().unwrap());
                assert!(!repo.git(&["am", "-q", mail[0], mail[1]]));
                repo.keep_state("rebase-apply");
            },
            inside: "cp -R state .git/rebase-apply",
            act: |repo| {
                repo.git(&["am", "--skip"]);
                repo.is_there("g")
            },
        },
        Attack {
            path: ".git/sequencer",
            setup: |repo| {
                conflicting(repo);
                assert!(!repo.git(&["cherry-pick", "theirs~1", "theirs"]));
                repo.keep_state("sequencer");
            },
            inside: "cp -R state .git/sequencer",
            act: |repo| {
                repo.git(&["cherry-pick", "--continue"]);
                repo.is_there("g")
            },
        },
        Attack {
            path: ".git/remotes",
            setup: |repo| drop(repo.other()),
            inside: "printf 'URL: %s\\nPull: refs/heads/*:refs/remotes/origin/*\\n' $HERE.other | put .git/remotes/origin",
            act: fetches,
        },
        Attack {
            path: ".git/branches",
            setup: |repo| drop(repo.other()),
            inside: "echo $HERE.other#main | put .git/branches/origin",
            act: fetches,
        },
        Attack {
            path: ".gitattributes",
            setup: nothing,
            inside: "echo '* filter=mark' >.gitattributes; echo more >>f",
            act: adds,
        },
        // Whether the program of these is on the host or not: what it reads is not theirs to write.
        file(".jj/repo/config.toml", |it| it.put(".jj/repo/config.toml", ""), |it| changed(it, ".jj/repo/config.toml")),
        file(
            ".jj/workspace-config.toml",
            |it| it.put(".jj/workspace-config.toml", ""),
            |it| changed(it, ".jj/workspace-config.toml"),
        ),
        file(".jj/repo/config-id", |it| it.put(".jj/repo/config-id", ""), |it| changed(it, ".jj/repo/config-id")),
        file(
            ".jj/workspace-config-id",
            |it| it.put(".jj/workspace-config-id", ""),
            |it| changed(it, ".jj/workspace-config-id"),
        ),
        file(
            ".jj/repo/store/git_target",
            |it| it.put(".jj/repo/store/git_target", ""),
            |it| changed(it, ".jj/repo/store/git_target"),
        ),
        file(".hg/hgrc", |it| it.put(".hg/requires", ""), |it| changed(it, ".hg/hgrc")),
        file(".hg/hgrc-not-shared", |it| it.put(".hg/requires", ""), |it| changed(it, ".hg/hgrc-not-shared")),
        file(".hg/requires", |it| it.put(".hg/requires", ""), |it| changed(it, ".hg/requires")),
        file(".hg/sharedpath", |it| it.put(".hg/sharedpath", ""), |it| changed(it, ".hg/sharedpath")),
    ]
}

/// A file whose content alone counts.
fn file(path: &'static str, setup: fn(&Repo), act: fn(&Repo) -> bool) -> Attack {
    Attack { path, setup, inside: "echo hostile | put $PATH_OF_ROW", act }
}

/// Paths in the tree that the host's configuration names, and git directories in other places.
fn configured() -> Vec<Attack> {
    let of = |path, setup, inside, act| Attack { path, setup, inside, act };
    vec![
        of(
            ".githooks",
            |repo| {
                assert!(repo.git(&["config", "core.hooksPath", ".githooks"]));
                repo.commit(".githooks/README", "x\n");
            },
            "put .githooks/pre-commit <evil.sh; chmod 755 .githooks/pre-commit",
            commits,
        ),
        of(
            "scripts",
            |repo| assert!(repo.git(&["config", "core.hooksPath", "scripts"])),
            "put scripts/pre-commit <evil.sh; chmod 755 scripts/pre-commit",
            commits,
        ),
        of(
            "team.gitconfig",
            |repo| {
                assert!(repo.git(&["config", "include.path", "../team.gitconfig"]));
                repo.commit("team.gitconfig", "[core]\n");
            },
            "hostile team.gitconfig",
            status,
        ),
        of(
            "later.gitconfig",
            |repo| assert!(repo.git(&["config", "include.path", "../later.gitconfig"])),
            "hostile later.gitconfig",
            status,
        ),
        of(
            "tools/watch",
            |repo| {
                repo.commit("tools/watch", "#!/bin/sh\nexit 1\n");
                let run = PermissionsExt::from_mode(0o755);
                std::fs::set_permissions(repo.dir.join("tools/watch"), run).unwrap();
                assert!(repo.git(&["config", "core.fsmonitor", "./tools/watch"]));
            },
            "put tools/watch <evil.sh; chmod 755 tools/watch",
            status,
        ),
        of(
            "tools/clean.sh",
            |repo| {
                repo.put("tools/clean.sh", "cat\n");
                repo.commit(".gitattributes", "f filter=own\n");
                assert!(repo.git(&["config", "filter.own.clean", "sh tools/clean.sh %f"]));
            },
            "put tools/clean.sh <evil.sh; echo more >>f",
            adds,
        ),
        of(
            "own.attributes",
            |repo| assert!(repo.git(&["config", "core.attributesFile", "own.attributes"])),
            "echo '* filter=mark' | put own.attributes; echo more >>f",
            adds,
        ),
        of(
            "lib/.git/config",
            |repo| {
                let lib = Repo { dir: repo.dir.join("lib"), home: repo.home.clone() };
                std::fs::create_dir(&lib.dir).unwrap();
                assert!(lib.git(&["init", "-q"]));
                lib.commit("l", "l\n");
                assert!(repo.git(&["add", "lib"]) && repo.git(&["commit", "-qm", "lib"]));
            },
            "hostile lib/.git/config",
            status,
        ),
        of(
            "tree.git/config",
            |repo| assert!(repo.git(&["init", "-q", "--separate-git-dir=tree.git"])),
            "cp tree.git/config c; printf '[core]\\n\\tfsmonitor = %s/evil.sh\\n' $HERE >>c; put tree.git/config <c",
            status,
        ),
        // A worktree that the user adds later.
        of(
            ".git/worktrees",
            nothing,
            "cp -R .git evil.git; hostile evil.git/config; mkdir -p .git/worktrees/w; echo $HERE/evil.git | put .git/worktrees/w/commondir",
            |repo| {
                let wt = repo.beside(".wt");
                if !repo.is_there(".git/worktrees/w") {
                    return !repo.git(&["worktree", "add", "-q", wt.to_str().unwrap()]);
                }
                std::fs::create_dir(&wt).unwrap();
                std::fs::write(wt.join(".git"), format!("gitdir: {}/.git/worktrees/w\n", repo.dir.display())).unwrap();
                std::fs::copy(repo.dir.join(".git/HEAD"), repo.dir.join(".git/worktrees/w/HEAD")).unwrap();
                repo.git_in(wt.to_str().unwrap(), &["status"]);
                repo.ran()
            },
        ),
    ]
}

/// Attacks that only a review finds, with the finding.
fn looked_for() -> Vec<(Attack, &'static str)> {
    let of = |path, inside, act| Attack { path, setup: nothing, inside, act };
    vec![
        (
            of(
                "data",
                "mkdir -p data/objects data/refs; cp .git/HEAD .git/index data; \
                 printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = ..\\n\\tfsmonitor = %s/evil.sh\\n' $HERE >data/config",
                |repo| {
                    repo.git_in("data", &["status"]);
                    repo.ran()
                },
            ),
            "repository",
        ),
        (of(".git/COMMIT_EDITMSG", "rm -f .git/COMMIT_EDITMSG; ln -s $MARK .git/COMMIT_EDITMSG", commits), "link"),
    ]
}

/// Repositories of the user, prepared for attacks.
fn repositories(tool: &Tool<'_>, attacks: &[Attack]) -> Vec<Repo> {
    let (work, home) = (tool.work().canonicalize().unwrap(), tool.home().canonicalize().unwrap());
    let config = "[user]\n\tname = A\n\temail = a@example.com\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n\
                  [filter \"mark\"]\n\tclean = touch \\\"$PWD.ran\\\"; cat\n";
    std::fs::write(home.join(".gitconfig"), config).unwrap();
    let prepare = |(index, attack): (usize, &Attack)| {
        let repo = Repo { dir: work.join(format!("r{index}")), home: home.clone() };
        std::fs::create_dir(&repo.dir).unwrap();
        assert!(repo.git(&["init", "-q"]));
        repo.commit("f", "f\n");
        (attack.setup)(&repo);
        repo
    };
    attacks.iter().enumerate().map(prepare).collect()
}

/// Lets code inside attack each repository. Returns the container.
async fn attacked(tool: &Tool<'_>, attacks: &[Attack], repos: &[Repo]) -> String {
    let mounts: Vec<Value> =
        repos.iter().enumerate().map(|(n, it)| json!({ "host": it.dir, "container": format!("/r{n}") })).collect();
    let name = tool.created(json!({ "mount_cwd": false, "mounts": mounts })).await;
    for (index, (attack, repo)) in attacks.iter().zip(repos).enumerate() {
        let (here, mark) = (repo.dir.display(), repo.beside(".ran").display().to_string());
        let script =
            format!("cd /r{index} && HERE={here} MARK={mark} PATH_OF_ROW={}\n{PUT}\n{}", attack.path, attack.inside);
        let done = tool.exec(&name, script).await;
        assert_eq!(done["success"], true, "{done:#}");
    }
    name
}

/// Paths that an answer lists for review.
fn review(answer: &Value) -> Vec<(PathBuf, &str)> {
    let listed = answer["review"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    listed.iter().map(|it| (it["path"].as_str().unwrap().into(), it["change"].as_str().unwrap())).collect()
}

async fn guarded(tool: &Tool<'_>, attacks: &[Attack]) {
    let repos = repositories(tool, attacks);
    let name = attacked(tool, attacks, &repos).await;
    let status = tool.call(json!({ "operation": "status", "container": name })).await;
    let found = review(&status);
    for (attack, repo) in attacks.iter().zip(&repos) {
        let row = GUARDED.iter().find(|row| row.path == attack.path).map(|row| row.guard);
        let path = repo.dir.join(attack.path);
        if row == Some(Guard::Reviewed) {
            assert!(found.iter().any(|it| it.0 == path), "{} is not reported: {found:?}", attack.path);
        } else {
            assert!(!(attack.act)(repo), "`{}`: the host acted on what a container wrote", attack.path);
        }
    }
    let destroyed = tool.call(json!({ "operation": "destroy", "container": name })).await;
    assert_eq!(destroyed["success"], true, "{destroyed:#}");
    for name in [".githooks/pre-commit", "later.gitconfig", "own.attributes", ".git/config.worktree"] {
        assert!(!repos.iter().any(|it| it.is_there(name)), "placeholder `{name}` is left");
    }
}

/// Without the protection the same happens, so the attacks are real.
async fn unguarded(tool: &Tool<'_>, attacks: &[Attack]) {
    let repos = repositories(tool, attacks);
    attacked(tool, attacks, &repos).await;
    for (attack, repo) in attacks.iter().zip(&repos) {
        assert!((attack.act)(repo), "`{}`: the attack does nothing", attack.path);
    }
}

#[test]
fn each_row_of_the_table_has_its_attack() {
    let attacks = attacks();
    let tried: Vec<_> = attacks.iter().map(|it| it.path).collect();
    let rows: Vec<_> = GUARDED.iter().map(|row| row.path).collect();
    assert_eq!(tried, rows);
}

#[tokio::test]
async fn git_on_the_host_does_nothing_that_a_container_wrote_into_its_repository() {
    let attacks = attacks();
    let (first, second) = attacks.split_at(AT_ONCE);
    for attacks in [first, second] {
        with_engine("", async |tool| {
            guarded(tool, attacks).await;
            ran("git-guard", tool.case.engine());
        })
        .await;
    }
}

#[tokio::test]
async fn without_the_protection_git_on_the_host_does_all_of_it() {
    let attacks = attacks();
    let (first, second) = attacks.split_at(AT_ONCE);
    for attacks in [first, second] {
        with_engine(UNPROTECTED, async |tool| unguarded(tool, attacks).await).await;
    }
}

#[tokio::test]
async fn paths_in_the_tree_that_the_users_configuration_names_are_protected() {
    let attacks = configured();
    with_engine("", async |tool| {
        guarded(tool, &attacks).await;
        ran("git-configured", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn without_the_protection_what_the_configuration_names_runs() {
    let attacks = configured();
    with_engine(UNPROTECTED, async |tool| unguarded(tool, &attacks).await).await;
}

#[tokio::test]
async fn unprotectable_paths_are_reported_and_would_run() {
    with_engine("", async |tool| {
        let (attacks, changes): (Vec<_>, Vec<_>) = looked_for().into_iter().unzip();
        let repos = repositories(tool, &attacks);
        let name = attacked(tool, &attacks, &repos).await;
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        assert!(review(&status).contains(&(repos[1].dir.join(".git/COMMIT_EDITMSG"), "link")), "{status:#}");
        let destroyed = tool.call(json!({ "operation": "destroy", "container": name })).await;
        for ((attack, repo), change) in attacks.iter().zip(&repos).zip(changes) {
            let expected = (repo.dir.join(attack.path), change);
            assert!(review(&destroyed).contains(&expected), "{expected:?}: {destroyed:#}");
            // Without root git may take the directory for another user's.
            assert!((attack.act)(repo) || tool.case.is_rootless(), "`{}`: the attack does nothing", attack.path);
        }
    })
    .await;
}

#[tokio::test]
async fn git_inside_a_bound_repository_works() {
    with_rootful_engine("", async |tool| {
        let image = debian(tool.case).await;
        let repos = repositories(tool, &[Attack { path: "", setup: nothing, inside: "", act: status }]);
        let mounts = json!([{ "host": repos[0].dir, "container": "/r" }]);
        let name = tool.created(json!({ "image": image, "mount_cwd": false, "mounts": mounts })).await;
        let work = "cd /r && git config --global user.name B && git config --global user.email b@example.com \
             && git checkout -qb topic && echo one >one && git add one && git commit -qm one \
             && echo two >>one && git stash -q && git stash pop -q && git commit -qam two \
             && git checkout -q main && echo base >base && git add base && git commit -qm base \
             && git checkout -q topic && git rebase -q main && git gc -q && git log --format=%s && git status --short";
        assert_eq!(tool.prints(&name, work).await, "two\none\nbase\nf");
        let wt: &Path = &repos[0].beside(".wt");
        assert!(repos[0].git(&["worktree", "add", "-q", wt.to_str().unwrap(), "main"]));
        tool.call(json!({ "operation": "destroy", "container": name })).await;
        assert!(repos[0].git_in(wt.to_str().unwrap(), &["status"]) && repos[0].git(&["fsck"]));
    })
    .await;
}
