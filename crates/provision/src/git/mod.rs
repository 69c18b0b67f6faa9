//! The person's git configuration.

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

/// A file that is no `.gitconfig` of a person.
const MAX_FILE: u64 = 1 << 20;

/// What `~/.gitconfig` will hold.
#[derive(Clone, Debug, Default)]
pub struct GitConfig {
    /// The person's settings; none when they were not asked for, or there are none.
    pub settings: Option<Settings>,
    /// Directories that git may work in whatever user owns them: the work directory and the clones.
    pub safe: Vec<ContainerPath>,
    /// The host that the token of the session is for.
    pub helper_for: Option<String>,
    /// Lines for `~/.ssh/known_hosts`. With keys for ssh they go by [`ssh`](crate::ssh) instead.
    pub known_hosts: Vec<u8>,
}

impl GitConfig {
    /// The content of the file.
    #[must_use]
    pub fn file(&self) -> Vec<u8> {
        file::written(self.settings.as_ref(), &self.safe, self.helper_for.as_deref())
    }
}

/// Why no settings go in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitSkipReason {
    /// They were not requested.
    NotRequested,
    /// The host has no git, or the person has set nothing.
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

/// The entry of a container that gets no `.gitconfig`.
#[must_use]
pub fn skipped(why: GitSkipReason) -> StepReport {
    StepReport::skipped(STEP, why.to_string())
}

/// Writes `~/.gitconfig` and `~/.ssh/known_hosts`. Without settings of the person's the entry is `skipped`, whatever
/// else was written for the token's sake.
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

/// Puts the file in place and gives what was seen of it.
async fn written(context: &StepContext, bytes: Vec<u8>, name: Option<&[u8]>) -> Result<&'static str, String> {
    let path = context.home.join(".gitconfig").map_err(|it| it.to_string())?;
    let there = context.link.get(context.at(&path), 0, MAX_FILE).await;
    match there {
        Ok((_, content)) if content == bytes => {}
        Ok(_) => backup::out_of_the_way(context, &path).await?,
        Err(err) if backup::is(&err, ErrorCode::NotFound) => {}
        Err(_) => backup::out_of_the_way(context, &path).await?,
    }
    let content = Input::Bytes(bytes.clone());
    let put =
        WriteFile { at: context.at(&path), mode: Some(0o644), exact: true, parents: true, replace: true, content };
    context.link.put(put).await.map_err(|it| it.to_string())?;
    let said = async { if name.is_some() { said_name(context).await } else { Ok(None) } };
    let (back, said) = tokio::join!(context.link.get(context.at(&path), 0, MAX_FILE), said);
    if back.map_err(|it| it.to_string())?.1 != bytes {
        return Err("`.gitconfig` does not hold what was written to it".to_owned());
    }
    match (name, said?) {
        (Some(name), Some(said)) if said != name => {
            Err("git inside says another `user.name` than the host's".to_owned())
        }
        (Some(_), Some(_)) => Ok("`.gitconfig` holds our bytes, and git inside says the host's `user.name`"),
        _ => Ok("`.gitconfig` holds our bytes"),
    }
}

/// Who commits, as git inside says; none where there is no git.
async fn said_name(context: &StepContext) -> Result<Option<Vec<u8>>, String> {
    let words = ["git", "config", "--global", "--null", "--get", "user.name"].map(str::to_owned).to_vec();
    let exec = context.exec(Command::Argv(words), &context.home, Duration::from_secs(10));
    let output = context.link.exec(exec).await.map_err(|it| it.to_string())?;
    match output.exit {
        // 126 and 127: there is no git that this user can run.
        Exit::Code(126 | 127) => Ok(None),
        Exit::Code(0 | 1) => Ok(Some(output.stdout.bytes().split(|it| *it == 0).next().unwrap_or_default().to_vec())),
        exit => Err(format!("git inside cannot read its configuration ({exit:?})")),
    }
}

/// Adds lines to `~/.ssh/known_hosts`.
async fn add_hosts(context: &StepContext, lines: &[u8]) -> Result<(), String> {
    let told = |err: Error| err.to_string();
    let dir = context.home.join(".ssh").map_err(|it| it.to_string())?;
    let path = dir.join("known_hosts").map_err(|it| it.to_string())?;
    let there = match context.link.get(context.at(&path), 0, MAX_FILE).await {
        Ok((_, content)) => content,
        Err(err) if backup::is(&err, ErrorCode::NotFound) => {
            context.link.make_dir(context.at(&dir), 0o700, true).await.map_err(told)?;
            Vec::new()
        }
        Err(err) => return Err(told(err)),
    };
    let Some(content) = known_hosts::with(&there, lines) else { return Ok(()) };
    let (at, content) = (context.at(&path), Input::Bytes(content));
    let put = WriteFile { at, mode: Some(0o644), exact: false, parents: false, replace: true, content };
    context.link.put(put).await.map(drop).map_err(told)
}
