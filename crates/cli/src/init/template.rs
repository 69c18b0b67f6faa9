//! The configuration as a commented file: every key with its meaning and default, from the reference page.

use std::fmt::Write as _;

/// The reference of all keys.
const PAGE: &str = include_str!("../../docs/configuration.md");

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

    /// The default in the form of the file, if it is a value. Sizes and durations are strings there.
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
    use std::collections::BTreeSet;

    use coracle_context::config::Config;

    use super::{PAGE, configuration, plain};

    /// The file with every key that has a value.
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
        assert!(configuration().contains("\n# default time of a command; at a terminal"));
        assert!(configuration().contains("\n#exec.timeout = 300\n"));
        assert!(configuration().contains("\n#security.memory_limit = \"4g\"\n"));
    }

    /// Collects the keys below a table, which the error of an unknown key lists.
    fn keys_below(table: &str, keys: &mut BTreeSet<String>) {
        let path = if table.is_empty() { "zzz".to_owned() } else { format!("{table}.zzz") };
        let fault = Config::read(&format!("{path} = 1\n"), false).unwrap_err().into_inner().message;
        let known = fault.split_once("expected one of ").or_else(|| fault.split_once("expected "));
        // The page has one key for an object.
        match known.filter(|_| fault.contains("unknown field `zzz`") && table != "run_code.preload") {
            Some((_, known)) => {
                for key in known.split('`').skip(1).step_by(2) {
                    keys_below(&if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }, keys);
                }
            }
            // A table with any names contains tables.
            None if table == "sandbox.profiles" => keys_below(&format!("{table}.name"), keys),
            None => drop(keys.insert(table.replace(".name.", ".NAME."))),
        }
    }

    /// The keys of a page's tables with that header, with a prefix.
    fn keys_of(page: &str, header: &str, prefix: &str) -> BTreeSet<String> {
        let mut in_table = false;
        let rows = page.lines().filter(|line| {
            in_table = *line == header || in_table && line.starts_with('|');
            in_table && line.starts_with("| `")
        });
        let keys = rows.flat_map(|line| line.split(" | ").next().unwrap_or_default().split('`').skip(1).step_by(2));
        keys.map(|it| format!("{prefix}{it}")).collect()
    }

    #[test]
    fn the_reference_has_every_key_of_the_program_and_no_other() {
        let mut program = BTreeSet::new();
        keys_below("", &mut program);
        assert!(program.len() > 150, "{program:?}");
        // The keys of purposes are on another page.
        program.remove("profiles");
        let mut page = keys_of(PAGE, "| key | default | meaning |", "");
        page.retain(|it| !it.starts_with("profiles.") && it != "kubernetes.*");
        let cluster = include_str!("../../docs/kubernetes.md");
        page.extend(keys_of(cluster, "| key of `kubernetes.*` | default | meaning |", "kubernetes."));
        let missing: Vec<_> = program.difference(&page).collect();
        let unknown: Vec<_> = page.difference(&program).collect();
        assert!(missing.is_empty() && unknown.is_empty(), "not on the page: {missing:?}; only there: {unknown:?}");
    }

    #[test]
    fn links_are_words() {
        assert_eq!(plain("a [`b` c](x.md#y) and [\"*\"]"), "a b c and [\"*\"]");
    }
}
