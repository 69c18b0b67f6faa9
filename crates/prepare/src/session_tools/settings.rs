//! Converts configuration and host to the settings of the tools. Pure, except for the handles.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coracle_context::config::{self, TimeoutAction};
use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_context::host_identity::{search_path, trusted_path};
use coracle_host::find_program::find_program_in;
use coracle_lifecycle::Record;
use coracle_workspace::{
    ManagedSessions, Mode, PathRoot, PathRules, Preload, RunSettings, SessionHandle, SessionSource, SlotRole,
    ToolSettings, Workspace,
};

use super::provider::Provider;

/// The tools' environment, which lasts from call to call.
#[derive(Clone, Debug)]
pub struct SessionTools {
    workspace: Workspace,
    sessions: ManagedSessions,
    provider: Provider,
    settings: ToolSettings,
    /// The workspaces of containers that calls have named, by the ids of their records.
    named: Arc<Mutex<BTreeMap<String, Workspace>>>,
}

/// Maximum number of these. The oldest is dropped: files in it have to be read again before they can be changed.
const MAX_NAMED: usize = 256;

impl SessionTools {
    pub fn new(cx: &Context, has_jobs: bool) -> Result<Self, Failure> {
        let provider = Provider::new(cx)?;
        let sessions = provider.sessions()?;
        let settings = settings(cx, has_jobs);
        let workspace = Workspace::new(SessionSource::Managed(sessions.clone()), settings.clone());
        Ok(Self { workspace, sessions, provider, settings, named: Arc::default() })
    }

    /// Returns the workspace of one call.
    pub fn for_call(&self, cx: &Context) -> Workspace {
        let sessions = self.sessions.for_call(Arc::new(self.provider.for_call(cx)));
        self.workspace.for_call(cx.call.cancel.clone(), cx.call.progress.live()).on(SessionSource::Managed(sessions))
    }

    /// Returns the workspace of a container that is not the session's own. Its calls share limits and tracked files.
    pub fn in_container(&self, record: &Record, container: SessionHandle) -> Workspace {
        let source = SessionSource::Own(Box::new(container));
        let id = record.record_id.to_string();
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() >= MAX_NAMED && !named.contains_key(&id) {
            named.pop_first();
        }
        let new = || Workspace::new(source.clone(), self.settings_in(record));
        named.entry(id).or_insert_with(new).clone().on(source)
    }

    /// Ends the interpreters that keep variables.
    pub(crate) fn end_kernels(&self) {
        self.workspace.end_kernels();
        self.named.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(Workspace::end_kernels);
    }

    fn settings_in(&self, record: &Record) -> ToolSettings {
        let paths = PathRules { root: PathRoot::Directory(record.workdir.clone()), ..self.settings.paths.clone() };
        // The container is the caller's, so a timeout of a snippet does not remove it.
        let run = RunSettings {
            mode: Mode::Container,
            discard_at_timeout: false,
            has_network: true,
            is_named: true,
            ..self.settings.run.clone()
        };
        ToolSettings { paths, max_bytes: None, run, ..self.settings.clone() }
    }
}

fn settings(cx: &Context, has_jobs: bool) -> ToolSettings {
    let (workspace, run) = (&cx.config.workspace, &cx.config.run_code);
    ToolSettings {
        paths: PathRules { charset: workspace.path_charset, root: PathRoot::Workspace },
        env_keys: workspace.env_key_case,
        read_before_write: workspace.read_before_write,
        scan_exclude: workspace.scan_exclude.clone(),
        max_bytes: Some(workspace.max_bytes),
        has_jobs,
        run: RunSettings {
            mode: mode(cx.host.execution_mode.as_deref(), run.preload.as_ref().map(|it| preload(it, cx))),
            max_timeout: Duration::from_millis(run.max_timeout_ms),
            memory: run.memory,
            discard_at_timeout: run.timeout_action == TimeoutAction::Container,
            has_network: super::session_egress::is_open(&cx.config, SlotRole::Run),
            is_named: false,
        },
    }
}

/// Whether snippets run in the user's own program.
pub fn runs_on_host(cx: &Context) -> bool {
    let preload = cx.config.run_code.preload.as_ref().map(|it| preload(it, cx));
    matches!(mode(cx.host.execution_mode.as_deref(), preload), Mode::Preload(_))
}

/// Parses the mode. A misspelled mode is an error and runs no snippet. Configuring a program selects it, unless the
/// variable selects another mode; `container` never falls back to anything else.
fn mode(word: Option<&str>, preload: Option<Preload>) -> Mode {
    match (word, preload) {
        (None | Some(""), None) | (Some("container"), _) => Mode::Container,
        (None | Some("" | "preload"), Some(preload)) => Mode::Preload(preload),
        (Some("preload"), None) => Mode::Unavailable,
        (Some(other), _) => Mode::Invalid(other.chars().take(64).collect()),
    }
}

/// Finds the program once, outside of directories that a container can write to. If it is not found, the error at its
/// start has its name.
fn preload(configured: &config::Preload, cx: &Context) -> Preload {
    let host = &cx.host;
    let path = Some(search_path(host)).filter(|it| !it.is_empty()).unwrap_or_else(|| "/usr/bin:/bin".to_owned());
    let (name, words) = configured.command.split_first().map_or(("", &[][..]), |it| (it.0.as_str(), it.1));
    let program = if name.contains('/') {
        host.path(name.as_ref())
    } else {
        find_program_in(name, &trusted_path(cx)).unwrap_or_else(|_| name.into())
    };
    let (words, languages) = (words.to_vec(), configured.languages.clone());
    Preload { program, words, languages, path: path.into(), temp_dir: host.temp_dir.clone() }
}

#[cfg(test)]
mod tests {
    use coracle_context::config;
    use coracle_context::context::Context;
    use coracle_workspace::{Language, Mode};

    use super::mode;

    fn configured(command: &[&str]) -> coracle_workspace::Preload {
        let command = command.iter().map(|it| (*it).to_owned()).collect();
        let preload = config::Preload { command, languages: vec![Language::Bash] };
        super::preload(&preload, &Context::for_tests(tempfile::tempdir().unwrap().path()))
    }

    #[test]
    fn r02_a_configured_program_is_used_unless_the_variable_selects_another_mode() {
        let program = configured(&["sh", "-e"]);
        for word in [None, Some(""), Some("container")] {
            assert_eq!(mode(word, None), Mode::Container);
        }
        assert_eq!(mode(Some("container"), Some(program.clone())), Mode::Container);
        for word in [None, Some(""), Some("preload")] {
            assert_eq!(mode(word, Some(program.clone())), Mode::Preload(program.clone()));
        }
        assert_eq!(mode(Some("preload"), None), Mode::Unavailable);
    }

    #[test]
    fn r02_a_program_is_found_once_or_reported_by_its_name() {
        let it = configured(&["sh", "-e"]);
        assert!(it.program.is_absolute() && it.program.ends_with("sh") && it.words == ["-e"], "{it:?}");
        let own = configured(&["~/bin/x"]).program;
        assert!(own.is_absolute() && own.ends_with("home/bin/x"), "{own:?}");
        assert_eq!(configured(&["no-such-program"]).program, std::path::Path::new("no-such-program"));
    }

    #[test]
    fn r03_a_mode_is_one_of_two_exact_words() {
        for word in [
            "Container",
            " container",
            "container ",
            "CONTAINER",
            "docker",
            "podman",
            "none",
            "host",
            "0",
            "1",
            "true",
            "false",
            "sandbox",
            "preLoad",
            "Preload",
            "preload ",
            "container\n",
            "containers",
            "null",
            "process",
        ] {
            let invalid = Mode::Invalid(word.to_owned());
            assert_eq!(mode(Some(word), None), invalid, "{word:?}");
            assert_eq!(mode(Some(word), Some(configured(&["sh"]))), invalid, "{word:?}");
        }
    }
}
