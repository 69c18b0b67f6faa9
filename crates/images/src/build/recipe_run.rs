//! Runs a recipe in a container: packages, then commands, each with its result.

use std::collections::BTreeSet;
use std::time::Duration;

use coracle_client::Link;
use coracle_protocol::EnsureUser;
use coracle_types::{Command, ContainerPath, Error as EngineError, Exec, ExecOutput, Exit, Ids, LimitKind};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::installed_packages::InstalledPackages;
use super::output::{OutputTail, Shown};
use crate::packages::Manager;
use crate::recipe::{BuildOptions, OnFailure, OwnedDirectory, Recipe, Setup};
use crate::{Error, Progress};

/// Maximum number of buffered chunks of output.
const MAX_CHUNKS: usize = 16;

/// Prints those of `$@` that are not on `PATH`.
const MISSING: &str = r#"for it; do command -v -- "$it" >/dev/null 2>&1 || printf '%s\n' "$it"; done"#;

/// The result of a recipe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildReport {
    /// The commands that ran, in order.
    pub commands: Vec<CommandReport>,
    /// Commands that should be on `PATH` and are not.
    pub missing: Vec<String>,
    /// The recipe has packages, and the image has no known package manager.
    pub no_manager: bool,
}

/// A command of a recipe and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandReport {
    /// Its description: `installing git curl`.
    pub name: String,
    /// Its exit code, unless it was killed or not started.
    pub exit: Option<u8>,
    /// The end of its output, at most 4 KiB.
    pub output: String,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

impl BuildReport {
    /// Whether every command succeeded and every expected program exists. Only then may an image be committed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.no_manager && self.missing.is_empty() && self.commands.iter().all(|it| it.error.is_none())
    }

    /// The end of the failed command's output.
    #[must_use]
    pub fn log(&self) -> Option<&str> {
        self.commands.iter().rfind(|it| it.error.is_some()).map(|it| it.output.as_str())
    }

    /// Describes the failure in one sentence.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if self.no_manager {
            return Some("the image has none of apt, apk, dnf and microdnf".into());
        }
        let failed = self.commands.iter().find_map(|it| Some(format!("{}: {}", it.name, it.error.as_ref()?)));
        let missing = || (!self.missing.is_empty()).then(|| format!("not on PATH: {}", self.missing.join(", ")));
        failed.or_else(missing)
    }
}

/// Runs a recipe as root in a container, packages first.
///
/// A failed command is reported and not an error.
///
/// # Errors
/// [`Error::Engine`] if the container or the link to it is lost.
pub async fn run_recipe(
    link: &Link,
    recipe: &Recipe,
    options: &BuildOptions,
    progress: &Progress<'_>,
) -> Result<BuildReport, Error> {
    let ends = Instant::now() + options.limit;
    let setup = recipe.setup.len() + recipe.owned.len();
    let counter = StepCounter { begun: 0, total: setup + usize::from(!recipe.packages.is_empty()) };
    let mut run = RecipeRun { link, options, progress, ends, counter, report: BuildReport::default() };
    if !recipe.packages.is_empty() {
        match Manager::found(link).await? {
            Some(manager) => run.install_all(manager, recipe).await?,
            None => run.report.no_manager = true,
        }
    }
    for setup in &recipe.setup {
        if run.continues() {
            run.run_setup(setup).await?;
        }
    }
    for owned in &recipe.owned {
        if run.continues() {
            run.create_owned(owned).await?;
        }
    }
    if run.continues() {
        run.report.missing = run.missing(&recipe.commands()).await?;
    }
    Ok(run.report)
}

struct RecipeRun<'a> {
    link: &'a Link,
    options: &'a BuildOptions,
    progress: &'a Progress<'a>,
    ends: Instant,
    counter: StepCounter,
    report: BuildReport,
}

/// The steps of a recipe: all packages together are one step.
#[derive(Debug)]
struct StepCounter {
    begun: usize,
    total: usize,
}

impl StepCounter {
    /// `step 2 of 4: what is done`.
    fn text(&self, what: &str) -> String {
        format!("step {} of {}: {what}", self.begun, self.total)
    }
}

impl RecipeRun<'_> {
    fn continues(&self) -> bool {
        let enough = self.options.on_failure == OnFailure::Stop && !self.report.is_complete();
        !enough && !self.options.cancel.is_cancelled()
    }

    async fn install_all(&mut self, manager: Manager, recipe: &Recipe) -> Result<(), Error> {
        self.counter.begun += 1;
        if let Some(update) = manager.update() {
            let name = "fetching the lists of packages";
            self.run(name.into(), name, update, Shown::Packages(InstalledPackages::default())).await?;
        }
        let names = manager.names(&recipe.packages);
        if self.continues() && !self.install_packages(manager, &names).await? && self.continues() && names.len() > 1 {
            // An unavailable package makes the whole command fail: install them one by one.
            self.report.commands.pop();
            for name in &names {
                if self.continues() {
                    self.install_packages(manager, &[name]).await?;
                }
            }
        }
        if let Some(clean) = manager.clean().filter(|_| self.continues()) {
            let name = "removing downloaded files";
            self.run(name.into(), name, clean, Shown::Packages(InstalledPackages::default())).await?;
        }
        Ok(())
    }

    async fn install_packages(&mut self, manager: Manager, names: &[&str]) -> Result<bool, Error> {
        let short = match names {
            [_, _, _, _, ..] => format!("installing {} packages", names.len()),
            _ => format!("installing {}", names.join(", ")),
        };
        let shows = Shown::Packages(InstalledPackages::default());
        self.run(format!("installing {}", names.join(" ")), &short, manager.install(names), shows).await
    }

    async fn run_setup(&mut self, setup: &Setup) -> Result<(), Error> {
        let shell = ["/bin/sh", "-c", &setup.script, "setup"].map(str::to_owned);
        let argv = shell.into_iter().chain(setup.args.iter().cloned()).collect();
        self.counter.begun += 1;
        self.run(setup.what.clone(), &setup.what, argv, Shown::LastLine).await.map(drop)
    }

    /// Created by the guest, since the image may have no shell.
    async fn create_owned(&mut self, OwnedDirectory { uid, gid, path }: &OwnedDirectory) -> Result<(), Error> {
        let name = format!("giving {path} to {uid}:{gid}");
        self.counter.begun += 1;
        (self.progress)(&self.counter.text(&name));
        let user = EnsureUser { uid: *uid, gid: *gid, workdir: path.clone(), bound: Vec::new() };
        let error = match self.link.ensure_user(user).await {
            Ok(settled) if settled.writable => None,
            // A directory of another user is not changed.
            Ok(_) => Some(format!("{path} belongs to another user in the image")),
            Err(EngineError::Refused(fault)) => Some(fault.to_string()),
            Err(lost) => return Err(lost.into()),
        };
        self.report.commands.push(CommandReport { name, exit: None, output: String::new(), error });
        Ok(())
    }

    /// Returns whether the command exited with 0. `short` is its name in the progress.
    async fn run(&mut self, name: String, short: &str, argv: Vec<String>, shows: Shown) -> Result<bool, Error> {
        let step = self.counter.text(short);
        (self.progress)(&step);
        let (to, from) = mpsc::channel(MAX_CHUNKS);
        let exec = Exec { live: Some(to), ..self.exec(argv) };
        let (ended, output) =
            tokio::join!(self.link.exec(exec), OutputTail::new(self.progress, &step, shows).read(from));
        let (exit, error) = match ended {
            Ok(ended) => outcome(&ended, self.options.limit),
            // The container is running; only this command cannot be started.
            Err(err @ (EngineError::Refused(_) | EngineError::NoShell | EngineError::NoSuchPath(_))) => {
                (None, Some(err.to_string()))
            }
            Err(lost) => return Err(lost.into()),
        };
        let succeeded = error.is_none();
        self.report.commands.push(CommandReport { name, exit, output, error });
        Ok(succeeded)
    }

    fn exec(&self, argv: Vec<String>) -> Exec {
        let mut exec = Exec::new(Command::Argv(argv), Ids::ROOT, ContainerPath::root());
        exec.env = self.options.env.clone();
        exec.env.entry("DEBIAN_FRONTEND".into()).or_insert_with(|| "noninteractive".into());
        exec.limits.total = Some(self.ends.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
        exec.cancel = self.options.cancel.clone();
        exec.keep_bytes = 64 << 10;
        exec
    }

    async fn missing(&self, commands: &BTreeSet<String>) -> Result<Vec<String>, Error> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let shell = ["/bin/sh", "-c", MISSING, "probe"].map(str::to_owned);
        let exec = self.exec(shell.into_iter().chain(commands.iter().cloned()).collect());
        let output = self.link.exec(exec).await?;
        if output.exit != Exit::Code(0) {
            return Ok(commands.iter().cloned().collect());
        }
        Ok(output.stdout.text().lines().map(str::to_owned).collect())
    }
}

fn outcome(ended: &ExecOutput, limit: Duration) -> (Option<u8>, Option<String>) {
    match ended.exit {
        Exit::Code(0) => (Some(0), None),
        Exit::Code(code) => (Some(code), Some(format!("exit {code}"))),
        Exit::TimedOut(LimitKind::Total) | Exit::Running(_) => {
            (None, Some(format!("not done within {} s", limit.as_secs())))
        }
        Exit::TimedOut(LimitKind::Silence) => (None, Some("no output for too long".into())),
        Exit::Cancelled => (None, Some("cancelled".into())),
    }
}

#[cfg(test)]
mod tests;
