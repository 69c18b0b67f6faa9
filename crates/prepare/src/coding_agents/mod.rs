//! Third-party coding agents that work in a sandbox: their npm packages, and how each is configured to use a model
//! provider.
//!
//! API keys stay on the host: an agent gets a placeholder, and the proxy on the host adds the key to its requests.

mod table;

use std::collections::BTreeMap;

use coracle_context::config::ProviderKind;
use coracle_types::{Command, ImageRef};

pub use self::table::ALL;

/// The API key that an agent is configured with.
const PLACEHOLDER: &str = "coracle-proxy-adds-the-key";

/// The base URL of the proxy inside the sandbox, without the version of an API.
const PROXY: &str = "http://127.0.0.1:3129/proxy";

/// Creates the home directory, which may be new, and executes the agent: `$1` is the name of a first file, `$2` its
/// content.
const PREPARE: &str = r#"mkdir -p "$HOME" || exit 126
if [ -n "$1" ] && [ ! -e "$HOME/$1" ]; then
    mkdir -p "$(dirname "$HOME/$1")" && printf %s "$2" > "$HOME/$1" || exit 126
fi
shift 2
exec "$@""#;

/// A coding agent and how it is started.
#[derive(Debug)]
pub struct CodingAgent {
    /// Its name on the command line, and that of its profile.
    pub name: &'static str,
    /// Arguments of `npm install --global`; `ARCH` stands for `x64` or `arm64`.
    pub packages: &'static [&'static str],
    /// The program's path below npm's root, for agents that install no command.
    pub(crate) below_root: Option<&'static str>,
    pub program: &'static str,
    /// Arguments of every start.
    pub always: &'static [&'static str],
    /// Arguments before the task when no user is at the terminal.
    pub(crate) headless: &'static [&'static str],
    /// Arguments before the task when a user is at the terminal.
    pub interactive: &'static [&'static str],
    /// Arguments right before the task.
    pub task: &'static [&'static str],
    /// Arguments before the name of a model; empty if a variable names the model.
    pub model: &'static [&'static str],
    /// It has no default model.
    pub needs_model: bool,
    /// Variables that do not depend on the kind of provider.
    pub env: &'static [(&'static str, &'static str)],
    /// How it reaches each kind of provider. The first one is the default.
    pub(crate) providers: &'static [ProviderAccess],
    /// Path and content of a file that its home needs before the first start.
    pub(crate) first_file: Option<(&'static str, &'static str)>,
}

/// How an agent reaches models of one kind. `{proxy}`, `{key}` and `{model}` in values are replaced.
#[derive(Debug)]
pub(crate) struct ProviderAccess {
    pub kind: ProviderKind,
    pub env: &'static [(&'static str, &'static str)],
    /// Put before a model's name in the same argument.
    pub(crate) model_prefix: &'static str,
}

/// One start of an agent.
#[derive(Clone, Debug)]
pub struct AgentStart<'a> {
    /// The kind of provider.
    pub kind: ProviderKind,
    /// The model, or `None` for the agent's default.
    pub model: Option<&'a str>,
    /// The task, or `None` for an interactive session.
    pub task: Option<&'a str>,
    /// Arguments that the caller adds.
    pub more: &'a [String],
}

/// Returns the agent of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static CodingAgent> {
    ALL.iter().find(|it| it.name == name)
}

/// Returns the agent that an image was built for.
pub fn of_image(image: &ImageRef) -> Option<&'static CodingAgent> {
    ALL.iter().find(|it| it.image() == *image)
}

impl CodingAgent {
    /// Returns the image that it is installed in. An existing image of that name is used unchanged.
    pub fn image(&self) -> ImageRef {
        let name = format!("coracle-agent-{}:{}", self.name, env!("CARGO_PKG_VERSION"));
        ImageRef::parse(&name).expect("the names of the table follow the grammar")
    }

    /// Lists the kinds of providers that it supports.
    pub fn kinds(&self) -> impl Iterator<Item = ProviderKind> {
        self.providers.iter().map(|it| it.kind)
    }

    /// Whether the caller has to choose a model.
    #[must_use]
    pub fn needs_model(&self) -> bool {
        self.needs_model
    }

    /// Returns the directory of its settings and conversations, on the volume of its sandbox.
    #[must_use]
    pub fn home(&self, volume: &str) -> String {
        format!("{volume}/.agents/{}", self.name)
    }

    /// Builds the command line. `None` if it does not support the kind of provider.
    #[must_use]
    pub fn command(&self, start: &AgentStart<'_>) -> Option<Command> {
        let access = self.access(start.kind)?;
        let (file, content) = self.first_file.unwrap_or_default();
        let usual = if start.task.is_some() { self.headless } else { self.interactive };
        let mut words: Vec<String> =
            ["/bin/sh", "-c", PREPARE, "sh", file, content, self.program].map(str::to_owned).into();
        words.extend(usual.iter().chain(self.always).map(|it| filled(it, start.model)));
        if let Some(model) = start.model.filter(|_| !self.model.is_empty()) {
            words.extend(self.model.iter().map(|it| (*it).to_owned()));
            words.push(format!("{}{model}", access.model_prefix));
        }
        words.extend(start.more.iter().cloned());
        if let Some(task) = start.task {
            words.extend(self.task.iter().map(|it| (*it).to_owned()));
            // A task that begins with a dash would be parsed as an option.
            words.push(if task.starts_with('-') { format!(" {task}") } else { task.to_owned() });
        }
        Some(Command::Argv(words))
    }

    /// Returns the variables of the command, without `HOME`. None of them is secret.
    #[must_use]
    pub fn env(&self, start: &AgentStart<'_>) -> BTreeMap<String, String> {
        let of_kind = self.access(start.kind).map_or(&[][..], |it| it.env);
        let all = self.env.iter().chain(of_kind);
        let named = all.filter(|(_, value)| start.model.is_some() || *value != "{model}");
        named.map(|(name, value)| ((*name).to_owned(), filled(value, start.model))).collect()
    }

    fn access(&self, kind: ProviderKind) -> Option<&ProviderAccess> {
        self.providers.iter().find(|it| it.kind == kind)
    }
}

fn filled(text: &str, model: Option<&str>) -> String {
    text.replace("{proxy}", PROXY).replace("{key}", PLACEHOLDER).replace("{model}", model.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(kind: ProviderKind) -> AgentStart<'static> {
        AgentStart { kind, model: Some("m-1"), task: Some("Fix it."), more: &[] }
    }

    #[test]
    fn every_agent_uses_the_proxy_with_a_placeholder_and_gets_its_task_as_the_last_argument() {
        for agent in ALL {
            assert!(of_image(&agent.image()).is_some_and(|it| it.name == agent.name));
            for kind in agent.kinds() {
                let start = start(kind);
                let Some(Command::Argv(words)) = agent.command(&start) else { panic!("{}", agent.name) };
                assert_eq!(words.last().unwrap(), "Fix it.", "{}", agent.name);
                let env = agent.env(&start);
                let all = format!("{words:?} {env:?}");
                for part in [PROXY, PLACEHOLDER, "m-1"] {
                    assert!(all.contains(part), "{} {kind:?}: {part}: {all}", agent.name);
                }
                assert!(!all.contains("{proxy}") && !all.contains("{model}") && !all.contains("{key}"), "{all}");
                assert!(env.values().chain(&words).all(|it| !it.contains("https://")), "{all}");
            }
        }
    }

    #[test]
    fn each_agent_has_a_profile_with_its_name() {
        let names: Vec<_> = ALL.iter().map(|it| it.name).collect();
        assert_eq!(names, coracle_context::config::AGENT_PROFILES);
    }

    #[test]
    fn an_agent_does_not_start_for_an_unsupported_provider() {
        let claude = find("claude").unwrap();
        assert!(claude.command(&start(ProviderKind::Google)).is_none());
        let own = AgentStart { model: None, ..start(ProviderKind::Anthropic) };
        assert!(!claude.env(&own).contains_key("ANTHROPIC_MODEL"));
    }
}
