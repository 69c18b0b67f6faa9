//! Puts a recipe on a container: packages, then commands, each with what became of it (containers.md 8.1, 8.2).

mod output;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use coracle_runtime::link::Link;
use coracle_runtime::link::protocol::EnsureUser;
use coracle_runtime::{Command, ContainerPath, Error as EngineError, Exec, ExecOutput, Exit, Ids, LimitKind};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::output::Watched;
use crate::packages::Manager;
use crate::recipe::{Owned, Recipe, Setup};
use crate::{Error, Progress};

/// Pieces of output that are under way at once.
const UNDER_WAY: usize = 16;

/// Names those of `$@` that are no command.
const MISSING: &str = r#"for it; do command -v -- "$it" >/dev/null 2>&1 || printf '%s\n' "$it"; done"#;

/// How a recipe is put on. The link is to a guest that may act as root.
#[derive(Clone, Debug)]
pub struct Cooking {
    /// Environment of every command, whole: certificates, proxies without a user part, the profile's values. It never
    /// gets into the image.
    pub env: BTreeMap<String, String>,
    /// For all commands together (`images.build_timeout`).
    pub limit: Duration,
    /// What a failure means for the rest.
    pub on_failure: OnFailure,
    /// Ends the command that runs, and the cooking with it.
    pub cancel: CancellationToken,
}

/// What a failed command means for those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// They are not run: what is made is whole or nothing.
    Stop,
    /// They are run, and packages are tried one by one: as much as can be had.
    GoOn,
}

/// What came of a recipe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cooked {
    /// What was run, in order.
    pub commands: Vec<Ran>,
    /// Commands that should be on `PATH` and are not.
    pub missing: Vec<String>,
    /// There is no package manager that we know, and the recipe has packages.
    pub no_manager: bool,
}

/// A command of a recipe and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// What it does, for people: `installing git curl`.
    pub name: String,
    /// Its exit code, if it ended by itself.
    pub exit: Option<u8>,
    /// The end of what it printed, at most 4 KiB.
    pub output: String,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

impl Cooked {
    /// Everything ended well and is there: only then the result may be kept.
    #[must_use]
    pub fn whole(&self) -> bool {
        !self.no_manager && self.missing.is_empty() && self.commands.iter().all(|it| it.error.is_none())
    }

    /// The end of what the command printed that failed.
    #[must_use]
    pub fn log(&self) -> Option<&str> {
        self.commands.iter().rfind(|it| it.error.is_some()).map(|it| it.output.as_str())
    }

    /// What went wrong, in one sentence.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
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
/// A command that fails is told in the answer.
///
/// # Errors
/// [`Error::Engine`] when the container or the link to it is lost.
pub async fn cook(link: &Link, recipe: &Recipe, cooking: &Cooking, progress: &Progress<'_>) -> Result<Cooked, Error> {
    let ends = Instant::now() + cooking.limit;
    let mut pot = Pot { link, cooking, progress, ends, cooked: Cooked::default() };
    if !recipe.packages.is_empty() {
        match Manager::found(link).await? {
            Some(manager) => pot.install(manager, recipe).await?,
            None => pot.cooked.no_manager = true,
        }
    }
    for setup in &recipe.setup {
        if pot.goes_on() {
            pot.set_up(setup).await?;
        }
    }
    for place in &recipe.owned {
        if pot.goes_on() {
            pot.give(place).await?;
        }
    }
    if pot.goes_on() {
        pot.cooked.missing = pot.missing(&recipe.commands()).await?;
    }
    Ok(pot.cooked)
}

struct Pot<'a> {
    link: &'a Link,
    cooking: &'a Cooking,
    progress: &'a Progress<'a>,
    ends: Instant,
    cooked: Cooked,
}

impl Pot<'_> {
    fn goes_on(&self) -> bool {
        let enough = self.cooking.on_failure == OnFailure::Stop && !self.cooked.whole();
        !enough && !self.cooking.cancel.is_cancelled()
    }

    async fn install(&mut self, manager: Manager, recipe: &Recipe) -> Result<(), Error> {
        if let Some(update) = manager.update() {
            self.run("fetching the lists of packages".into(), update).await?;
        }
        let names = manager.names(&recipe.packages);
        if self.goes_on() && !self.packages(manager, &names).await? && self.goes_on() && names.len() > 1 {
            // One that cannot be had keeps all others out: now each has its own line.
            self.cooked.commands.pop();
            for name in &names {
                if self.goes_on() {
                    self.packages(manager, &[name]).await?;
                }
            }
        }
        if let Some(clean) = manager.clean().filter(|_| self.goes_on()) {
            self.run("removing what was fetched".into(), clean).await?;
        }
        Ok(())
    }

    async fn packages(&mut self, manager: Manager, names: &[&str]) -> Result<bool, Error> {
        self.run(format!("installing {}", names.join(" ")), manager.install(names)).await
    }

    async fn set_up(&mut self, setup: &Setup) -> Result<(), Error> {
        let begin = ["/bin/sh", "-c", &setup.script, "setup"].map(str::to_owned);
        let argv = begin.into_iter().chain(setup.args.iter().cloned()).collect();
        self.run(setup.what.clone(), argv).await.map(drop)
    }

    /// The guest does it by itself: the image may have no shell.
    async fn give(&mut self, Owned { uid, gid, path }: &Owned) -> Result<(), Error> {
        let name = format!("giving {path} to {uid}:{gid}");
        (self.progress)(&name);
        let ask = EnsureUser { uid: *uid, gid: *gid, workdir: path.clone(), bound: Vec::new() };
        let error = match self.link.settle(ask).await {
            Ok(settled) if settled.writable => None,
            // Whoever has it already keeps it: it is not root's to give.
            Ok(_) => Some(format!("{path} is another user's in the image")),
            Err(EngineError::Refused(fault)) => Some(fault.to_string()),
            Err(lost) => return Err(lost.into()),
        };
        self.cooked.commands.push(Ran { name, exit: None, output: String::new(), error });
        Ok(())
    }

    /// Whether it ended with 0.
    async fn run(&mut self, name: String, argv: Vec<String>) -> Result<bool, Error> {
        (self.progress)(&name);
        let (to, from) = mpsc::channel(UNDER_WAY);
        let exec = Exec { live: Some(to), ..self.exec(argv) };
        let (ended, output) = tokio::join!(self.link.exec(exec), Watched::new(self.progress).watch(from));
        let (exit, error) = match ended {
            Ok(ended) => judged(&ended, self.cooking.limit),
            // The container is there, and this command cannot be run in it.
            Err(err @ (EngineError::Refused(_) | EngineError::NoShell | EngineError::NoSuchPath(_))) => {
                (None, Some(err.to_string()))
            }
            Err(lost) => return Err(lost.into()),
        };
        let well = error.is_none();
        self.cooked.commands.push(Ran { name, exit, output, error });
        Ok(well)
    }

    fn exec(&self, argv: Vec<String>) -> Exec {
        let mut exec = Exec::new(Command::Argv(argv), Ids::ROOT, ContainerPath::root());
        exec.env = self.cooking.env.clone();
        exec.env.entry("DEBIAN_FRONTEND".into()).or_insert_with(|| "noninteractive".into());
        exec.limits.total = Some(self.ends.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
        exec.cancel = self.cooking.cancel.clone();
        exec.keep_bytes = 64 << 10;
        exec
    }

    async fn missing(&self, commands: &BTreeSet<String>) -> Result<Vec<String>, Error> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let begin = ["/bin/sh", "-c", MISSING, "probe"].map(str::to_owned);
        let exec = self.exec(begin.into_iter().chain(commands.iter().cloned()).collect());
        let output = self.link.exec(exec).await?;
        if output.exit != Exit::Code(0) {
            return Ok(commands.iter().cloned().collect());
        }
        Ok(output.stdout.text().lines().map(str::to_owned).collect())
    }
}

fn judged(ended: &ExecOutput, limit: Duration) -> (Option<u8>, Option<String>) {
    match ended.exit {
        Exit::Code(0) => (Some(0), None),
        Exit::Code(code) => (Some(code), Some(format!("exit {code}"))),
        Exit::TimedOut(LimitKind::Total) | Exit::Running(_) => {
            (None, Some(format!("not done within {} s", limit.as_secs())))
        }
        Exit::TimedOut(LimitKind::Silence) => (None, Some("it fell silent".into())),
        Exit::Cancelled => (None, Some("cancelled".into())),
    }
}

#[cfg(test)]
mod tests;
