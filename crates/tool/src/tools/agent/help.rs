//! The operations behind `containers`, as a model reads them when it asks.
//!
//! A model pays for what it asks for: descriptions are cut after their first sentence, and a field's type is one word.

use coracle_context::config::Toolset;
use coracle_context::failure::{Code, Failure};
use coracle_context::suggest;
use serde_json::Value;

use crate::dispatch::OperationEntry;
use crate::operations;
use crate::schema::Arguments;

/// The operation that answers this.
pub(super) const NAME: &str = "help";

/// Names of all operations, this one first.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    [NAME].into_iter().chain(all().map(|it| it.name))
}

/// The operation of that name.
pub(super) fn find(name: &str) -> Result<&'static OperationEntry, Failure> {
    all().find(|it| it.name == name).ok_or_else(|| {
        let names: Vec<String> = names().map(str::to_owned).collect();
        let list = format!("there are {}", names.join(", "));
        Failure::new(Code::UnknownOperation, format!("no operation `{}`", name.escape_debug()))
            .detail("known", &names)
            .hint(suggest::hint(name, &names, &list))
    })
}

/// What a call for help has beside the operation that it is about.
pub(super) fn unknown_field(name: &str) -> Failure {
    Failure::new(Code::UnknownField, format!("`{NAME}` has no field `{}`", name.escape_debug()))
        .hint("name an operation in `about`, or leave it out for the list of all")
}

/// The list of operations, or the fields of one.
///
/// # Errors
/// `unknown_operation`.
pub(super) fn about(name: Option<&str>) -> Result<String, Failure> {
    Ok(match name {
        None => {
            let line =
                |it: &OperationEntry| format!("{}: {}", it.name, first_clause(&it.arguments().description, CLAUSES));
            [ABOUT_CONTAINER.to_owned()].into_iter().chain(all().map(line)).collect::<Vec<_>>().join("\n")
        }
        Some(name) => fields_of(find(name)?),
    })
}

/// What the help of each operation leaves out.
const ABOUT_CONTAINER: &str = "`container` is your machine unless you name another one.";

/// Operations whose fields others take over, by name.
const BASES: &[&str] = &["create", "exec"];

/// From so many fields of another operation on they are referred to.
const MANY: usize = 4;

/// Operations on containers, and workflows.
fn all() -> impl Iterator<Item = &'static OperationEntry> {
    let workflows = super::super::ALL.iter().filter(|it| it.sets == [Toolset::Worktrees]);
    operations::ALL.iter().chain(workflows)
}

fn fields_of(entry: &OperationEntry) -> String {
    let mut arguments = entry.arguments();
    arguments.properties.remove("container");
    // The list has the rest.
    let listed = first_clause(&arguments.description, CLAUSES).len();
    let more = arguments.description[listed..].trim_start_matches(['.', ':', ';', ',', ' ']);
    let description = format!("{}: {more}", entry.name);
    let shared = shared(entry, &mut arguments);
    let fields = arguments.properties.iter().map(|(name, schema)| {
        format!(
            "  {name}{}: {}",
            kind(schema, arguments.required.contains(name)),
            first_clause(description_of(schema), DETAILS)
        )
    });
    [description].into_iter().chain(fields).chain(shared).collect::<Vec<_>>().join("\n")
}

/// Takes out the fields that another operation has as well, and refers to them.
fn shared(entry: &OperationEntry, arguments: &mut Arguments) -> Option<String> {
    let base = operations::ALL.iter().find(|base| {
        let fields = base.arguments().properties;
        let same = |it: &(&String, &Value)| fields.get(it.0) == Some(it.1);
        base.name != entry.name
            && BASES.contains(&base.name)
            && arguments.properties.iter().filter(same).count() >= MANY
    })?;
    let fields = base.arguments().properties;
    let (same, own) = arguments.properties.clone().into_iter().partition(|(name, it)| fields.get(name) == Some(it));
    arguments.properties = own;
    let all = fields.keys().filter(|it| *it != "container").count();
    let same: serde_json::Map<String, Value> = same;
    let lacks: Vec<&str> =
        fields.keys().filter(|it| !same.contains_key(*it) && *it != "container").map(String::as_str).collect();
    Some(match lacks.len() * 2 < all {
        true => format!("  and the fields of `{}` but {}", base.name, lacks.join(", ")),
        false => format!("  as `{}`: {}", base.name, same.keys().map(String::as_str).collect::<Vec<_>>().join(", ")),
    })
}

fn description_of(schema: &Value) -> &str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// The type of a field, if it is not simply an optional string.
fn kind(schema: &Value, is_required: bool) -> String {
    let one = |it: &Value| match it.as_str().unwrap_or_default() {
        "integer" | "number" => "number".to_owned(),
        "boolean" => "bool".to_owned(),
        "array" => "list".to_owned(),
        other => other.to_owned(),
    };
    let words = schema.get("enum").and_then(Value::as_array);
    let kind = match (words, schema.get("type")) {
        (Some(words), _) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
        (None, Some(Value::Array(several))) => several.iter().map(one).collect::<Vec<_>>().join("|"),
        (None, Some(it)) if it != "string" => one(it),
        _ => String::new(),
    };
    let default = schema.get("default").filter(|it| **it != Value::Bool(false));
    let default = default.map(|it| format!("default {}", it.to_string().trim_matches('"')));
    let required = is_required.then(|| "required".to_owned());
    let parts: Vec<String> = [kind].into_iter().filter(|it| !it.is_empty()).chain(required).chain(default).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// The place in a description where details begin.
const DETAILS: &[&str] = &[". ", ": ", "; ", " ("];

/// Where the description of an operation does.
const CLAUSES: &[&str] = &[". ", ": ", "; ", ", "];

/// Bytes that a clause has at least.
const SHORTEST: usize = 12;

/// The description without its details.
fn first_clause<'a>(text: &'a str, ends: &[&str]) -> &'a str {
    let end = ends.iter().filter_map(|it| text.get(SHORTEST..)?.find(it)).min();
    end.map_or(text, |at| &text[..SHORTEST + at]).trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::{about, find, names};

    #[test]
    fn help_lists_the_operations_and_shows_the_fields_of_one() {
        let list = about(None).unwrap();
        assert_eq!(list.lines().count(), names().count());
        assert!(list.contains("\nfork: Make a container from another one as its files are now\n"), "{list}");
        let job_wait = about(Some("job_wait")).unwrap();
        assert!(job_wait.contains("\n  job_id (required): The job"), "{job_wait}");
        assert!(job_wait.contains("\n  idle (number|string): "), "{job_wait}");
    }

    #[test]
    fn fields_of_another_operation_are_referred_to() {
        let fork = about(Some("fork")).unwrap();
        assert!(
            fork.ends_with(
                "\n  and the fields of `create` but cache_bust, devcontainer, image, packages, pull, repo_url"
            ),
            "{fork}"
        );
        let background = about(Some("exec_background")).unwrap();
        assert!(
            background.ends_with("\n  and the fields of `exec` but encoding, max_output, on_timeout, timeout"),
            "{background}"
        );
    }

    #[test]
    fn an_operation_that_there_is_not_is_suggested() {
        let failure = find("snapshoot").unwrap_err();
        assert_eq!(failure.code.word(), "unknown_operation");
        assert!(failure.hint.as_deref().unwrap().starts_with("did you mean `snapshot`?"), "{failure:?}");
    }
}
