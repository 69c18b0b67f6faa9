//! The user's git configuration.

mod file;
mod identity;
mod known_hosts;
mod settings;

use std::fmt;
use std::time::{Duration, Instant};

use coracle_client::WriteFile;
use coracle_protocol::ErrorCode;
use coracle_types::{Command, ContainerPath, Error, Exit, Input};

pub use identity::Identity;
pub use known_hosts::known_hosts;
pub use settings::{Setting, Settings};

use crate::{ReportItem, Status, StepContext, StepReport, backup};

const STEP: &str = "forward_git";

/// Maximum size of a user's `.gitconfig`.
const MAX_FILE: u64 = 1 << 20;

/// The content of `~/.gitconfig`.
#[derive(Clone, Debug, Default)]
pub struct GitConfig {
    /// The user's settings; none if they were not requested, or there are none.
    pub settings: Option<Settings>,
    /// Directories that git accepts whatever their owner: the work directory and the clones.
    pub safe: Vec<ContainerPath>,
    /// The host that the session's token is for.
    pub helper_for: Option<String>,
    /// Lines for `~/.ssh/known_hosts`. If SSH keys are forwarded, [`ssh`](crate::ssh) writes them instead.
    pub known_hosts: Vec<u8>,
}

impl GitConfig {
    /// Renders the content of the file.
    #[must_use]
    pub fn file(&self) -> Vec<u8> {
        file::written(self.settings.as_ref(), &self.safe, self.helper_for.as_deref())
    }
}

/// Why no settings are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitSkipReason {
    /// They were not requested.
    NotRequested,
    /// The host has no git, or the user has no settings.
    NoConfig,
}

impl fmt::Display for GitSkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRequested => "not requested",
            Self::NoConfig => "there is no git configuration on the host",
        })
    }
}

/// The report of a container without `.gitconfig`.
#[must_use]
pub fn skipped(why: GitSkipReason) -> StepReport {
    StepReport::skipped(STEP, why.to_string())
}

/// Writes `~/.gitconfig` and `~/.ssh/known_hosts`. Without settings of the user the entry is `skipped`, even if the
/// file is written because of the token.
pub async fn forward(context: &StepContext, config: &GitConfig, without: GitSkipReason) -> StepReport {
    let begun = Instant::now();
    let hosts =
        async { if config.known_hosts.is_empty() { Ok(()) } else { add_hosts(context, &config.known_hosts).await } };
    let (file, hosts) = tokio::join!(forward_config(context, config, without), hosts);
    let step = match hosts {
        Err(error) if file.status != Status::Failed => {
            let items = vec![ReportItem::success(".gitconfig"), ReportItem::failed(".ssh/known_hosts", &error)];
            StepReport { items, ..StepReport::flawed(STEP, Status::Partial, file.detail, error) }
        }
        _ => file,
    };
    step.with_duration(begun.elapsed())
}

async fn forward_config(context: &StepContext, config: &GitConfig, without: GitSkipReason) -> StepReport {
    let settings = config.settings.as_ref();
    let helper = config.helper_for.as_ref().map(|it| format!("a credential helper for {it}"));
    let detail = match (settings, &helper) {
        (None, None) => return skipped(without),
        (None, Some(helper)) => format!("{without}; `.gitconfig` holds {helper}"),
        (Some(settings), _) => settings.to_string(),
    };
    match written(context, config.file(), settings.and_then(Settings::user_name)).await {
        Err(error) => StepReport::flawed(STEP, Status::Failed, detail, error),
        Ok(_) if settings.is_none() => StepReport::skipped(STEP, detail),
        Ok(probe) => StepReport::success(STEP, detail, probe),
    }
}

/// Writes the file and returns what was verified.
async fn written(context: &StepContext, bytes: Vec<u8>, name: Option<&[u8]>) -> Result<&'static str, String> {
    let path = context.home.join(".gitconfig").map_err(|it| it.to_string())?;
    let there = context.link.get(context.at(&path), 0, MAX_FILE).await;
    match there {
        Ok((_, content)) if content == bytes => {}
        Ok(_) => backup::back_up(context, &path).await?,
        Err(err) if backup::is(&err, ErrorCode::NotFound) => {}
        Err(_) => backup::back_up(context, &path).await?,
    }
    let content = Input::Bytes(bytes.clone());
    let put =
        WriteFile { at: context.at(&path), mode: Some(0o644), exact: true, parents: true, replace: true, content };
    context.link.put(put).await.map_err(|it| it.to_string())?;
    let found = async { if name.is_some() { user_name(context).await } else { Ok(None) } };
    let (back, found) = tokio::join!(context.link.get(context.at(&path), 0, MAX_FILE), found);
    if back.map_err(|it| it.to_string())?.1 != bytes {
        return Err("`.gitconfig` does not hold what was written to it".to_owned());
    }
    match (name, found?) {
        (Some(name), Some(found)) if found != name => {
            Err("git inside reports another `user.name` than the host's".to_owned())
        }
        (Some(_), Some(_)) => Ok("`.gitconfig` was read back, and git inside reports the host's `user.name`"),
        _ => Ok("`.gitconfig` was read back"),
    }
}

/// Reads `user.name` with git in the container; none if there is no git.
async fn user_name(context: &StepContext) -> Result<Option<Vec<u8>>, String> {
    let words = ["git", "config", "--global", "--null", "--get", "user.name"].map(str::to_owned).to_vec();
    let exec = context.exec(Command::Argv(words), &context.home, Duration::from_secs(10));
    let output = context.link.exec(exec).await.map_err(|it| it.to_string())?;
    match output.exit {
        // 126 and 127: this user can run no git.
        Exit::Code(126 | 127) => Ok(None),
        Exit::Code(0 | 1) => Ok(Some(output.stdout.bytes().split(|it| *it == 0).next().unwrap_or_default().to_vec())),
        exit => Err(format!("git inside cannot read its configuration ({exit:?})")),
    }
}

/// Adds lines to `~/.ssh/known_hosts`.
async fn add_hosts(context: &StepContext, lines: &[u8]) -> Result<(), String> {
    let message = |err: Error| err.to_string();
    let dir = context.home.join(".ssh").map_err(|it| it.to_string())?;
    let path = dir.join("known_hosts").map_err(|it| it.to_string())?;
    let there = match context.link.get(context.at(&path), 0, MAX_FILE).await {
        Ok((_, content)) => content,
        Err(err) if backup::is(&err, ErrorCode::NotFound) => {
            context.link.make_dir(context.at(&dir), 0o700, true).await.map_err(message)?;
            Vec::new()
        }
        Err(err) => return Err(message(err)),
    };
    let Some(content) = known_hosts::with(&there, lines) else { return Ok(()) };
    let (at, content) = (context.at(&path), Input::Bytes(content));
    let put = WriteFile { at, mode: Some(0o644), exact: false, parents: false, replace: true, content };
    context.link.put(put).await.map(drop).map_err(message)
}
