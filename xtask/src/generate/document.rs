//! What the OpenAPI document says, as far as its reference needs it.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Operations and tools, in the order in which they are documented.
#[derive(Debug)]
pub(super) struct ClientDocument {
    pub(super) callables: Vec<Callable>,
}

/// An operation or a tool.
#[derive(Debug)]
pub(super) struct Callable {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) is_tool: bool,
    /// Required ones first, of them the container.
    pub(super) fields: Vec<SchemaField>,
    pub(super) result: Value,
}

/// A property of an object.
#[derive(Clone, Debug)]
pub(super) struct SchemaField {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) schema: Value,
    pub(super) is_required: bool,
}

/// The field that most operations and tools have.
pub(super) const CONTAINER: &str = "container";

/// `copy_in` is `CopyIn`.
pub(super) fn pascal(name: &str) -> String {
    let capital = |it: &str| it[..1].to_uppercase() + &it[1..];
    name.split('_').filter(|it| !it.is_empty()).map(capital).collect()
}

impl ClientDocument {
    pub(super) fn from_value(document: &Value) -> Result<Self> {
        let schemas = &document["components"]["schemas"];
        let request = &document["paths"]["/call"]["post"]["requestBody"]["content"]["application/json"]["schema"];
        let references = request["oneOf"].as_array().context("`/call` has no list of requests")?;
        let mut callables = Vec::new();
        for reference in references {
            let request = reference["$ref"].as_str().and_then(|it| it.rsplit('/').next()).context("a reference")?;
            let name = schemas[request]["properties"]["operation"]["const"].as_str().context("an operation")?;
            callables.push(callable(schemas, name, false)?);
        }
        let paths = document["paths"].as_object().context("there are no paths")?;
        for name in paths.keys().filter_map(|it| it.strip_prefix("/tools/")) {
            callables.push(callable(schemas, name, true)?);
        }
        Ok(Self { callables })
    }
}

fn callable(schemas: &Value, name: &str, is_tool: bool) -> Result<Callable> {
    let request = &schemas[format!("{}Request", pascal(name))];
    let mut fields = fields(request);
    fields.retain(|it| is_tool || it.name != "operation");
    let result = schemas[format!("{}Result", pascal(name))].clone();
    anyhow::ensure!(request.is_object() && result.is_object(), "`{name}` has no schema");
    Ok(Callable { name: name.to_owned(), description: text(request, "description"), is_tool, fields, result })
}

/// The properties of an object: the required ones first, as they are listed.
pub(super) fn fields(schema: &Value) -> Vec<SchemaField> {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut fields: Vec<SchemaField> = properties
        .map(|(name, schema)| SchemaField {
            name: name.clone(),
            description: text(schema, "description"),
            schema: schema.clone(),
            is_required: required.contains(&name.as_str()),
        })
        .collect();
    let place = |it: &SchemaField| required.iter().position(|name| *name == it.name).unwrap_or(usize::MAX);
    fields.sort_by_key(|it| (!it.is_required, it.name != CONTAINER, place(it)));
    fields
}

/// What a value may be.
#[derive(Debug)]
pub(super) enum SchemaType<'a> {
    /// Strings, one of which it is.
    Choice(Vec<&'a str>),
    Text,
    Integer,
    Number,
    Boolean,
    Null,
    /// With the schema of its items.
    List(&'a Value),
    Object,
    Any,
}

/// The types that a schema allows.
pub(super) fn types_of(schema: &Value) -> Vec<SchemaType<'_>> {
    if let Some(variants) = ["anyOf", "oneOf"].iter().find_map(|it| schema[*it].as_array()) {
        return variants.iter().flat_map(types_of).collect();
    }
    if let Some(word) = schema["const"].as_str() {
        return vec![SchemaType::Choice(vec![word])];
    }
    if let Some(words) = schema["enum"].as_array() {
        let mut types = vec![SchemaType::Choice(words.iter().filter_map(Value::as_str).collect())];
        types.extend(words.iter().any(Value::is_null).then_some(SchemaType::Null));
        return types;
    }
    match &schema["type"] {
        Value::String(word) => vec![named(word, schema)],
        Value::Array(words) => words.iter().filter_map(Value::as_str).map(|it| named(it, schema)).collect(),
        _ => vec![SchemaType::Any],
    }
}

fn named<'a>(word: &str, schema: &'a Value) -> SchemaType<'a> {
    match word {
        "string" => SchemaType::Text,
        "integer" => SchemaType::Integer,
        "number" => SchemaType::Number,
        "boolean" => SchemaType::Boolean,
        "null" => SchemaType::Null,
        "array" => SchemaType::List(&schema["items"]),
        "object" => SchemaType::Object,
        _ => SchemaType::Any,
    }
}

fn text(schema: &Value, key: &str) -> String {
    schema[key].as_str().unwrap_or_default().replace('\n', " ")
}
