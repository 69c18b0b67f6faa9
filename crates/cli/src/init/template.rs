//! The configuration as a file of comments: every key with its meaning and its default, from the reference page.

use std::fmt::Write as _;

/// The reference of all keys.
const PAGE: &str = include_str!("../../../../docs/configuration.md");

const HEAD: &str = "\
# The configuration of Coracle. Every key is here with its default; remove the `#` before a key to change it.
# An empty file has the same effect. `coracle preflight` says whether this one can be used.
";

/// A row of the reference.
struct ConfigKey {
    name: String,
    default: String,
    meaning: String,
}

/// The text of a new configuration.
pub(super) fn configuration() -> String {
    let mut text = HEAD.to_owned();
    let mut in_table = false;
    for line in PAGE.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            if heading.starts_with('`') {
                break; // presets, which change defaults
            }
            let _ = write!(text, "\n\n# ---- {heading}\n");
        }
        in_table = line == "| key | default | meaning |" || in_table && line.starts_with('|');
        if let Some(key) = ConfigKey::parse(line).filter(|_| in_table && line.starts_with("| `")) {
            text.push_str(&key.lines());
        }
    }
    text
}

impl ConfigKey {
    fn parse(line: &str) -> Option<Self> {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.splitn(3, " | ");
        let (name, default, meaning) = (cells.next()?, cells.next()?, cells.next()?);
        Some(Self { name: name.replace('`', ""), default: default.to_owned(), meaning: plain(meaning) })
    }

    fn lines(&self) -> String {
        let Self { name, default, meaning } = self;
        let is_pattern = name.contains(['*', '<']) || name.split('.').any(|it| it == "NAME");
        match self.value() {
            Some(value) if !is_pattern => format!("\n# {meaning}\n#{name} = {value}\n"),
            _ if is_pattern => format!("\n# {name}: {meaning} (default: {})\n", plain(default)),
            _ => format!("\n# {meaning} (default: {})\n#{name} =\n", plain(default)),
        }
    }

    /// The default as it stands in a file, if it is a value at all. Sizes and durations are texts there.
    fn value(&self) -> Option<String> {
        let text = self.default.replace('`', "");
        let is_value = |it: &str| toml::from_str::<toml::Table>(&format!("x = {it}\n")).is_ok();
        let is_amount =
            text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_alphanumeric());
        match () {
            () if is_value(&text) => Some(text),
            () if is_amount => Some(format!("\"{text}\"")),
            () => None,
        }
    }
}

/// A text of the page without its links and code marks.
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
    use coracle::config::Config;

    use super::{configuration, plain};

    /// With every key that has a value.
    fn uncommented() -> String {
        let is_key = |it: &&str| it.starts_with('#') && !it.starts_with("# ") && !it.ends_with('=');
        configuration().lines().filter(is_key).map(|it| format!("{}\n", &it[1..])).collect()
    }

    #[test]
    fn every_default_of_the_file_is_the_programs_own() {
        let text = uncommented();
        assert!(text.lines().count() > 100, "{text}");
        assert_eq!(Config::read(&text, false).unwrap(), Config::default());
    }

    #[test]
    fn the_file_as_it_is_written_changes_nothing() {
        assert_eq!(Config::read(&configuration(), false).unwrap(), Config::default());
        assert!(configuration().contains("\n# default time of a command\n#exec.timeout = 300\n"));
        assert!(configuration().contains("\n#security.memory_limit = \"4g\"\n"));
    }

    #[test]
    fn links_are_words() {
        assert_eq!(plain("a [`b` c](x.md#y) and [\"*\"]"), "a b c and [\"*\"]");
    }
}
