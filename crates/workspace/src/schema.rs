//! What arguments look like to a model, in the words of JSON Schema that all of them take.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// What a type looks like.
#[must_use]
pub fn json_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|it| {
        it.inline_subschemas = true;
        it.meta_schema = None;
    });
    let mut schema = Value::from(settings.into_generator().into_root_schema_for::<T>());
    without_formats(&mut schema);
    schema
}

/// What a type looks like where it is written: what is always there is required, and `null` is named.
#[must_use]
pub fn result_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|it| {
        it.inline_subschemas = true;
        it.meta_schema = None;
    });
    let mut schema = Value::from(settings.into_generator().into_root_schema_for::<T>());
    without_formats(&mut schema);
    schema
}

/// The same without details that have no meaning for a model.
#[must_use]
pub fn tidied<T: JsonSchema>() -> Value {
    let mut schema = json_schema::<T>();
    simplify(&mut schema);
    schema
}

/// What Rust calls its numbers (`uint64`) is no format of JSON Schema, and clients complain of each.
fn without_formats(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("format").and_then(Value::as_str).is_some_and(|it| it.contains("int")) {
                fields.remove("format");
            }
            fields.values_mut().for_each(without_formats);
        }
        Value::Array(several) => several.iter_mut().for_each(without_formats),
        _ => {}
    }
}

/// `null` means absent everywhere, so no type has to name it; widths of integers are noise.
fn simplify(schema: &mut Value) {
    let Value::Object(fields) = schema else {
        if let Value::Array(items) = schema {
            items.iter_mut().for_each(simplify);
        }
        return;
    };
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|it| it != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            fields.insert("type".into(), one);
        }
    }
    if let Some(Value::Array(values)) = fields.get_mut("enum") {
        values.retain(|it| !it.is_null());
    }
    if fields.get("default").is_some_and(Value::is_null) {
        fields.remove("default");
    }
    one_of_two(fields);
    choices(fields);
    let numeric = fields.get("type").is_some_and(|it| it == "integer" || it == "number");
    if numeric {
        fields.remove("format");
    }
    if let Some(description) = fields.get_mut("description").filter(|it| it.is_string()) {
        *description = description.as_str().unwrap_or_default().replace('\n', " ").into();
    }
    fields.values_mut().for_each(simplify);
}

/// `anyOf: [X, null]` is an optional X.
fn one_of_two(fields: &mut Map<String, Value>) {
    let Some(Value::Array(mut variants)) = fields.remove("anyOf") else { return };
    variants.retain(|it| it != &json!({ "type": "null" }));
    match variants.as_slice() {
        [Value::Object(only)] => {
            for (name, value) in only.clone() {
                fields.entry(name).or_insert(value);
            }
        }
        _ => drop(fields.insert("anyOf".into(), variants.into())),
    }
}

/// Documented variants of an enum come as `oneOf` constants: they become one list, and their words the description's.
fn choices(fields: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = fields.get("oneOf") else { return };
    let words: Option<Vec<Value>> = variants.iter().map(|it| it.get("const").cloned()).collect();
    let Some(words) = words else { return };
    let constraints =
        variants.iter().filter_map(|it| Some(format!("`{}`: {}", it["const"].as_str()?, it["description"].as_str()?)));
    let constraints = constraints.collect::<Vec<_>>().join(" ");
    let own = fields.get("description").and_then(Value::as_str).unwrap_or_default();
    let description = format!("{own} {constraints}").trim().to_owned();
    fields.remove("oneOf");
    fields.insert("type".into(), "string".into());
    fields.insert("enum".into(), words.into());
    fields.insert("description".into(), description.into());
}
