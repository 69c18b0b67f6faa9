//! From configuration and host to what the tools go by. Pure, but for the handles.

use std::sync::Arc;
use std::time::Duration;

use coracle_workspace::{EnvKeys, Mode, PathCharset, RunSettings, Settings, Workspace};

use super::Toolset;
use super::sessions::SessionContainers;
use crate::config::{self, Config, EnvKeyCase, TimeoutAction};
use crate::context::Context;
use crate::failure::Failure;

/// What the tools of a session work with, from call to call.
#[derive(Clone, Debug)]
pub(crate) struct SessionTools {
    workspace: Workspace,
    containers: SessionContainers,
}

impl SessionTools {
    pub(crate) fn new(cx: &Context) -> Result<Self, Failure> {
        let settings = settings(&cx.config, cx.host.execution_mode.as_deref(), &cx.toolsets);
        let containers = SessionContainers::new(cx)?;
        Ok(Self { workspace: Workspace::new(Arc::new(containers.clone()), settings), containers })
    }

    /// The place to work in, for one call.
    pub(crate) fn for_call(&self, cx: &Context) -> Workspace {
        let containers = Arc::new(self.containers.for_call(cx));
        self.workspace.for_call(cx.cancel.clone(), cx.progress.live(), containers)
    }
}

fn settings(config: &Config, execution_mode: Option<&str>, toolsets: &[Toolset]) -> Settings {
    let (workspace, run) = (&config.workspace, &config.run_code);
    Settings {
        path_charset: match workspace.path_charset {
            config::PathCharset::Ascii => PathCharset::Ascii,
            config::PathCharset::Utf8 => PathCharset::Utf8,
        },
        env_keys: match workspace.env_key_case {
            EnvKeyCase::Upper => EnvKeys::Upper,
            EnvKeyCase::Preserve => EnvKeys::Preserve,
        },
        read_before_write: workspace.read_before_write,
        scan_exclude: workspace.scan_exclude.clone(),
        has_jobs: toolsets.contains(&Toolset::Containers),
        run: RunSettings {
            mode: mode(execution_mode),
            max_timeout: Duration::from_millis(run.max_timeout_ms),
            memory: run.memory,
            discard_at_timeout: run.timeout_action == TimeoutAction::Container,
            has_network: false,
        },
    }
}

/// Exact words: a mode that is misspelled must not run a snippet anywhere.
fn mode(word: Option<&str>) -> Mode {
    match word {
        None | Some("" | "container") => Mode::Container,
        Some("preload") => Mode::Unavailable,
        Some(other) => Mode::Invalid(other.chars().take(64).collect()),
    }
}

#[cfg(test)]
mod tests {
    use coracle_workspace::Mode;

    use super::mode;

    #[test]
    fn r03_a_mode_is_one_of_two_words_exactly() {
        for word in [None, Some(""), Some("container")] {
            assert_eq!(mode(word), Mode::Container);
        }
        assert_eq!(mode(Some("preload")), Mode::Unavailable);
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
            assert_eq!(mode(Some(word)), Mode::Invalid(word.to_owned()), "{word:?}");
        }
    }
}
