//! Expands `${…}` in a file's values.

use std::collections::BTreeMap;

use coracle_types::{SandboxWarning, WorkflowId};
use serde_json::Value;

use crate::refusal::ignored;

/// The values of a file's variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    /// The repository's directory on the host, or else the worktree inside.
    pub local_folder: String,
    /// The repository's name.
    pub local_name: String,
    /// The worktree inside, unless the file sets another path.
    pub container_folder: String,
    /// Identifies this container, and stays the same when it is created again.
    pub id: String,
    /// Variables of the host that the user has granted.
    pub local_env: BTreeMap<String, String>,
}

/// The expansion of one variable.
enum Expansion {
    Text(String),
    /// It is known later or never, and is not expanded.
    Stays,
    /// The user did not grant it.
    Withheld(String),
}

impl Variables {
    /// The folders of a workflow. `local_folder` is the repository's directory on the host, if it has one.
    #[must_use]
    pub fn in_worktree(workflow: &WorkflowId, local_folder: Option<&str>) -> Self {
        let container_folder = format!("/workspace/worktrees/{workflow}");
        let local_folder = local_folder.unwrap_or(&container_folder).to_owned();
        Self { local_folder, container_folder, ..Self::default() }
    }

    /// Expands all texts of a value. Variables of the host that are not granted become their default, or empty.
    pub(super) fn fill(&self, value: &mut Value, warnings: &mut Vec<SandboxWarning>) {
        match value {
            Value::String(text) => *text = self.filled(text, warnings),
            Value::Array(all) => all.iter_mut().for_each(|it| self.fill(it, warnings)),
            Value::Object(all) => all.values_mut().for_each(|it| self.fill(it, warnings)),
            _ => {}
        }
    }

    pub(super) fn filled(&self, text: &str, warnings: &mut Vec<SandboxWarning>) -> String {
        replace(text, |word| match self.expand(word) {
            Expansion::Text(text) => Some(text),
            Expansion::Stays => None,
            Expansion::Withheld(name) => {
                let message =
                    format!("the host's variable `{name}` is not granted (`sandbox.local_env`), and is empty");
                let warning = ignored(message);
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
                Some(String::new())
            }
        })
    }

    fn expand(&self, word: &str) -> Expansion {
        let base = |path: &str| path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
        let text = |it: &str| Expansion::Text(it.to_owned());
        match word {
            "localWorkspaceFolder" => text(&self.local_folder),
            "localWorkspaceFolderBasename" => text(&self.local_name),
            "containerWorkspaceFolder" => text(&self.container_folder),
            "containerWorkspaceFolderBasename" => Expansion::Text(base(&self.container_folder)),
            "devcontainerId" => text(&self.id),
            word => {
                let Some(name) = word.strip_prefix("localEnv:").or_else(|| word.strip_prefix("env:")) else {
                    return Expansion::Stays;
                };
                let (name, default) = name.split_once(':').map_or((name, None), |(name, it)| (name, Some(it)));
                match (self.local_env.get(name), default) {
                    (Some(value), _) => text(value),
                    (None, Some(default)) => text(default),
                    (None, None) => Expansion::Withheld(name.to_owned()),
                }
            }
        }
    }
}

/// Expands `${containerEnv:NAME}`, which is known once the image is.
pub(super) fn with_container_env(text: &str, env: &BTreeMap<String, String>) -> String {
    replace(text, |word| {
        let name = word.strip_prefix("containerEnv:")?;
        let (name, default) = name.split_once(':').unwrap_or((name, ""));
        Some(env.get(name).cloned().unwrap_or_else(|| default.to_owned()))
    })
}

/// Replaces each `${word}`, once.
fn replace(text: &str, mut by: impl FnMut(&str) -> Option<String>) -> String {
    let (mut filled, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("${") {
        filled.push_str(before);
        let Some((word, behind)) = after.split_once('}') else {
            rest = &rest[before.len()..];
            break;
        };
        match by(word) {
            Some(value) => filled.push_str(&value),
            None => {
                filled.push_str("${");
                filled.push_str(word);
                filled.push('}');
            }
        }
        rest = behind;
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_and_those_of_the_host_only_if_they_are_granted() {
        let variables = Variables {
            local_folder: "/work/web".into(),
            local_name: "web".into(),
            container_folder: "/workspaces/${devcontainerId}".into(),
            id: "k1".into(),
            local_env: [("TERM".to_owned(), "xterm".to_owned())].into(),
        };
        let mut warnings = Vec::new();
        let mut check = |text: &str, filled: &str| assert_eq!(variables.filled(text, &mut warnings), filled, "{text}");
        check("${localWorkspaceFolder}/x", "/work/web/x");
        check("a-${localWorkspaceFolderBasename}-${devcontainerId}", "a-web-k1");
        check("${containerWorkspaceFolder}", "/workspaces/${devcontainerId}");
        check("${localEnv:TERM} ${localEnv:TERM:none} ${localEnv:GONE:none}", "xterm xterm none");
        check("${containerEnv:PATH}:${unknown}", "${containerEnv:PATH}:${unknown}");
        check("cost $5 ${", "cost $5 ${");
        check("<${localEnv:SECRET}${localEnv:SECRET}>", "<>");
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].message.contains("`SECRET`"));
    }

    #[test]
    fn the_containers_own_variables_are_expanded_when_its_image_is_known() {
        let env = [("PATH".to_owned(), "/bin".to_owned())].into();
        assert_eq!(
            with_container_env("${containerEnv:PATH}:/x${containerEnv:NO}${containerEnv:NO:y}", &env),
            "/bin:/xy"
        );
    }
}
