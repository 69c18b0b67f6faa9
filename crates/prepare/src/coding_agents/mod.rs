//! Coding agents of others that work in a sandbox, as data: what npm has of them, and how each is told where its models are.
//!
//! The key never goes in: an agent gets a placeholder, and the proxy on the host adds the key to its requests.

mod table;

use std::collections::BTreeMap;

use coracle_context::config::ProviderKind;
use coracle_types::{Command, ImageRef};

pub use self::table::ALL;

/// What an agent sends in place of a key.
const PLACEHOLDER: &str = "coracle-proxy-adds-the-key";

/// Where the proxy listens inside, above the versions of each API.
const PROXY: &str = "http://127.0.0.1:3129/proxy";

/// Prepares the home, which may be new, and becomes the agent: `$1` and `$2` are the name and the content of a first file.
const PREPARE: &str = r#"mkdir -p "$HOME" || exit 126
if [ -n "$1" ] && [ ! -e "$HOME/$1" ]; then
    mkdir -p "$(dirname "$HOME/$1")" && printf %s "$2" > "$HOME/$1" || exit 126
fi
shift 2
exec "$@""#;

/// A row of the table.
#[derive(Debug)]
pub struct CodingAgent {
    /// Its name at the command line, and that of its profile.
    pub name: &'static str,
    /// Arguments of `npm install --global`; `ARCH` stands for `x64` or `arm64`.
    pub packages: &'static [&'static str],
    /// The program below npm's root, where no name of a command leads to it.
    pub(crate) below_root: Option<&'static str>,
    /// The program.
    pub program: &'static str,
    /// Arguments of every start.
    pub always: &'static [&'static str],
    /// Arguments before the task, without a person.
    pub(crate) headless: &'static [&'static str],
    /// The same with a person at a terminal.
    pub interactive: &'static [&'static str],
    /// Arguments right before the task.
    pub task: &'static [&'static str],
    /// Arguments before the name of a model; none where a variable names it.
    pub model: &'static [&'static str],
    /// It cannot choose a model by itself.
    pub needs_model: bool,
    /// Variables that do not depend on what the provider speaks.
    pub env: &'static [(&'static str, &'static str)],
    /// How it reaches each kind of provider. The first one is the usual one.
    pub(crate) providers: &'static [ProviderAccess],
    /// A first file of its home, and what is in it.
    pub(crate) first_file: Option<(&'static str, &'static str)>,
}

/// How an agent reaches models of one kind. In values, `{proxy}`, `{key}` and `{model}` stand for what they say.
#[derive(Debug)]
pub(crate) struct ProviderAccess {
    pub kind: ProviderKind,
    pub env: &'static [(&'static str, &'static str)],
    /// Before a model's name, as one word with it.
    pub(crate) model_prefix: &'static str,
}

/// One start of an agent.
#[derive(Clone, Debug)]
pub struct AgentStart<'a> {
    /// What the provider speaks.
    pub kind: ProviderKind,
    /// The model; the agent's own choice when missing.
    pub model: Option<&'a str>,
    /// The task; with none a person works with it.
    pub task: Option<&'a str>,
    /// More arguments.
    pub more: &'a [String],
}

/// The agent of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static CodingAgent> {
    ALL.iter().find(|it| it.name == name)
}

/// The agent that an image is for.
pub fn of_image(image: &ImageRef) -> Option<&'static CodingAgent> {
    ALL.iter().find(|it| it.image() == *image)
}

impl CodingAgent {
    /// The image that it is installed in. One that is there is used as it is.
    pub fn image(&self) -> ImageRef {
        let name = format!("coracle-agent-{}:{}", self.name, env!("CARGO_PKG_VERSION"));
        ImageRef::parse(&name).expect("the names of the table follow the grammar")
    }

    /// Kinds of providers that it speaks to.
    pub fn kinds(&self) -> impl Iterator<Item = ProviderKind> {
        self.providers.iter().map(|it| it.kind)
    }

    /// Whether it has to be told a model.
    #[must_use]
    pub fn needs_model(&self) -> bool {
        self.needs_model
    }

    /// Where it keeps its settings and conversations, on the volume of its sandbox.
    #[must_use]
    pub fn home(&self, volume: &str) -> String {
        format!("{volume}/.agents/{}", self.name)
    }

    /// The command. `None` where it does not speak to such a provider.
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
            // With a space it is no option.
            words.push(if task.starts_with('-') { format!(" {task}") } else { task.to_owned() });
        }
        Some(Command::Argv(words))
    }

    /// The variables of the command, but its home. None of them is secret.
    #[must_use]
    pub fn env(&self, start: &AgentStart<'_>) -> BTreeMap<String, String> {
        let of_kind = self.access(start.kind).map_or(&[][..], |it| it.env);
        let all = self.env.iter().chain(of_kind);
        // A variable that would name no model is left out.
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
        AgentStart { kind, model: Some("m-1"), task: Some("Mend it."), more: &[] }
    }

    #[test]
    fn every_agent_is_led_to_the_proxy_with_a_placeholder_and_its_task_as_the_last_word() {
        for agent in ALL {
            assert!(of_image(&agent.image()).is_some_and(|it| it.name == agent.name));
            for kind in agent.kinds() {
                let start = start(kind);
                let Some(Command::Argv(words)) = agent.command(&start) else { panic!("{}", agent.name) };
                assert_eq!(words.last().unwrap(), "Mend it.", "{}", agent.name);
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
    fn each_agent_has_a_profile_of_its_name() {
        let names: Vec<_> = ALL.iter().map(|it| it.name).collect();
        assert_eq!(names, coracle_context::config::AGENT_PROFILES);
    }

    #[test]
    fn an_agent_is_not_started_for_a_provider_that_it_does_not_speak_to() {
        let claude = find("claude").unwrap();
        assert!(claude.command(&start(ProviderKind::Google)).is_none());
        let own = AgentStart { model: None, ..start(ProviderKind::Anthropic) };
        assert!(!claude.env(&own).contains_key("ANTHROPIC_MODEL"));
    }
}
