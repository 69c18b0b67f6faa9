//! A repository that is tried: what it is for, how it comes in, and what is run in it.

use std::collections::BTreeMap;
use std::path::Path;

use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_context::host_identity::user_git;
use coracle_host::fs::HostPath;
use coracle_host::git::{HostGit as _, Remote};
use coracle_images::detect::{DetectedProfile, Hint, detect};
use coracle_lifecycle::{CopyRequest, ManagedContainer, copy_in};
use coracle_prepare::resolve::{RepoScan, Request, TryRepo, copy_request};
use coracle_provision::{RepoRequest, RepoSource, ReportItem, SetupCommand};
use coracle_runtime::ExecTarget;
use coracle_types::{Command, ContainerPath};

/// A top directory with more names is not looked at any further.
const MAX_NAMES: usize = 10_000;

/// Looks at the top directory of a repository. One that cannot be read counts as `general`, with a warning.
pub(super) async fn scan(cx: &Context, tried: &TryRepo) -> Result<RepoScan, Failure> {
    let names = match tried {
        TryRepo::Directory(dir) => names(dir).map_err(|err| err.to_string()),
        TryRepo::Url(url) => {
            cx.call.progress.message(format!("looking at {url}")).await;
            let allow_private = cx.config.images.git_allow_private;
            let remote = Remote { url: url.clone(), branch: None, allow_private };
            let seen = user_git(cx).await.top_level(&remote, &cx.state()?.scratch()).await;
            seen.map_err(|err| err.to_string())
        }
    };
    Ok(match names {
        Ok(names) => RepoScan { detected: detect(names.iter().map(String::as_str)), unseen: None },
        Err(why) => RepoScan { detected: detect([]), unseen: Some(why) },
    })
}

fn names(dir: &Path) -> std::io::Result<Vec<String>> {
    let entries = std::fs::read_dir(dir)?.take(MAX_NAMES);
    entries.map(|it| Ok(it?.file_name().to_string_lossy().into_owned())).collect()
}

/// Variables of the session that lead to what the hints make.
pub(super) fn variables(request: &Request, repo: &ContainerPath) -> BTreeMap<String, String> {
    let Some((venv, bin)) = found_in(request).and_then(|it| it.python_env(repo)) else { return BTreeMap::new() };
    [("VIRTUAL_ENV", venv), ("PATH", format!("{bin}:${{PATH}}"))].map(|(name, it)| (name.to_owned(), it)).into()
}

/// The clone, if what is tried has a URL.
pub(super) fn repo(request: &Request, path: Option<&ContainerPath>) -> Option<RepoRequest> {
    let (Some(TryRepo::Url(url)), Some(path)) = (&request.chosen.tried, path) else { return None };
    Some(RepoRequest {
        from: RepoSource::Url(url.clone()),
        path: path.clone(),
        branch: None,
        install: None,
        as_root: false,
    })
}

/// The copy, if what is tried is a directory of the host: a part of the step `repos`.
pub(super) async fn copied(
    cx: &Context,
    request: &Request,
    found: &ManagedContainer,
    inside: &ExecTarget,
    path: Option<&ContainerPath>,
) -> Option<ReportItem> {
    let (Some(TryRepo::Directory(dir)), Some(path)) = (&request.chosen.tried, path) else { return None };
    let name = dir.file_name().map_or_else(|| "/".into(), |it| it.to_string_lossy().into_owned());
    let done = async {
        let host = HostPath::open(dir).map_err(coracle_lifecycle::Error::from)?;
        let copy = CopyRequest { protected: Vec::new(), ..copy_request(cx, host, path.clone())? };
        Ok::<_, Failure>(copy_in(found, inside, copy).await?)
    };
    Some(match done.await {
        Ok(copied) => ReportItem::success(name).with("path", path.as_str()).with("files", copied.moved.files),
        Err(failure) => {
            ReportItem::failed(name, &failure.message).with("code", failure.code.word()).with("path", path.as_str())
        }
    })
}

/// What the kind of project suggests to run in it.
pub(super) fn hints(request: &Request) -> Vec<SetupCommand> {
    let argv = |words: &[&str]| Command::Argv(words.iter().map(|it| (*it).to_owned()).collect());
    let hint = |Hint { argv: words, otherwise }: &Hint| SetupCommand {
        command: argv(words),
        as_root: false,
        hint: true,
        alternative: otherwise.map(argv),
    };
    found_in(request).map(|it| it.commands.iter().map(hint).collect()).unwrap_or_default()
}

fn found_in(request: &Request) -> Option<&DetectedProfile> {
    request.chosen.seen.as_ref().map(|it| &it.detected)
}
