//! Clones a repository with git in the container, and checks that the clone has a commit.

use std::time::Duration;

use coracle_host::branch::BranchName;
use coracle_protocol::ErrorCode;
use coracle_types::{Command, ContainerPath, Error, Excerpt, Exec, ExecOutput, Exit};

use crate::step_error::StepError;
use crate::{StepContext, exit};

/// What to clone, and where to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CloneRequest<'a> {
    /// A URL, or a repository in the container.
    pub(crate) from: &'a str,
    pub(crate) branch: Option<&'a BranchName>,
    pub(crate) path: &'a ContainerPath,
    /// Without its history.
    pub(crate) shallow: bool,
}

/// Makes git and ssh fail where they would prompt.
const NO_PROMPTS: [(&str, &str); 4] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "/bin/false"),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
];

/// Time limit for reading the commit.
const SOON: Duration = Duration::from_secs(30);

/// Clones as the exec user to a path that does not exist, or is an empty directory. Returns the current commit.
pub(crate) async fn cloned(context: &StepContext, source: CloneRequest<'_>) -> Result<String, StepError> {
    clone_any(context, source).await?;
    commit(context, source.path).await
}

/// Clones a repository that may have no commit.
pub(crate) async fn clone_any(context: &StepContext, source: CloneRequest<'_>) -> Result<(), StepError> {
    let path = source.path;
    let Some(above) = path.parent() else { return Err(exists(path)) };
    context.within(free(context, path)).await?;
    context.within(context.make_dirs(&above)).await?;
    let exec = git(context, clone_arguments(source), &above, context.clone_timeout);
    let limit = exec.limits.total;
    let output = context.run(exec).await?;
    match output.exit {
        Exit::Code(0) => Ok(()),
        _ => Err(of_git(&output, limit)),
    }
}

/// Clones from the parent directory by a plain name, so that git's output contains no other path.
fn clone_arguments(source: CloneRequest<'_>) -> Vec<String> {
    let mut words = vec!["clone".to_owned()];
    if source.shallow {
        words.push("--depth=1".into());
    }
    words.extend(source.branch.map(|it| format!("--branch={it}")));
    words.extend(["--".into(), source.from.to_owned(), source.path.file_name().to_owned()]);
    words
}

/// Reads the commit. The repository is given explicitly, since git would otherwise find one in a parent directory.
async fn commit(context: &StepContext, path: &ContainerPath) -> Result<String, StepError> {
    let words = ["--git-dir=.git", "rev-parse", "--verify", "HEAD^{commit}"].map(str::to_owned).to_vec();
    let output = context.run(git(context, words, path, SOON)).await?;
    let commit = output.stdout.text().trim().to_owned();
    let is_one = [40, 64].contains(&commit.len()) && commit.bytes().all(|it| it.is_ascii_hexdigit());
    match output.exit {
        Exit::Code(0) if is_one => Ok(commit),
        _ => Err(StepError::plain("the clone has no commit")),
    }
}

/// Runs git in a clone. Fails if git does.
pub(crate) async fn run_in(context: &StepContext, path: &ContainerPath, words: &[&str]) -> Result<(), StepError> {
    let exec = git(context, words.iter().map(|it| (*it).to_owned()).collect(), path, context.clone_timeout);
    let limit = exec.limits.total;
    let output = context.run(exec).await?;
    if output.exit == Exit::Code(0) { Ok(()) } else { Err(of_git(&output, limit)) }
}

fn git(context: &StepContext, words: Vec<String>, at: &ContainerPath, timeout: Duration) -> Exec {
    let argv = ["git".to_owned()].into_iter().chain(words).collect();
    let mut exec = context.exec(Command::Argv(argv), at, timeout);
    for (name, value) in NO_PROMPTS {
        exec.env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    exec.keep_bytes = exit::KEEP_BYTES;
    exec
}

async fn free(context: &StepContext, path: &ContainerPath) -> Result<(), StepError> {
    match context.link.list(context.at(path), 1).await {
        Ok((entries, more)) if entries.is_empty() && !more => Ok(()),
        Ok(_) => Err(exists(path)),
        Err(Error::Refused(fault)) if fault.code == ErrorCode::NotFound => Ok(()),
        Err(Error::Refused(fault)) if fault.code == ErrorCode::WrongKind => Err(exists(path)),
        Err(err) => Err(err.into()),
    }
}

fn exists(path: &ContainerPath) -> StepError {
    StepError::new("path_exists", format!("`{path}` exists and is not empty"))
}

fn of_git(output: &ExecOutput, limit: Option<Duration>) -> StepError {
    match output.exit {
        Exit::Code(127) => StepError::new("unsupported", "git is not in the image"),
        Exit::Code(code) => StepError::plain(format!("git: {} (exit {code})", error_output(output))),
        _ => exit::failure(output, limit).unwrap_or_else(|| StepError::plain("git ended")),
    }
}

/// The reason that git gives; advice may follow it.
fn error_output(output: &ExecOutput) -> String {
    let excerpt = Excerpt::from_bytes(&output.stderr.bytes());
    let lines = || excerpt.as_str().lines().map(str::trim).filter(|it| !it.is_empty()).rev();
    let reason = lines().find_map(|it| it.strip_prefix("fatal: ").or_else(|| it.strip_prefix("error: ")));
    reason.or_else(|| lines().next()).unwrap_or("git gave no reason").chars().take(200).collect()
}
