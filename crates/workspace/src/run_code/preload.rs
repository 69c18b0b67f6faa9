//! Snippets in a program of the user, on the host.
//!
//! Nothing isolates them: no limit of processors, memory, files or network. They have the time and the output of any
//! other snippet, nothing of them goes on afterwards, and every result names where they ran.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use coracle_host::process::Invocation;
use coracle_host::program::HostProgram;
use coracle_types::{Error, ExecLimits, ExecOutput, Input};

use super::RunCodeResult;
use super::snippet::{GRACE, Snippet};
use crate::output::KEEP;
use crate::response::{Result, fail};
use crate::shell::ended;
use crate::{Code, Failure, Language, Preload, Warning, Workspace};

/// Its directories begin so, and `prune` knows them by it.
const PREFIX: &str = "coracle-run-";

impl Preload {
    pub(super) fn check(&self, language: Language) -> Result<()> {
        if self.languages.contains(&language) {
            return Ok(());
        }
        let languages: Vec<_> = self.languages.iter().map(|it| it.word()).collect();
        let message =
            format!("`run_code.preload` does not run {}; it has {}.", language.word(), languages.join(" and "));
        fail(Code::LanguageUnavailable, message)
    }

    /// News that is part of every result.
    pub(super) fn warning() -> Warning {
        let message = "The snippet ran as a program of the host, by `run_code.preload`: nothing keeps it from the \
                       host's files, processes and network.";
        Warning::new("preload_not_isolated", message)
    }

    pub(super) async fn run(&self, workspace: &Workspace, snippet: Snippet) -> Result<RunCodeResult> {
        // One after another, as in a container.
        let _permit = workspace.runs().acquire().await?;
        let dir =
            tempfile::Builder::new().prefix(PREFIX).tempdir_in(&self.temp_dir).map_err(|err| not_written(&err))?;
        let output = self.execute(workspace, &snippet, dir.path()).await?;
        let settings = &workspace.settings.run;
        let ended = ended(&output, output.left_running, snippet.timeout, Some(settings.memory));
        Ok(RunCodeResult::new(ended, None, snippet.timeout, settings))
    }

    async fn execute(&self, workspace: &Workspace, snippet: &Snippet, dir: &Path) -> Result<ExecOutput> {
        if !self.program.is_absolute() {
            return Err(self.not_started("it is not installed, or others can write where it is"));
        }
        let (home, code) = (dir.join("home"), dir.join("code"));
        let file = code.join(snippet.language.file_name());
        let written = std::fs::create_dir(&home).and_then(|()| std::fs::create_dir(&code));
        written.and_then(|()| std::fs::write(&file, &snippet.code)).map_err(|err| not_written(&err))?;
        let words = self.words.iter().map(OsString::from).chain([file.into_os_string()]);
        let mut invocation = Invocation::new(&self.program, words);
        invocation.env = [("PATH", self.path.clone()), ("HOME", home.into_os_string()), ("LANG", "C.UTF-8".into())]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        invocation.dir = Some(code);
        let program = HostProgram {
            invocation,
            stdin: snippet.stdin.clone().map(|it| Input::Bytes(it.into_bytes())),
            limits: ExecLimits { total: Some(snippet.timeout), silence: None, grace: GRACE },
            keep_bytes: KEEP,
            cancel: workspace.cancel.clone(),
            live: workspace.live.clone(),
        };
        program.run().await.map_err(|err| match err {
            Error::Spawn { source, .. } => self.not_started(&source.to_string()),
            other => self.not_started(&other.to_string()),
        })
    }

    fn not_started(&self, why: &str) -> Box<Failure> {
        let program = self.program.display().to_string();
        let message = format!("`{}` of `run_code.preload` cannot be started: {why}.", program.escape_debug());
        Failure::new(Code::LanguageUnavailable, message).into()
    }
}

fn not_written(err: &io::Error) -> Box<Failure> {
    Failure::new(Code::Internal, format!("The snippet cannot be written to a temporary directory: {err}.")).into()
}
