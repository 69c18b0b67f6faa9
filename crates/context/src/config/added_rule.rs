//! Adds a rule to the text of a configuration file, and changes nothing else in it.

use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value};

use super::Config;
use crate::failure::Failure;

/// Returns the text with one more value in a list such as `security.egress.allow`. Tables and the list are added where
/// they are missing.
///
/// # Errors
/// `config_invalid` if the text is no valid configuration, before or after.
pub fn with_rule(text: &str, setting: &str, rule: &str) -> Result<String, Failure> {
    let invalid = |message: String| Failure::config(setting, None, message);
    let mut document: DocumentMut = text.parse().map_err(|err: toml_edit::TomlError| invalid(err.to_string()))?;
    let (tables, name) = setting.rsplit_once('.').ok_or_else(|| invalid("it is not in a table".to_owned()))?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    let count = tables.split('.').count();
    for (at, key) in tables.split('.').enumerate() {
        let mut new = Table::new();
        new.set_implicit(at + 1 < count);
        let item = table.entry(key).or_insert(Item::Table(new));
        table = item.as_table_like_mut().ok_or_else(|| invalid(format!("`{key}` is not a table")))?;
    }
    let list = table.entry(name).or_insert(Array::new().into()).as_array_mut();
    let list = list.ok_or_else(|| invalid("it is not a list".to_owned()))?;
    if list.iter().all(|it| it.as_str() != Some(rule)) {
        let mut value = Value::from(rule);
        // In a list with a line for each value, the new one gets a line, too.
        let last = list.iter().last().and_then(|it| it.decor().prefix()?.as_str()?.rsplit_once('\n'));
        match last.map(|(_, indent)| indent.to_owned()) {
            Some(indent) => {
                // A comment behind the last comma is about the value before it.
                let comment = list.trailing().as_str().unwrap_or_default().trim_end().to_owned();
                value.decor_mut().set_prefix(format!("{comment}\n{indent}"));
                list.push_formatted(value);
                list.set_trailing("\n");
            }
            None => list.push(value),
        }
    }
    let text = document.to_string();
    Config::read(&text, false)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::with_rule;

    #[test]
    fn a_rule_is_added_where_it_belongs_and_all_else_stays() {
        let rule = |text: &str| with_rule(text, "security.egress.allow", "GET api.example.com/x").unwrap();
        assert_snapshot!(rule(""), @r#"
        [security.egress]
        allow = ["GET api.example.com/x"]
        "#);
        let text = "# mine\nengine = \"docker\"\n\n[security]\nnetwork = \"proxy\" # all\n[security.egress]\n\
                    allow = [\n    \"pypi\", # packages\n    \"npm\", # scripts\n]\n\n[secrets.MY_KEY]\nhosts = [\"a.example\"]\n";
        let added = rule(text);
        assert_snapshot!(added, @r#"
        # mine
        engine = "docker"

        [security]
        network = "proxy" # all
        [security.egress]
        allow = [
            "pypi", # packages
            "npm", # scripts
            "GET api.example.com/x",
        ]

        [secrets.MY_KEY]
        hosts = ["a.example"]
        "#);
        assert_eq!(rule(&added), added, "it is there already");
        assert_snapshot!(rule("security = { egress = { allow = [\"pypi\"] } }\n"), @r#"security = { egress = { allow = ["pypi", "GET api.example.com/x"] } }"#);
        assert_snapshot!(rule("[security]\negress.allow = ['pypi']\n"), @r#"
        [security]
        egress.allow = ['pypi', "GET api.example.com/x"]
        "#);
    }

    #[test]
    fn a_configuration_with_a_mistake_is_not_changed() {
        for text in ["security = 1", "[security", "unknown_key = 1", "[security.egress]\nallow = \"pypi\""] {
            assert!(with_rule(text, "security.egress.allow", "a.example").is_err(), "{text}");
        }
    }
}
