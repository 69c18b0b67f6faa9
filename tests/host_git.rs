//! The host's git against real servers, some of which mean harm.

use std::path::Path;
use std::time::Duration;

use coracle_host::branch::BranchName;
use coracle_host::git::{GitProgram, HostGit, InspectError, Remote};
use coracle_host::git_url::{GitRules, GitUrl};
use tempfile::TempDir;

use crate::engines::{GitServer, Manner, git, tries_git};
use crate::tool::eventually;

fn remote(url: &str) -> Remote {
    let rules = GitRules { allow_private: true, ssh: false };
    Remote { url: GitUrl::parse(url, rules).unwrap(), branch: None, allow_private: true }
}

/// Inspects a repository, and leaves no files.
async fn look(looks: &GitProgram, remote: &Remote) -> Result<Vec<String>, InspectError> {
    let temp = tempfile::tempdir().unwrap();
    let seen = looks.top_level(remote, temp.path()).await;
    assert_eq!(left_in(&temp), 0, "{seen:?}");
    assert_eq!(running_in(temp.path()), Vec::<String>::new());
    seen
}

async fn names(url: &str) -> Result<Vec<String>, InspectError> {
    look(&GitProgram::of_this_host(&[]).await, &remote(url)).await
}

fn left_in(dir: &TempDir) -> usize {
    std::fs::read_dir(dir.path()).unwrap().count()
}

/// Command lines of processes that name the directory.
fn running_in(dir: &Path) -> Vec<String> {
    let lines = std::fs::read_dir("/proc").unwrap().filter_map(|it| {
        let line = std::fs::read(it.unwrap().path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|it| it.contains(dir.to_str().unwrap())).collect()
}

#[tokio::test]
async fn the_names_at_the_top_are_seen_and_no_file_is_fetched() {
    let server = GitServer::start();
    let long = "x".repeat(100_000);
    server.repository("web", &[("Cargo.toml", &long), ("src/main.rs", &long), ("a b", "")]).await;
    server.commit("web", "other", &[("go.mod", "")]).await;
    assert_eq!(names(&server.local_url("web")).await.unwrap(), ["Cargo.toml", "a b", "src"]);
    let branch = Some(BranchName::parse("other").unwrap());
    let other = Remote { branch, ..remote(&server.local_url("web")) };
    assert_eq!(look(&GitProgram::of_this_host(&[]).await, &other).await.unwrap(), ["go.mod"]);
    let gone = Remote { branch: Some(BranchName::parse("gone").unwrap()), ..other };
    assert!(matches!(look(&GitProgram::of_this_host(&[]).await, &gone).await, Err(InspectError::Unreachable(_))));
    assert!(server.requests().iter().all(|it| !it.headers.contains_key("authorization")));
}

#[tokio::test]
async fn private_missing_and_silent_repositories_are_distinguished() {
    let server = GitServer::start();
    server.repository("web", &[("a", "")]).await;
    let missing = names(&server.local_url("none")).await;
    assert!(matches!(missing, Err(InspectError::Unreachable(_))), "{missing:?}");
    let unreachable = names("http://127.0.0.1:1/x").await;
    assert!(matches!(unreachable, Err(InspectError::Unreachable(_))), "{unreachable:?}");
    server.requires("me", "sesame");
    assert!(matches!(names(&server.local_url("web")).await, Err(InspectError::Private)));
    server.behaves(Manner::Silent);
    let hasty = GitProgram { deadline: Duration::from_millis(500), ..GitProgram::of_this_host(&[]).await };
    let late = look(&hasty, &remote(&server.local_url("web"))).await;
    assert!(matches!(late, Err(InspectError::TooSlow { .. })), "{late:?}");
    let none = GitProgram { program: None, ..hasty };
    assert!(matches!(look(&none, &remote(&server.local_url("web"))).await, Err(InspectError::NoGit)));
}

#[tokio::test]
async fn more_than_allowed_is_not_fetched() {
    let server = GitServer::start();
    // Digits that do not compress well.
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{state:016x}")
    };
    let long: String = (0..1 << 18).map(|_| next()).collect();
    server.repository("web", &[("a", &long)]).await;
    let small = GitProgram { max_bytes: 1 << 20, ..GitProgram::of_this_host(&[]).await };
    assert_eq!(look(&small, &remote(&server.local_url("web"))).await.unwrap(), ["a"]);
    git(&server.dir("web"), &["config", "uploadpack.allowFilter", "false"], "").await;
    let seen = look(&small, &remote(&server.local_url("web"))).await;
    assert!(matches!(seen, Err(InspectError::TooBig { max_bytes: 1_048_576 })), "{seen:?}");
}

#[tokio::test]
async fn a_cancelled_call_leaves_nothing_behind() {
    let server = GitServer::start();
    server.behaves(Manner::Silent);
    let temp = tempfile::tempdir().unwrap();
    let (looks, remote) = (GitProgram::of_this_host(&[]).await, remote(&server.local_url("web")));
    let seen = looks.top_level(&remote, temp.path());
    let git_asks = eventually("git asks", Duration::from_secs(20), async || !server.requests().is_empty());
    tokio::select! {
        seen = seen => panic!("{seen:?}"),
        () = git_asks => assert!(!running_in(temp.path()).is_empty()),
    }
    eventually("it is cleared away", Duration::from_secs(10), async || {
        left_in(&temp) == 0 && running_in(temp.path()).is_empty()
    })
    .await;
}

#[tokio::test]
async fn no_process_is_redirected_elsewhere() {
    let (server, elsewhere) = (GitServer::start(), GitServer::start());
    server.repository("web", &[("a", "")]).await;
    elsewhere.repository("web", &[("b", "")]).await;
    for to in [elsewhere.local_url("web"), "file:///etc".into(), "ext::sh -c id".into()] {
        server.behaves(Manner::Redirects(to));
        let seen = names(&server.local_url("web")).await;
        assert!(matches!(seen, Err(InspectError::Unreachable(_))), "{seen:?}");
    }
    server.behaves(Manner::Honest);
    // Servers may name files to fetch first.
    let uri = elsewhere.local_url("bundle");
    for (key, value) in [
        ("uploadpack.advertiseBundleURIs", "true"),
        ("bundle.version", "1"),
        ("bundle.mode", "all"),
        ("bundle.it.uri", &uri),
    ] {
        git(&server.dir("web"), &["config", key, value], "").await;
    }
    assert_eq!(names(&server.local_url("web")).await.unwrap(), ["a"]);
    assert_eq!(elsewhere.requests().len(), 0, "{:?}", elsewhere.requests());
}

/// Mode, path and content in the format of `git fast-import`.
type File = (&'static str, &'static str, &'static str);

/// Contents of hostile repositories; `RUN` becomes a command that leaves a trace.
const HOSTILE: &[(&str, &[File])] = &[
    (
        "filter",
        &[("100644", ".gitattributes", "* filter=evil\n"), ("100644", ".gitconfig", "[filter \"evil\"]\nsmudge=RUN\n")],
    ),
    ("drivers", &[("100644", ".gitattributes", "* diff=evil merge=evil text eol=crlf ident export-subst\n")]),
    ("encoding", &[("100644", ".gitattributes", "* working-tree-encoding=UTF-7\n"), ("100644", "a", "+AAA-")]),
    (
        "lfs",
        &[
            ("100644", ".gitattributes", "* filter=lfs diff=lfs merge=lfs -text\n"),
            (
                "100644",
                ".lfsconfig",
                "[lfs]\nurl = file:///tmp\n[lfs \"customtransfer.evil\"]\npath = sh\nargs = -c 'RUN'\n",
            ),
        ],
    ),
    (
        "submodule by a program",
        &[
            ("100644", ".gitmodules", "[submodule \"s\"]\npath = s\nurl = ext::RUN\n"),
            ("160000", "s", "1111111111111111111111111111111111111111"),
        ],
    ),
    (
        "submodule with an option",
        &[
            ("100644", ".gitmodules", "[submodule \"s\"]\npath = s\nurl = --upload-pack=RUN\n"),
            ("160000", "s", "1111111111111111111111111111111111111111"),
        ],
    ),
    (
        "submodule with an update",
        &[
            ("100644", ".gitmodules", "[submodule \"s\"]\npath = s\nurl = ./s\nupdate = !RUN\n"),
            ("160000", "s", "1111111111111111111111111111111111111111"),
        ],
    ),
    (
        "submodule elsewhere",
        &[
            ("100644", ".gitmodules", "[submodule \"../../hooks\"]\npath = -s\nurl = file:///tmp\n"),
            ("160000", "-s", "1111111111111111111111111111111111111111"),
        ],
    ),
    (
        "a bare repository inside",
        &[
            ("100644", "HEAD", "ref: refs/heads/main\n"),
            ("100644", "config", "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = RUN\n"),
            ("100644", "objects/x", ""),
            ("100644", "refs/heads/x", ""),
            ("100755", "hooks/post-checkout", "#!/bin/sh\nRUN\n"),
        ],
    ),
    ("links", &[("120000", "Cargo.toml", "/etc/passwd"), ("120000", "up", "../../.."), ("120000", "hooks", "/tmp")]),
    ("a link to attributes", &[("120000", ".gitattributes", "/etc/passwd"), ("120000", ".gitignore", "/etc/passwd")]),
    ("names that are options", &[("100644", "--upload-pack=RUN", ""), ("100644", "-c", ""), ("100644", "--", "")]),
    ("names that are commands", &[("100644", "$(RUN)", ""), ("100644", ";RUN;", ""), ("100644", "`RUN`", "")]),
    ("names of control characters", &[("100644", "\"a\\nb\\033[31m\\177\\302\\233\"", "")]),
    ("names that are no text", &[("100644", "\"\\377\\376\"", "")]),
    (
        "programs of builds",
        &[
            ("100644", "Makefile", "$(shell RUN)\nall:\n\tRUN\n"),
            ("100644", "build.rs", "fn main() {}"),
            ("100644", "setup.py", "import os; os.system('RUN')"),
            ("100644", "package.json", "{\"scripts\":{\"preinstall\":\"RUN\"}}"),
        ],
    ),
    (
        "configuration of tools",
        &[
            ("100644", ".envrc", "RUN\n"),
            ("100644", ".pre-commit-config.yaml", "repos: []\n"),
            ("100644", ".vscode/tasks.json", "{}"),
            ("100755", ".husky/post-checkout", "#!/bin/sh\nRUN\n"),
            ("100755", ".githooks/post-checkout", "#!/bin/sh\nRUN\n"),
        ],
    ),
    ("a map of names", &[("100644", ".mailmap", "\u{1b}]0;RUN\u{7} <a@example.com>\n")]),
];

/// Trees that git's own writer refuses: the name of the directory, which holds `config` and a hook.
const FORGED: &[&str] = &[".git", ".GIT", "git~1", ".g\u{200c}it", "..", "."];

/// Creates a repository from an unchecked tree.
async fn forged(server: &GitServer, name: &str, dir: &str, content: &str) {
    server.repository(name, &[("README.md", "")]).await;
    let at = server.dir(name);
    let blob = git(&at, &["hash-object", "-w", "--stdin"], content).await;
    let inner = git(&at, &["mktree"], &format!("100755 blob {blob}\tconfig\n")).await;
    let tree = git(&at, &["mktree"], &format!("040000 tree {inner}\t{dir}\n")).await;
    let person = ["-c", "user.name=T", "-c", "user.email=t@example.com"];
    let commit = git(&at, &[&person[..], &["commit-tree", "-m", "x", &tree]].concat(), "").await;
    git(&at, &["update-ref", "refs/heads/main", &commit], "").await;
}

async fn hostile(server: &GitServer, name: &str, files: &[File], run: &str) {
    server.repository(name, &[("README.md", "")]).await;
    let mut stream = "commit refs/heads/main\ncommitter \u{1b}[31m <t@example.com> 1700000000 +0000\n".to_owned();
    stream += "data 6\n\u{1b}[31m\n\ndeleteall\n";
    for (mode, path, content) in files {
        let (path, content) = (path.replace("RUN", &run.replace('/', "_")), content.replace("RUN", run));
        stream += &match *mode {
            "160000" => format!("M {mode} {content} {path}\n"),
            _ => format!("M {mode} inline {path}\ndata {}\n{content}\n", content.len()),
        };
    }
    git(&server.dir(name), &["fast-import", "--quiet", "--force"], &stream).await;
}

#[tokio::test]
async fn nothing_of_a_hostile_repository_runs_on_the_host() {
    let server = GitServer::start();
    let traces = tempfile::tempdir().unwrap();
    let run = format!("touch {}/ran", traces.path().display());
    let mut tried = 0;
    for (kind, files) in HOSTILE {
        let name = format!("h{tried}");
        hostile(&server, &name, files, &run).await;
        let seen = names(&server.local_url(&name)).await;
        assert!(
            matches!(&seen, Ok(it) if !it.is_empty()) || matches!(seen, Err(InspectError::Unreachable(_))),
            "{kind}: {seen:?}"
        );
        assert_eq!(left_in(&traces), 0, "{kind}");
        tried += 1;
    }
    for dir in FORGED {
        let name = format!("h{tried}");
        forged(&server, &name, dir, &format!("#!/bin/sh\n{run}\n")).await;
        let seen = names(&server.local_url(&name)).await;
        assert!(matches!(seen, Err(InspectError::Unreachable(_))), "{dir}: {seen:?}");
        assert_eq!(left_in(&traces), 0, "{dir}");
        tried += 1;
    }
    assert!(tried >= 24);
}

#[tokio::test]
async fn nothing_of_a_hostile_servers_directory_runs_on_the_host() {
    let server = GitServer::start();
    let (traces, made) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = format!("touch {}/ran", traces.path().display());
    server.repository("web", &[("a", "")]).await;
    git(made.path(), &["clone", "--quiet", "--bare", server.dir("web").to_str().unwrap(), "bare"], "").await;
    let bare = made.path().join("bare");
    // A branch whose name looks like an option, and which is the first for a clone.
    git(&bare, &["update-ref", "refs/heads/--upload-pack=x", "HEAD"], "").await;
    git(&bare, &["symbolic-ref", "HEAD", "refs/heads/--upload-pack=x"], "").await;
    for hook in ["post-checkout", "post-update", "pre-auto-gc", "reference-transaction", "upload-pack"] {
        let path = bare.join("hooks").join(hook);
        std::fs::create_dir_all(bare.join("hooks")).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n{run}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    for (key, value) in [
        ("core.fsmonitor", run.as_str()),
        ("core.sshCommand", &run),
        ("core.pager", &run),
        ("filter.evil.smudge", &run),
        ("credential.helper", &format!("!{run}")),
        ("uploadpack.packObjectsHook", &run),
    ] {
        git(&bare, &["config", key, value], "").await;
    }
    server.adopt("hostile", &bare);
    assert_eq!(left_in(&traces), 0, "making it left a trace");
    let seen = names(&server.local_url("hostile")).await;
    assert!(matches!(&seen, Ok(it) if it == &["a"]) || matches!(seen, Err(InspectError::Unreachable(_))), "{seen:?}");
    assert_eq!(left_in(&traces), 0);
}

/// Control: the attacks above work against a git without protection.
#[tokio::test]
async fn a_trace_would_be_found() {
    let server = GitServer::start();
    let (traces, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = format!("touch {}/ran", traces.path().display());
    let (_, files) = HOSTILE.iter().find(|(kind, _)| *kind == "submodule by a program").unwrap();
    hostile(&server, "web", files, &run).await;
    let words = ["-c", "protocol.allow=always", "clone", "--recurse-submodules", "--", &server.local_url("web"), "it"];
    let cloned = tries_git(work.path(), &words, "").await;
    assert_eq!(left_in(&traces), 1, "{cloned:?}");
}
