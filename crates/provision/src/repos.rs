//! Clones of repositories.

use std::time::Instant;

use coracle_host::branch::BranchName;
use coracle_host::git_url::GitUrl;
use coracle_types::{Chunk, Command, ContainerPath};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::clone_source::{CloneRequest, clone_any, cloned, run_in};
use crate::step_error::StepError;
use crate::{ReportItem, StepContext, StepReport, exit};

/// A repository to clone, with all defaults resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoRequest {
    /// The source.
    pub from: RepoSource,
    /// The target: it does not exist, or is an empty directory.
    pub path: ContainerPath,
    /// The branch or tag, if not the default branch.
    pub branch: Option<BranchName>,
    /// The command to run in it afterwards.
    pub install: Option<Command>,
    /// Whether `install` runs as root.
    pub as_root: bool,
}

/// The source of a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepoSource {
    /// A server.
    Url(GitUrl),
    /// A repository of the host.
    Copy(RepoCopy),
}

/// A copy of a repository of the host, which the container clones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoCopy {
    /// The name of the repository on the host.
    pub name: String,
    /// The copy: a bare repository, which is removed after the clone.
    pub path: ContainerPath,
    /// The origin of the repository itself.
    pub origin: Option<GitUrl>,
    /// Number of uncommitted files in the host's directory, which the clone does not contain.
    pub uncommitted: usize,
    /// It has no commit yet.
    pub is_empty: bool,
}

impl RepoSource {
    /// The name of the repository.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Url(url) => url.repository(),
            Self::Copy(copy) => &copy.name,
        }
    }

    fn address(&self) -> &str {
        match self {
            Self::Url(url) => url.as_str(),
            Self::Copy(copy) => copy.path.as_str(),
        }
    }
}

/// Maximum number of concurrent clones.
const MAX_CONCURRENT: usize = 4;

/// Clones the repositories concurrently as the exec user, and then runs their install commands in order, since package
/// managers lock each other out. `live` receives the output of these commands.
pub async fn repos(context: &StepContext, repos: &[RepoRequest], live: Option<&mpsc::Sender<Chunk>>) -> StepReport {
    if repos.is_empty() {
        return StepReport::skipped("repos", "none were given");
    }
    let begun = Instant::now();
    let clones: Vec<_> = repos.iter().map(|it| clone(context, it)).collect();
    let clones: Vec<_> = stream::iter(clones).buffered(concurrency(repos)).collect().await;
    let mut items = Vec::with_capacity(repos.len());
    let mut empty_modules = Vec::new();
    for (repo, cloned) in repos.iter().zip(clones) {
        items.push(match cloned {
            Ok(cloned) => {
                empty_modules.extend(cloned.has_submodules.then(|| repo.from.name()));
                install(context, repo, live).await.with("commit", cloned.commit)
            }
            Err(failure) => {
                failure.into_item(repo.from.name()).with("commit", Value::Null).with("install", Value::Null)
            }
        });
    }
    let items: Vec<_> = items.into_iter().zip(repos).map(|(it, repo)| it.with("path", repo.path.as_str())).collect();
    let good = items.iter().filter(|it| it.error.is_none()).count();
    let detail = format!("{good}/{} repositories are in place{}", items.len(), remarks(repos, &empty_modules));
    StepReport::of_items("repos", detail, "each is at its commit, and its install command ended with 0", items)
        .with_duration(begun.elapsed())
}

/// Returns how many clones may run concurrently: one, if a repository is below another one.
fn concurrency(repos: &[RepoRequest]) -> usize {
    let nested = |(at, repo): (usize, &RepoRequest)| {
        let others = repos.iter().enumerate().filter(|it| it.0 != at);
        others.map(|it| it.1).any(|other| repo.path.is_beneath(other.path.as_str()))
    };
    if repos.iter().enumerate().any(nested) { 1 } else { MAX_CONCURRENT }
}

impl RepoRequest {
    fn source(&self) -> CloneRequest<'_> {
        CloneRequest { from: self.from.address(), branch: self.branch.as_ref(), path: &self.path, shallow: false }
    }
}

/// Describes uncommitted files of the host's directories, and submodules that the clones lack.
fn remarks(repos: &[RepoRequest], empty_modules: &[&str]) -> String {
    let of_copies = repos.iter().filter_map(|it| match &it.from {
        RepoSource::Copy(RepoCopy { name, is_empty: true, .. }) => Some(format!("; `{name}` has no commit yet")),
        RepoSource::Copy(RepoCopy { name, uncommitted, .. }) if *uncommitted > 0 => {
            let (files, are) = if *uncommitted == 1 { ("file", "is") } else { ("files", "are") };
            Some(format!("; {uncommitted} {files} of `{name}` {are} not committed, and not cloned"))
        }
        _ => None,
    });
    let of_modules = empty_modules.iter().map(|name| {
        format!("; submodules of `{name}` are empty: `git submodule update --init --recursive` in it fetches them")
    });
    of_copies.chain(of_modules).collect()
}

/// A finished clone.
struct Clone {
    /// Its current commit; none in an empty repository.
    commit: Option<String>,
    has_submodules: bool,
}

async fn clone(context: &StepContext, repo: &RepoRequest) -> Result<Clone, StepError> {
    let commit = match &repo.from {
        RepoSource::Copy(RepoCopy { is_empty: true, .. }) => {
            clone_any(context, repo.source()).await?;
            None
        }
        _ => Some(cloned(context, repo.source()).await?),
    };
    if let RepoSource::Copy(copy) = &repo.from {
        set_origin(context, repo, copy).await?;
    }
    let modules = repo.path.join(".gitmodules").ok();
    let has_submodules = match &modules {
        Some(file) => context.link.stat(context.at(file)).await.is_ok(),
        None => false,
    };
    Ok(Clone { commit, has_submodules })
}

/// Sets the clone's origin to that of the original repository, since the copy is removed. If the original has none, the
/// clone gets all its branches, which no other repository has.
async fn set_origin(context: &StepContext, repo: &RepoRequest, copy: &RepoCopy) -> Result<(), StepError> {
    if let Some(origin) = &copy.origin {
        return run_in(context, &repo.path, &["remote", "set-url", "origin", origin.as_str()]).await;
    }
    if !copy.is_empty {
        let all = ["fetch", "--quiet", "--update-head-ok", "origin", "refs/heads/*:refs/heads/*"];
        run_in(context, &repo.path, &all).await?;
    }
    run_in(context, &repo.path, &["config", "--remove-section", "remote.origin"]).await
}

/// Runs the install command. The clone stays if it fails.
async fn install(context: &StepContext, repo: &RepoRequest, live: Option<&mpsc::Sender<Chunk>>) -> ReportItem {
    let name = repo.from.name();
    let Some(command) = &repo.install else { return ReportItem::success(name).with("install", Value::Null) };
    let mut exec = match repo.as_root {
        true => context.exec_as_root(command.clone(), &repo.path, context.timeout),
        false => context.exec(command.clone(), &repo.path, context.timeout),
    };
    exec.keep_bytes = exit::KEEP_BYTES;
    exec.live = live.cloned();
    let limit = exec.limits.total;
    let failed = |failure: StepError| StepError { error: format!("install: {failure}"), ..failure }.into_item(name);
    match context.run(exec).await {
        Ok(output) => {
            let about = json!({ "exit_code": exit::exit_code(&output), "output": exit::tail(&output) });
            exit::failure(&output, limit).map_or_else(|| ReportItem::success(name), failed).with("install", about)
        }
        Err(failure) => failed(failure).with("install", Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coracle_host::git_url::GitRules;
    use coracle_runtime::fake::Reply;
    use coracle_types::Exit;

    use super::*;
    use crate::Status;
    use crate::test_support::{Trial, path};

    fn repo(url: &GitUrl, at: &str) -> RepoRequest {
        RepoRequest { from: RepoSource::Url(url.clone()), path: path(at), branch: None, install: None, as_root: false }
    }

    fn url(name: &str) -> GitUrl {
        GitUrl::parse(&format!("https://git.test/{name}"), GitRules::default()).unwrap()
    }

    fn shell(script: &str) -> Option<Command> {
        Some(Command::Shell(script.into()))
    }

    fn errors(step: &StepReport) -> Vec<&str> {
        step.items.iter().map(|it| it.error.as_deref().unwrap_or("-")).collect()
    }

    #[tokio::test]
    async fn one_bad_repository_of_three_is_reported_and_the_others_are_cloned() {
        if !coracle_skips::has_root() {
            return;
        }
        let mut trial = Trial::new().await;
        let (one, two) = (trial.remote("one", &[]).await, trial.remote("two.git", &[("a b", "x")]).await);
        let wanted = [repo(&one, "/workspace/one"), repo(&url("bad"), "/workspace/bad"), repo(&two, "/opt/new/-two")];
        let step = repos(&trial.context, &wanted, None).await;
        assert_eq!(
            (step.status, step.detail.as_str()),
            (Status::Partial, "2/3 repositories are in place"),
            "{step:#?}"
        );
        let names: Vec<_> = step.items.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["one", "bad", "two"]);
        assert!(step.error.as_ref().unwrap().starts_with("`bad`: git: "), "{step:#?}");
        assert_eq!(step.items[0].about["commit"].as_str().unwrap().len(), 40);
        assert_eq!(
            (&step.items[1].about["commit"], &step.items[2].about["path"]),
            (&Value::Null, &"/opt/new/-two".into())
        );
        assert_eq!(trial.read("opt/new/-two/a b"), "x");
    }

    #[tokio::test]
    async fn a_branch_is_cloned_and_a_missing_one_is_reported() {
        if !coracle_skips::has_root() {
            return;
        }
        let mut trial = Trial::new().await;
        let url = trial.remote("one", &[]).await;
        let on = |branch: &str, at: &str| RepoRequest { branch: BranchName::parse(branch).ok(), ..repo(&url, at) };
        let step = repos(&trial.context, &[on("main", "/workspace/a"), on("none", "/workspace/b")], None).await;
        assert_eq!(errors(&step), ["-", "git: Remote branch none not found in upstream origin (exit 128)"]);
        assert!(trial.read("workspace/a/.git/HEAD").contains("refs/heads/main"));
    }

    #[tokio::test]
    async fn existing_files_are_not_overwritten() {
        if !coracle_skips::has_root() {
            return;
        }
        let mut trial = Trial::new().await;
        let url = trial.remote("one", &[]).await;
        trial.write("workspace/full/existing", "unchanged");
        trial.write("workspace/file", "unchanged");
        std::fs::create_dir(trial.root.join("workspace/empty")).unwrap();
        let wanted =
            ["full", "file", "empty", "empty", "empty/below"].map(|it| repo(&url, &format!("/workspace/{it}")));
        let step = repos(&trial.context, &wanted, None).await;
        let codes: Vec<_> = step.items.iter().map(|it| it.code.as_deref()).collect();
        let exists = Some("path_exists");
        assert_eq!(codes, [exists, exists, None, exists, None], "{step:#?}");
        assert_eq!(
            (trial.read("workspace/full/existing"), trial.read("workspace/file")),
            ("unchanged".into(), "unchanged".into())
        );
        assert_eq!(trial.read("workspace/empty/below/README"), "one");
    }

    #[tokio::test]
    async fn an_install_that_fails_leaves_the_clone_and_its_output() {
        if !coracle_skips::has_root() {
            return;
        }
        let mut trial = Trial::new().await;
        let url = trial.remote("one", &[]).await;
        let good = RepoRequest { install: shell("cat README >../seen; echo done"), ..repo(&url, "/workspace/a") };
        let bad = RepoRequest {
            install: shell("echo out; echo why >&2; exit 3"),
            as_root: true,
            ..repo(&url, "/workspace/b")
        };
        let (live, mut printed) = mpsc::channel(8);
        let step = repos(&trial.context, &[good, bad], Some(&live)).await;
        assert_eq!(errors(&step), ["-", "install: exit 3: why"]);
        assert_eq!(step.items[0].about["install"], json!({ "exit_code": 0, "output": "done\n" }));
        assert_eq!(step.items[1].about["install"], json!({ "exit_code": 3, "output": "out\nwhy\n" }));
        assert!(step.items[1].about["commit"].is_string());
        assert_eq!((trial.read("workspace/seen"), trial.read("workspace/b/README")), ("one".into(), "one".into()));
        assert_eq!(printed.recv().await.unwrap().bytes, b"done\n");
    }

    #[tokio::test]
    async fn an_image_without_git_is_reported() {
        if !coracle_skips::has_root() {
            return;
        }
        let trial = Trial::new().await;
        trial.fake.reply("git clone -- https://git.test/one one", Exit::Code(127), "", "not found in the container");
        let step = repos(&trial.context, &[repo(&url("one"), "/workspace/one")], None).await;
        assert_eq!((step.status, step.items[0].code.as_deref()), (Status::Failed, Some("unsupported")));
        assert_eq!(errors(&step), ["git is not in the image"]);
    }

    #[tokio::test]
    async fn a_clone_without_a_commit_is_no_success() {
        if !coracle_skips::has_root() {
            return;
        }
        let trial = Trial::new().await;
        trial.write("workspace/.git/HEAD", "the parent repository is not used instead");
        trial.fake.reply("git clone -- https://git.test/one one", Exit::Code(0), "", "");
        trial.fake.reply("git --git-dir=.git rev-parse --verify HEAD^{commit}", Exit::Code(0), "\u{1b}[31m", "");
        std::fs::create_dir(trial.root.join("workspace/one")).unwrap();
        let step = repos(&trial.context, &[repo(&url("one"), "/workspace/one")], None).await;
        assert_eq!((step.status, errors(&step)), (Status::Failed, vec!["the clone has no commit"]));
    }

    #[tokio::test]
    async fn a_clone_ends_after_its_timeout_and_a_cancel_ends_the_rest() {
        if !coracle_skips::has_root() {
            return;
        }
        let mut trial = Trial::new().await;
        trial.context.clone_timeout = Duration::from_secs(1);
        let slow = Reply::new(Exit::Code(0), "", "").after(Duration::from_secs(100));
        trial.fake.replies("git clone -- https://git.test/slow slow", [slow]);
        let step = repos(&trial.context, &[repo(&url("slow"), "/workspace/slow")], None).await;
        assert_eq!(errors(&step), ["ended after 1 s"]);
        trial.context.clone_timeout = Duration::from_secs(100);
        let wanted: Vec<_> = (0..6).map(|n| repo(&url("slow"), &format!("/workspace/{n}/slow"))).collect();
        let cancel = trial.context.cancel.clone();
        let begun = || trial.fake.transcript(&trial.id).lines().count() - 1;
        let withdraw = async {
            while begun() < MAX_CONCURRENT {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        };
        let (step, ()) = tokio::join!(repos(&trial.context, &wanted, None), withdraw);
        assert!(step.items.iter().all(|it| it.code.as_deref() == Some("cancelled")), "{step:#?}");
        assert_eq!(begun(), MAX_CONCURRENT, "no further clone was started");
    }

    #[tokio::test]
    async fn no_password_of_a_url_is_reported() {
        if !coracle_skips::has_root() {
            return;
        }
        let trial = Trial::new().await;
        let stderr = "fatal: unable to access 'https://me:hunter2@git.test/one/': no\nadvice that follows\n";
        trial.fake.reply("git clone -- https://git.test/one one", Exit::Code(128), "", stderr);
        let step = repos(&trial.context, &[repo(&url("one"), "/workspace/one")], None).await;
        assert_eq!(errors(&step), ["git: unable to access 'https://git.test/one/': no (exit 128)"]);
    }
}
