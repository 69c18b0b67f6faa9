//! Access to the machine: programs, the environment, waiting.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place in xtask that starts programs, reads variables and waits"
)]

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// A program to run, shown with its arguments.
#[derive(Debug)]
pub(crate) struct Sh {
    command: Command,
    shown: String,
    /// What a program that is left running has as its input; nothing else does.
    input: Option<OwnedFd>,
}

/// `program` with `words`, in the project's root, without an input to wait for.
pub(crate) fn sh<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, words: impl IntoIterator<Item = S>) -> Sh {
    let mut command = Command::new(&program);
    let shown = program.as_ref().to_string_lossy().into_owned();
    command.current_dir(root()).stdin(Stdio::null());
    // Variables that cargo set for xtask: build scripts that depend on them would run again after each call from a
    // shell.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|it| name.to_string_lossy().starts_with(it)) {
            command.env_remove(name);
        }
    }
    if var("CI").is_some() {
        command.env("CARGO_INCREMENTAL", "0"); // nothing is built twice there, so bookkeeping for a second time is waste
    }
    Sh { command, shown, input: None }.words(words)
}

impl Sh {
    /// More words, of another type than those before.
    pub(crate) fn words<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        for word in words {
            self.shown.push(' ');
            self.shown.push_str(&word.as_ref().to_string_lossy());
            self.command.arg(word);
        }
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Gives an open file, such as a socket that listens, to a program that is left running, as its standard input.
    pub(crate) fn input(mut self, input: impl Into<OwnedFd>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Runs it with its output going where ours goes; prints the words before and the time after.
    pub(crate) fn run(self) -> Result<()> {
        let (begun, brief) = (Instant::now(), brief(&self.shown));
        self.run_last()?;
        println!("  {} for `{brief}`", took(begun));
        Ok(())
    }

    /// The same without output after it: its own last line, a summary of tests, is the one to see.
    pub(crate) fn run_last(mut self) -> Result<()> {
        println!("$ {}", self.shown);
        let status = self.command.status().with_context(|| format!("start `{}`", self.shown))?;
        if !status.success() {
            bail!("`{}` failed ({status})", self.shown);
        }
        Ok(())
    }

    /// Runs it in silence; its standard output without the last line break.
    pub(crate) fn read(self) -> Result<String> {
        let shown = self.shown.clone();
        let output = self.output()?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("`{shown}` failed ({}): {}", output.status, errors.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Runs it in silence, and all there is about how it ended. An exit other than 0 is no error here.
    pub(crate) fn output(mut self) -> Result<Output> {
        self.command.output().with_context(|| format!("start `{}`", self.shown))
    }

    /// Whether it can be started and exits with 0. Silent.
    pub(crate) fn succeeds(self) -> bool {
        self.output().is_ok_and(|it| it.status.success())
    }

    /// Leaves it running in a session of its own, so that it outlives us and our terminal; its process id.
    pub(crate) fn leave_running(self, log: &Path) -> Result<u32> {
        println!("$ {} (in the background, log in {})", self.shown, log.display());
        let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
        // `setsid` forks only where it leads a group, which a child of ours does not: the id stays the program's.
        let mut command = Command::new("setsid");
        command.arg(self.command.get_program()).args(self.command.get_args()).current_dir("/");
        command.env_remove("LD_LIBRARY_PATH"); // cargo's, for programs that it built
        command.stdin(self.input.map_or_else(Stdio::null, Stdio::from)).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start `{}`", self.shown))?;
        Ok(child.id())
    }
}

/// Whether a program succeeds that has our directory, variables, input and output.
pub(crate) fn as_ours<'a>(program: &str, words: impl IntoIterator<Item = &'a str>) -> bool {
    match Command::new(program).args(words).status() {
        Ok(status) => status.success(),
        Err(err) => {
            eprintln!("error: start {program}: {err}");
            false
        }
    }
}

/// A variable that is set and not empty.
pub(crate) fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|it| !it.is_empty())
}

/// The first program of that name on the search path.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = var("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|it| it.is_file())
}

/// Asks until the answer is yes or the time is over; whether it was yes.
pub(crate) fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if done() {
            return true;
        }
        if begun.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The project's root directory.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the project's root")
}

/// The directory for build results, downloads and notes.
pub(crate) fn target() -> PathBuf {
    var("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

pub(crate) fn took(begun: Instant) -> String {
    let seconds = begun.elapsed().as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.0} m {:02.0} s", (seconds / 60.0).floor(), seconds % 60.0)
    }
}

fn brief(shown: &str) -> String {
    shown.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
