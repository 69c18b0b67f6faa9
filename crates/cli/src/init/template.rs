//! The configuration as a commented file: every key with its meaning and default.

use coracle_context::config::{Config, Key};

const HEAD: &str = "\
# The configuration of Coracle. Every key is here with its default; remove the `#` before a key to change it.
# An empty file has the same effect. `coracle preflight` says whether this one can be used.
";

/// The settings of a proxy for all containers.
const PROXY: [(&str, &str); 2] = [
    ("security.network", "\"proxy\""),
    ("security.egress.allow", "[\"npm\", \"pypi\", \"crates\", \"go\", \"debian\", \"github\"]"),
];

/// The text of a new configuration.
pub(super) fn configuration(proxy: bool) -> String {
    let mut text = HEAD.to_owned();
    let mut table = "";
    let keys = Config::keys();
    for key in &keys {
        let own = key.name.split_once('.').map_or("", |it| it.0);
        if own != table {
            text += &format!("\n\n# ---- {own}\n");
            table = own;
        }
        text += &match PROXY.iter().find(|it| proxy && it.0 == key.name) {
            Some((name, value)) => format!("\n# {}\n{name} = {value}\n", plain(&key.meaning)),
            None => lines(key),
        };
    }
    text
}

fn lines(key: &Key) -> String {
    let Key { name, value, .. } = key;
    let (meaning, default) = (plain(&key.meaning), plain(&key.default));
    match value {
        // Not a key that can be set as it is.
        _ if name.contains("NAME") => format!("\n# {name}: {meaning} (default: {default})\n"),
        Some(value) => format!("\n# {meaning}\n#{name} = {value}\n"),
        None => format!("\n# {meaning} (default: {default})\n#{name} =\n"),
    }
}

/// Removes links and code marks.
fn plain(text: &str) -> String {
    let mut parts = text.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    let plain = parts.fold(first, |plain, part| {
        match part.split_once("](").and_then(|(words, rest)| Some((words, rest.split_once(')')?.1))) {
            Some((words, rest)) => plain + words + rest,
            None => plain + "[" + part,
        }
    });
    plain.replace('`', "")
}

#[cfg(test)]
mod tests {
    use coracle_context::config::{Config, NetworkGrant};

    use super::{configuration, plain};

    /// The file with every key that has a value.
    fn uncommented() -> String {
        let is_key = |it: &&str| it.starts_with('#') && !it.starts_with("# ") && !it.ends_with('=');
        configuration(false).lines().filter(is_key).map(|it| format!("{}\n", &it[1..])).collect()
    }

    #[test]
    fn every_default_of_the_file_is_the_programs_own() {
        let text = uncommented();
        assert!(text.lines().count() > 100, "{text}");
        assert_eq!(Config::read(&text, false).unwrap(), Config::default());
    }

    #[test]
    fn the_file_as_it_is_written_changes_nothing() {
        assert_eq!(Config::read(&configuration(false), false).unwrap(), Config::default());
        assert!(configuration(false).contains("\n# default time of a command; at a terminal"));
        assert!(configuration(false).contains("\n#exec.timeout = 300\n"));
        assert!(configuration(false).contains("\n#security.memory_limit = \"4g\"\n"));
    }

    #[test]
    fn the_proxy_is_the_only_setting_that_it_adds() {
        let text = configuration(true);
        let read = Config::read(&text, false).unwrap();
        assert_eq!((read.security.network, read.security.egress.allow.len()), (NetworkGrant::Proxy, 6));
        assert_eq!(text.lines().filter(|it| !it.is_empty() && !it.starts_with('#')).count(), 2, "{text}");
    }

    #[test]
    fn links_are_words() {
        assert_eq!(plain("a [`b` c](x.md#y) and [\"*\"]"), "a b c and [\"*\"]");
    }
}
