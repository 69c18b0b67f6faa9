//! Finds the operation of a call, and checks which fields belong to it.

use std::cell::LazyCell;

use coracle_context::failure::{Code, Failure};
use serde_json::{Map, Value};

use super::OperationEntry;
use super::deserialize::{Problem, Problems};
use crate::schema::Arguments;

/// The operation or tool that is called.
#[derive(Clone, Copy)]
struct Callee<'a> {
    name: &'a str,
    fields: &'a Arguments,
}

/// Removes `operation` from the object and returns its entry.
pub(super) fn operation(table: &[OperationEntry], object: &mut Map<String, Value>) -> Result<OperationEntry, Failure> {
    let names: Vec<String> = table.iter().map(|it| it.name.to_owned()).collect();
    let all = || format!("one of {}", names.join(", "));
    let word = match object.remove("operation") {
        Some(Value::String(word)) => word,
        None | Some(Value::Null) => {
            return Err(Failure::new(Code::MissingField, "required: `operation`")
                .detail("fields", ["operation"])
                .hint(format!("add `operation`: {}", all())));
        }
        Some(_) => return Err(Failure::invalid("operation", "it is not a string").hint(all())),
    };
    table.iter().find(|it| it.name == word).copied().ok_or_else(|| {
        let shown: String = word.chars().take(64).collect();
        let hint = match nearest(&word, &names) {
            Some(near) => format!("did you mean `{near}`? There are {}", names.join(", ")),
            None => all(),
        };
        Failure::new(Code::UnknownOperation, format!("no operation `{}`", shown.escape_debug()))
            .detail("name", shown)
            .detail("known", &names)
            .hint(hint)
    })
}

/// Returns the operation's own fields, and a problem for each unknown or missing one.
pub(super) fn own_fields(
    table: &[OperationEntry],
    entry: &OperationEntry,
    object: Map<String, Value>,
) -> (Map<String, Value>, Problems) {
    let known = entry.arguments();
    // Computed only for an unknown field; most calls have none.
    let others = LazyCell::new(|| -> Vec<(&str, Arguments)> {
        table.iter().filter(|it| it.name != entry.name).map(|it| (it.name, it.arguments())).collect()
    });
    let callee = Callee { name: entry.name, fields: &known };
    split_known(callee, object, |name, value| unknown_field(callee, &others, name, value))
}

/// Like [`own_fields`], for a separate tool: fields of other operations are unknown, and a field may have aliases.
pub(crate) fn tool_fields(entry: &OperationEntry, mut object: Map<String, Value>) -> (Map<String, Value>, Problems) {
    let (known, aliases) = (entry.arguments(), entry.aliases);
    let is_alias = |it: &str| aliases.iter().any(|alias| alias.name == it);
    let names: Vec<String> = object.keys().filter(|it| is_alias(it)).cloned().collect();
    let given = names.into_iter().filter_map(|name| object.remove_entry(&name).filter(|(_, value)| !value.is_null()));
    let given: Map<String, Value> = given.collect();
    let callee = Callee { name: entry.name, fields: &known };
    let (mut args, mut problems) = split_known(callee, object, |name, value| unknown_field(callee, &[], name, value));
    // The tool itself reads the alias, so its field is not missing.
    let stands_in = |field: &str| aliases.iter().any(|it| it.of == field && given.contains_key(it.name));
    problems.retain(|it| it.code != Code::MissingField || !stands_in(&it.field));
    args.extend(given);
    (args, problems)
}

fn split_known(
    callee: Callee<'_>,
    object: Map<String, Value>,
    unknown_field: impl Fn(&str, &Value) -> Option<Problem>,
) -> (Map<String, Value>, Problems) {
    let (mut args, mut problems) = (Map::new(), Vec::new());
    for (name, value) in object {
        if callee.fields.properties.contains_key(&name) {
            if !value.is_null() {
                args.insert(name, value);
            }
        } else if let Some(problem) = unknown_field(&name, &value) {
            problems.push(problem);
        }
    }
    let absent = callee.fields.required.iter().filter(|it| !args.contains_key(*it));
    problems.extend(absent.map(|it| Problem {
        hint: Some(format!("`{}` needs it", callee.name)),
        ..Problem::new(it, Code::MissingField, "is required")
    }));
    (args, problems)
}

/// The problem of a field that the operation does not have. Models fill in all fields of the flat schema, so another
/// operation's field is ignored if it is null or has its default value.
fn unknown_field(callee: Callee<'_>, others: &[(&str, Arguments)], name: &str, value: &Value) -> Option<Problem> {
    let holders: Vec<&(&str, Arguments)> = others.iter().filter(|(_, it)| it.properties.contains_key(name)).collect();
    if holders.iter().any(|(_, it)| value.is_null() || it.is_default(name, value)) {
        return None;
    }
    let shown: String = name.chars().take(64).collect();
    let message = format!("`{}` has no field `{}`", callee.name, shown.escape_debug());
    let names: Vec<String> = callee.fields.properties.keys().cloned().collect();
    let hint = match (nearest(name, &names), holders.first()) {
        (_, Some((holder, _))) => format!("leave it out; it belongs to `{holder}`"),
        (Some(near), None) => format!("did you mean `{near}`?"),
        (None, None) if names.is_empty() => format!("`{}` takes no fields", callee.name),
        (None, None) => format!("its fields are {}", names.join(", ")),
    };
    Some(Problem { hint: Some(hint), known: Some(names), ..Problem::new(&shown, Code::UnknownField, message) })
}

/// The most similar name, if one is similar enough.
fn nearest<'a>(word: &str, words: &'a [String]) -> Option<&'a str> {
    let word: String = word.chars().take(64).collect();
    let scored = words.iter().map(|it| (strsim::jaro_winkler(&word, it), it.as_str()));
    scored.filter(|(score, _)| *score > 0.85).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, it)| it)
}
