//! Selects the host variables that enter a container, as a pure function.

use std::collections::BTreeMap;

use coracle_runtime::{PatternSet, PolicyRefusal, Problem};
use coracle_types::Secret;

/// Patterns that `auto` uses without configuration.
pub const DEFAULT_PATTERNS: &[&str] = &[
    "*_API_KEY",
    "*_TOKEN",
    "*_SECRET",
    "ANTHROPIC_*",
    "OPENAI_*",
    "AZURE_OPENAI_*",
    "GOOGLE_*",
    "GEMINI_*",
    "OLLAMA_*",
    "VLLM_*",
    "AMPLIFIER_*",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Names that never leave the host.
pub const NEVER: &[&str] = &[
    "PATH",
    "HOME",
    "SHELL",
    "USER",
    "LOGNAME",
    "PWD",
    "OLDPWD",
    "TERM",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_*",
    "XDG_*",
    "SSH_*",
    "GPG_*",
    "LS_COLORS",
    "LANG",
    "LC_*",
    "HOSTNAME",
    "SHLVL",
    "_",
    "TMPDIR",
    "SUDO_*",
    "LD_*",
    "DYLD_*",
    "BASH_ENV",
    "ENV",
    "BASH_FUNC_*",
    "PROMPT_COMMAND",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "NODE_OPTIONS",
    "PERL5OPT",
    "RUBYOPT",
    "JAVA_TOOL_OPTIONS",
    "GIT_*",
    "DOCKER_*",
    "CONTAINER_*",
    "CONTAINERS_*",
    "PODMAN_*",
    "BUILDKIT_*",
    "KUBECONFIG",
    "ACTIONS_*",
    "RUNNER_*",
    "CI_JOB_TOKEN",
    "CORACLE_*",
];

/// The kernel accepts no longer variable, including its name, `=` and the NUL at its end.
const MAX_VARIABLE: usize = 128 << 10;

/// The requested host variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvRequest {
    /// Those that match `auto_passthrough.env_patterns`.
    Auto,
    /// Every one.
    All,
    /// None.
    None,
    /// Those of these names.
    Names(Vec<String>),
}

/// The configured rules.
#[derive(Clone, Debug)]
pub struct EnvRules {
    patterns: PatternSet,
    allow: PatternSet,
    never: PatternSet,
    allow_all: bool,
}

/// An invalid pattern in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` in `{key}` is no pattern of variables' names: {why}", pattern.escape_debug())]
pub struct BadPattern {
    /// Its configuration key.
    pub key: &'static str,
    /// The pattern.
    pub pattern: String,
    /// The reason.
    pub why: &'static str,
}

impl EnvRules {
    /// Parses the configured patterns: `auto_passthrough.env_patterns`, `.env_allow` and `.never`, and
    /// `security.allow_env_all`. `never` only adds to the names that never leave the host.
    ///
    /// # Errors
    /// [`BadPattern`]
    pub fn new(patterns: &[String], allow: &[String], never: &[String], allow_all: bool) -> Result<Self, BadPattern> {
        let never: Vec<String> = NEVER.iter().map(|it| (*it).to_owned()).chain(never.iter().cloned()).collect();
        Ok(Self {
            patterns: compiled("auto_passthrough.env_patterns", patterns)?,
            allow: compiled("auto_passthrough.env_allow", allow)?,
            never: compiled("auto_passthrough.never", &never)?,
            allow_all,
        })
    }

    /// Whether a variable may leave the host at all.
    pub(super) fn may_leave(&self, name: &str) -> bool {
        is_name(name) && !self.never.matches(name)
    }

    fn may_be_named(&self, name: &str) -> bool {
        self.patterns.matches(name) || self.allow.matches(name)
    }
}

fn compiled(key: &'static str, patterns: &[String]) -> Result<PatternSet, BadPattern> {
    let bad = |pattern: &String, why| BadPattern { key, pattern: pattern.clone(), why };
    for pattern in patterns {
        if pattern.is_empty() {
            return Err(bad(pattern, "it is empty"));
        }
        if pattern.chars().all(|it| it == '*') {
            return Err(bad(pattern, "it matches every name; `security.allow_env_all` is for that"));
        }
    }
    PatternSet::new(patterns).map_err(|pattern| bad(&pattern, "it cannot be read"))
}

/// Whether it is a valid variable name: letters, digits and `_`, not starting with a digit, at most 256.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && name.len() <= 256 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The selected variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedEnv {
    /// The variables.
    pub values: BTreeMap<String, Secret>,
    /// Requested names that the host does not have.
    pub missing: Vec<String>,
    /// Names whose values are too long.
    pub too_long: Vec<String>,
    /// The configuration or the caller requested host variables.
    pub is_requested: bool,
}

/// Which limit a value exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// That of one variable.
    Own,
    /// That of all variables together.
    All,
}

impl Excess {
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Own => "it is longer than 128 KiB",
            Self::All => "all variables together are longer than 1 MiB",
        }
    }
}

/// Selects from the host's variables.
///
/// # Errors
/// [`PolicyRefusal`] with every rule that is violated: `env.all`, `env.name`, `env.never`.
pub fn select(
    host: &BTreeMap<String, Secret>,
    request: &EnvRequest,
    rules: &EnvRules,
) -> Result<SelectedEnv, PolicyRefusal> {
    let mut selected = SelectedEnv { is_requested: *request != EnvRequest::None, ..SelectedEnv::default() };
    match request {
        EnvRequest::None => {}
        EnvRequest::All if !rules.allow_all => return Err(PolicyRefusal { problems: vec![all_refused()] }),
        EnvRequest::All => selected.take(host, |name| rules.may_leave(name)),
        EnvRequest::Auto => selected.take(host, |name| rules.may_leave(name) && rules.patterns.matches(name)),
        EnvRequest::Names(names) => {
            let problems: Vec<_> = names.iter().filter_map(|it| name_refused(it, rules)).collect();
            if !problems.is_empty() {
                return Err(PolicyRefusal { problems });
            }
            selected.take(host, |name| names.iter().any(|it| it == name));
            selected.missing = names.iter().filter(|it| !host.contains_key(*it)).cloned().collect();
            selected.missing.sort();
            selected.missing.dedup();
        }
    }
    Ok(selected)
}

impl SelectedEnv {
    fn take(&mut self, host: &BTreeMap<String, Secret>, wanted: impl Fn(&str) -> bool) {
        for (name, value) in host.iter().filter(|(name, _)| wanted(name)) {
            // A process's variable contains no NUL, so this one has another origin.
            if name.len() + value.len() + 2 > MAX_VARIABLE || value.reveal().contains(&0) {
                self.too_long.push(name.clone());
            } else {
                self.values.insert(name.clone(), value.clone());
            }
        }
    }
}

fn all_refused() -> Problem {
    Problem {
        rule: "env.all",
        setting: Some("security.allow_env_all"),
        value: "all".to_owned(),
        message: "not every variable of the host may go in".to_owned(),
    }
}

fn name_refused(name: &str, rules: &EnvRules) -> Option<Problem> {
    let shown = name.escape_debug();
    let (rule, setting, message) = if !is_name(name) {
        ("env.name", None, format!("`{shown}` is no variable's name"))
    } else if rules.never.matches(name) {
        ("env.never", None, format!("`{shown}` never leaves the host"))
    } else if !rules.may_be_named(name) {
        ("env.name", Some("auto_passthrough.env_allow"), format!("`{shown}` is not among the names that may go in"))
    } else {
        return None;
    };
    Some(Problem { rule, setting, value: name.to_owned(), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(|it| (*it).to_owned()).collect()
    }

    fn rules(allow: &[&str], never: &[&str], allow_all: bool) -> EnvRules {
        EnvRules::new(&owned(DEFAULT_PATTERNS), &owned(allow), &owned(never), allow_all).unwrap()
    }

    fn host(names: &[&str]) -> BTreeMap<String, Secret> {
        names.iter().map(|it| ((*it).to_owned(), Secret::new(it.as_bytes().to_vec()))).collect()
    }

    /// Returns the selected names, or the violated rules with the refused values.
    fn check(names: &[&str], request: &EnvRequest, rules: &EnvRules) -> Result<String, Vec<String>> {
        let violations =
            |it: PolicyRefusal| it.problems.iter().map(|it| format!("{} {}", it.rule, it.value)).collect::<Vec<_>>();
        let selected = select(&host(names), request, rules).map_err(violations)?;
        Ok(selected.values.into_keys().collect::<Vec<_>>().join(" "))
    }

    /// On a build server, selects the variables that match a pattern and that no rule forbids.
    #[test]
    fn auto_selects_what_matches_and_may_leave() {
        let ci = [
            "ACTIONS_RUNTIME_TOKEN",
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            "AWS_SECRET_ACCESS_KEY",
            "CI_JOB_TOKEN",
            "CORACLE_TOKEN",
            "DB_PASSWORD",
            "DOCKER_AUTH_TOKEN",
            "GITHUB_TOKEN",
            "GIT_TOKEN",
            "HTTPS_PROXY",
            "MY_SECRET",
            "MY_SECRET_2",
            "NPM_TOKEN",
            "PODMAN_API_KEY",
            "RUNNER_TOKEN",
            "SSH_API_KEY",
            "openai_api_key",
            "no_proxy",
        ];
        let taken = "ANTHROPIC_API_KEY ANTHROPIC_BASE_URL GITHUB_TOKEN HTTPS_PROXY MY_SECRET NPM_TOKEN no_proxy";
        assert_eq!(check(&ci, &EnvRequest::Auto, &rules(&[], &[], false)).unwrap(), taken);
        let without = "ANTHROPIC_API_KEY ANTHROPIC_BASE_URL HTTPS_PROXY MY_SECRET no_proxy";
        assert_eq!(check(&ci, &EnvRequest::Auto, &rules(&[], &["*_TOKEN"], false)).unwrap(), without);
        assert_eq!(check(&ci, &EnvRequest::None, &rules(&["*_X"], &[], true)).unwrap(), "");
    }

    #[test]
    fn names_that_never_leave_are_refused_in_every_mode() {
        let names = [
            "PATH",
            "HOME",
            "_",
            "LC_ALL",
            "LD_PRELOAD",
            "BASH_FUNC_x%%",
            "ENV",
            "GIT_DIR",
            "CORACLE_STATE",
            "A=B",
            "1A",
            "EDITOR",
            "MINE",
            "MINE_TOO",
        ];
        assert_eq!(check(&names, &EnvRequest::All, &rules(&[], &["MINE"], true)).unwrap(), "EDITOR MINE_TOO");
        for name in &names[..11] {
            let request = EnvRequest::Names(owned(&[name]));
            assert!(check(&names, &request, &rules(&["[A-Z_]*", "1A"], &[], true)).is_err(), "{name}");
        }
    }

    #[test]
    fn every_refused_name_is_reported_with_its_rule() {
        let request = EnvRequest::Names(owned(&["NPM_TOKEN", "EDITOR", "PATH", "MINE_A", "a b"]));
        let refused = check(&[], &request, &rules(&["MINE_?"], &[], true)).unwrap_err();
        assert_eq!(refused, ["env.name EDITOR", "env.never PATH", "env.name a b"]);
        assert_eq!(check(&[], &EnvRequest::All, &rules(&[], &[], false)).unwrap_err(), ["env.all all"]);
    }

    #[test]
    fn names_that_the_host_lacks_and_long_values_are_reported() {
        let mut host = host(&["NPM_TOKEN"]);
        let longest = MAX_VARIABLE - "A_TOKEN".len() - 2;
        host.insert("A_TOKEN".into(), Secret::new(vec![b'x'; longest]));
        host.insert("B_TOKEN".into(), Secret::new(vec![b'x'; longest + 1]));
        let names = ["Z_TOKEN", "B_TOKEN", "A_TOKEN", "NPM_TOKEN", "C_TOKEN", "Z_TOKEN"];
        let it = select(&host, &EnvRequest::Names(owned(&names)), &rules(&[], &[], false)).unwrap();
        assert_eq!(it.values.keys().collect::<Vec<_>>(), ["A_TOKEN", "NPM_TOKEN"]);
        assert_eq!((it.missing, it.too_long), (owned(&["C_TOKEN", "Z_TOKEN"]), owned(&["B_TOKEN"])));
    }

    #[test]
    fn a_pattern_that_matches_all_or_nothing_is_an_error_of_the_configuration() {
        for bad in ["*", "**", "", "[A-", "{A,B"] {
            let patterns = owned(&["A_*", bad]);
            for (given, key) in [
                (EnvRules::new(&patterns, &[], &[], false), "auto_passthrough.env_patterns"),
                (EnvRules::new(&[], &patterns, &[], false), "auto_passthrough.env_allow"),
                (EnvRules::new(&[], &[], &patterns, false), "auto_passthrough.never"),
            ] {
                let err = given.unwrap_err();
                assert_eq!((err.key, err.pattern.as_str()), (key, bad));
            }
        }
    }
}
