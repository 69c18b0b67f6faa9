//! Invalid values: messages use the words of a call, not of the parser.

use serde_json::{Map, Value, json};

use super::mcp::Client;
use super::without_engine;

/// Words of the parser and its types, which no message may contain.
const FOREIGN: [&str; 16] = [
    "struct ",
    "enum ",
    "u8",
    "u16",
    "u32",
    "u64",
    "usize",
    "i64",
    "f64",
    "invalid type",
    "invalid value",
    "invalid length",
    "variant",
    "a sequence",
    "a map",
    "Arg`",
];

fn wrong() -> Vec<Value> {
    vec![
        json!(7),
        json!(-1),
        json!(1.5),
        json!(true),
        json!("no such thing"),
        json!([7]),
        json!([{}]),
        json!([{ "x": 1 }]),
        json!([["x"]]),
        json!({ "x": 7 }),
        json!({ "x": { "y": [] } }),
        json!(70_000),
    ]
}

fn check(call: &Value, reported: &str) {
    let found = FOREIGN.iter().find(|it| reported.contains(**it));
    assert_eq!(found, None, "{call}: {reported}");
}

/// A text for each field that has to be there.
fn required(schema: &Value) -> Map<String, Value> {
    let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.map(|it| (it.to_owned(), json!("x"))).collect()
}

/// The first operation that has a field, by the field's description.
fn holder(field: &Value) -> Option<String> {
    let (_, users) = field["description"].as_str()?.rsplit_once('[')?;
    Some(users.split([',', ' ', ']']).next()?.to_owned())
}

/// Whether a value has the type of its field: a call with it could create a container.
fn fits(field: &Value, value: &Value) -> bool {
    let kind = match value {
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) | Value::Null => "object",
    };
    field["type"].to_string().contains(kind)
}

#[tokio::test]
async fn no_message_names_a_type_of_the_program() {
    without_engine("", async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })).await;
        let listed = client.answer().await["result"]["tools"].take();
        let mut refused = 0;
        for listed in listed.as_array().unwrap() {
            let (name, schema) = (listed["name"].as_str().unwrap(), &listed["inputSchema"]);
            for (at, (field, described)) in schema["properties"].as_object().unwrap().iter().enumerate() {
                // Every fifth value for each field, and all of them for five fields, to save time.
                for value in wrong().into_iter().skip(at % 5).step_by(5) {
                    let mut call = required(schema);
                    if name == "containers" {
                        let Some(operation) = holder(described) else { continue };
                        // The call is refused in any case.
                        call = json!({ "operation": operation, "no_such_field": 1 }).as_object().unwrap().clone();
                    } else if fits(described, &value) {
                        continue;
                    }
                    call.insert(field.clone(), value);
                    let call = Value::Object(call);
                    let result = client.result(name, &call).await;
                    let answer = &result["structuredContent"];
                    if answer["code"] == "invalid_input" {
                        refused += 1;
                    }
                    check(&call, &format!("{} {}", answer["message"], answer["details"]["problems"]));
                }
            }
        }
        assert!(refused > 100, "{refused}");
    })
    .await;
}

#[tokio::test]
async fn a_message_says_where_what_was_given_and_what_is_expected() {
    without_engine("", async |tool| {
        for (call, reported) in [
            (json!({ "ports": ["web"] }), "`ports[0]`: `\"web\"` was given; expected a port such as `8080`"),
            (json!({ "mounts": [7] }), "`mounts[0]`: `7` was given; expected a mount such as `\"../data:/data\"`"),
            (json!({ "pids_limit": "many" }), "`pids_limit`: `\"many\"` was given; expected a whole number from 0 to"),
            (json!({ "gpu": "yes" }), "`gpu`: `\"yes\"` was given; expected `true` or `false`"),
            (
                json!({ "packages": "git" }),
                "`packages`: `\"git\"` was given; expected a list of strings, such as `[\"text\"]`",
            ),
            (json!({ "pull": "often" }), "`pull`: `\"often\"` was given; expected one of `missing`, `always`, `never`"),
            (json!({ "mounts": [{ "host": "/a" }] }), "`mounts[0]`: `container` is missing; expected"),
            (
                json!({ "ports": [{ "container": 70_000 }] }),
                "`ports[0].container`: `70000` was given; expected a whole number",
            ),
            (json!({ "env": "A" }), "`env`: a string was given; expected names and values such as"),
        ] {
            let mut whole = call.clone();
            whole["operation"] = "create".into();
            let answer = tool.call(whole).await;
            assert_eq!(answer["code"], "invalid_input", "{call}: {answer:#}");
            assert!(answer["message"].as_str().unwrap().starts_with(reported), "{call}: {}", answer["message"]);
        }
        let unknown = json!({ "operation": "create", "ports": [{ "contaner": 80 }] });
        let answer = tool.call(unknown).await;
        assert_eq!(answer["code"], "unknown_field", "{answer:#}");
        assert!(answer["hint"].as_str().unwrap().contains("`container`"), "{answer:#}");
    })
    .await;
}
