//! Settings for git on the host and in containers: without foreign configuration, and without any program of the
//! repository. Pure.
//!
//! Git still reads a repository's own configuration: settings that would start programs are overridden here, except
//! filters, whose names are not known in advance ([`without_filters`]). So git on the host opens no repository that a
//! container could write to.

use std::collections::BTreeMap;

/// The side that runs a git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// On this host, without the environment of this process.
    Host,
    /// In a container, added to the guest's variables of every command.
    Inside,
}

/// The environment of every git. No protocol is allowed by default: a command that uses the network allows its
/// protocol.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("HOME", "/nonexistent"),
    ("XDG_CONFIG_HOME", "/nonexistent"),
    ("LC_ALL", "C.UTF-8"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "/bin/false"),
    ("SSH_ASKPASS", "/bin/false"),
    ("GIT_PAGER", "cat"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_PROTOCOL_FROM_USER", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_LFS_SKIP_SMUDGE", "1"),
];

/// System directories on the host; inside, the image's `PATH` is used.
const ENVIRONMENT_OF_HOST: &[(&str, &str)] = &[("PATH", "/usr/bin:/bin")];

/// Names come from a work tree and may contain any characters.
const ENVIRONMENT_INSIDE: &[(&str, &str)] = &[("GIT_LITERAL_PATHSPECS", "1")];

/// The author of Coracle's own commits.
const OURSELVES: &[(&str, &str)] = &[
    ("GIT_AUTHOR_NAME", "coracle"),
    ("GIT_AUTHOR_EMAIL", "coracle@invalid"),
    ("GIT_COMMITTER_NAME", "coracle"),
    ("GIT_COMMITTER_EMAIL", "coracle@invalid"),
];

const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.pager=cat",
    "core.editor=false",
    "core.sshCommand=false",
    "credential.helper=",
    "protocol.allow=never",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
    "commit.gpgSign=false",
    "safe.bareRepository=explicit",
    "gc.auto=0",
    "maintenance.auto=false",
];

/// Objects of servers and bundles are checked, and symbolic links of untrusted repositories are not created.
const SETTINGS_OF_HOST: &[&str] =
    &["core.symlinks=false", "http.followRedirects=false", "fetch.fsckObjects=true", "transfer.fsckObjects=true"];

/// A work tree is read unchanged, in a repository whose configuration is not trusted.
const SETTINGS_INSIDE: &[&str] =
    &["core.untrackedCache=false", "core.alternateRefsCommand=", "diff.external=", "status.renames=false"];

/// Maximum number of overridden filters. A repository with more runs the others, as its owner could at any time.
const MAX_FILTERS: usize = 1000;

/// The environment of a git process. On the host it is complete.
pub fn environment(side: Side) -> impl Iterator<Item = (&'static str, &'static str)> {
    let own = match side {
        Side::Host => ENVIRONMENT_OF_HOST,
        Side::Inside => ENVIRONMENT_INSIDE,
    };
    ENVIRONMENT.iter().chain(own).copied()
}

/// Added to [`environment`] for a git that creates commits.
pub fn as_ourselves() -> impl Iterator<Item = (&'static str, &'static str)> {
    OURSELVES.iter().copied()
}

/// Arguments of `-c`. More may follow: git uses the last value of a key.
pub fn settings(side: Side) -> impl Iterator<Item = &'static str> {
    let own = match side {
        Side::Host => SETTINGS_OF_HOST,
        Side::Inside => SETTINGS_INSIDE,
    };
    SETTINGS.iter().chain(own).copied()
}

/// The last stash, in a list of revisions. A pattern, since a plain name would mean the refs below it.
pub const STASH: &str = "--glob=refs/stas[h]";

/// Lists the keys of a repository's filters, before its work tree is read.
pub const LIST_FILTERS: &[&str] = &["config", "-z", "--name-only", "--get-regexp", r"^filter\."];

/// The environment that overrides these filters with nothing. Uses variables, since a filter's name may contain
/// characters that no option can.
#[must_use]
pub fn without_filters(keys: &[u8]) -> BTreeMap<String, String> {
    let keys = keys.split(|it| *it == 0).filter_map(|it| std::str::from_utf8(it).ok()).filter(|it| !it.is_empty());
    let mut env = BTreeMap::new();
    let mut count = 0;
    for key in keys.take(MAX_FILTERS) {
        let value = if key.ends_with(".required") { "false" } else { "" };
        env.insert(format!("GIT_CONFIG_KEY_{count}"), key.to_owned());
        env.insert(format!("GIT_CONFIG_VALUE_{count}"), value.to_owned());
        count += 1;
    }
    env.insert("GIT_CONFIG_COUNT".to_owned(), count.to_string());
    env
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn filters_are_overridden_with_nothing() {
        let env = without_filters(b"filter.a=b.clean\0filter.a=b.required\0");
        let seen =
            ["GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0", "GIT_CONFIG_VALUE_1"].map(|it| &*env[it]);
        assert_eq!(seen, ["2", "filter.a=b.clean", "", "false"]);
        assert_eq!(without_filters(b"")["GIT_CONFIG_COUNT"], "0");
    }

    #[test]
    fn the_settings_of_the_threat_model_are_set() {
        let required = "HOME=/nonexistent LC_ALL=C.UTF-8 GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 \
                     GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=/bin/false SSH_ASKPASS=/bin/false \
                     GIT_OPTIONAL_LOCKS=0 GIT_PROTOCOL_FROM_USER=0 GIT_NO_LAZY_FETCH=1 GIT_LFS_SKIP_SMUDGE=1 \
                     core.hooksPath=/dev/null core.fsmonitor=false core.attributesFile=/dev/null credential.helper= \
                     protocol.allow=never submodule.recurse=false diff.ignoreSubmodules=all \
                     safe.bareRepository=explicit gc.auto=0 core.pager=cat core.sshCommand=false commit.gpgSign=false \
                     maintenance.auto=false";
        let only_host = "PATH=/usr/bin:/bin core.symlinks=false http.followRedirects=false fetch.fsckObjects=true \
                         transfer.fsckObjects=true";
        let settings = |side| -> BTreeSet<String> {
            let env = environment(side).map(|(name, value)| format!("{name}={value}"));
            env.chain(settings(side).map(str::to_owned)).collect()
        };
        let (host, inside) = (settings(Side::Host), settings(Side::Inside));
        for word in required.split_whitespace() {
            assert!(host.contains(word) && inside.contains(word), "{word}");
        }
        for word in only_host.split_whitespace() {
            assert!(host.contains(word) && !inside.contains(word), "{word}");
        }
    }
}
