//! The `env` of a call.

use std::collections::BTreeMap;

use coracle_context::failure::{Code, Failure};
use serde_json::Value;

/// Parts of a variable's name that mark its value as secret.
const SECRET_WORDS: &[&str] = &["KEY", "TOKEN", "SECRET", "PASS", "CRED", "AUTH"];

/// The kernel takes no variable above 128 KiB, its name, `=` and the NUL at its end included.
const MAX_VARIABLE: usize = 128 << 10;

/// Maximum length of one argument of an engine's program, with room for what is in the same argument.
const MAX_PLAIN: usize = 90 << 10;

const MAX_ALL: usize = 1 << 20;

/// Validates names and values. Numbers and booleans are written as in JSON, and `null` leaves a name unset.
pub fn resolve(variables: &Option<BTreeMap<String, Value>>) -> Result<BTreeMap<String, String>, Failure> {
    let mut env = BTreeMap::new();
    for (name, value) in variables.iter().flatten() {
        let value = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => return Err(Failure::invalid("env", format!("the value of `{}` is no text", name.escape_debug()))),
        };
        check(name, &value)?;
        env.insert(name.clone(), value);
    }
    let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MAX_ALL {
        return Err(Failure::invalid("env", "all variables together are longer than 1 MiB"));
    }
    Ok(env)
}

fn check(name: &str, value: &str) -> Result<(), Failure> {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !begins || name.len() > 256 || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        let grammar = "letters, digits and `_`, first no digit, at most 256";
        return Err(Failure::invalid("env", format!("`{}` is no variable's name: {grammar}", name.escape_debug())));
    }
    if name.starts_with("CORACLE_") {
        return Err(Failure::invalid("env", format!("`{name}`: names beginning with `CORACLE_` are reserved")));
    }
    if name.len() + value.len() + 2 > MAX_VARIABLE {
        return Err(Failure::invalid("env", format!("`{name}` is longer than 128 KiB")));
    }
    Ok(())
}

/// Fails for variables that a container without a guest cannot get: secrets, which would be visible in the arguments of
/// the engine's program, and values that are too long for an argument.
pub fn no_secret(env: &BTreeMap<String, String>, hint: &str) -> Result<(), Failure> {
    if let Some((name, _)) = env.iter().find(|it| it.1.len() > MAX_PLAIN) {
        let message = format!("`{name}` is longer than 90 KiB, which a container without a guest cannot take");
        return Err(Failure::new(Code::Unsupported, message).detail("capability", "guest").detail("field", "env"));
    }
    let secret = |name: &&String| {
        let upper = name.to_ascii_uppercase();
        SECRET_WORDS.iter().any(|it| upper.contains(it))
    };
    let Some(name) = env.keys().find(secret) else { return Ok(()) };
    let message = format!("`{name}` has the name of a secret, which cannot be passed securely here");
    Err(Failure::new(Code::Unsupported, message).detail("capability", "guest").detail("field", "env").hint(hint))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{no_secret, resolve};

    fn check(env: serde_json::Value) -> Result<String, String> {
        let env = serde_json::from_value(env).unwrap();
        let message = |it: coracle_context::failure::Failure| format!("{}: {}", it.code.word(), it.message);
        let env = resolve(&Some(env)).and_then(|it| no_secret(&it, "leave it out").map(|()| it));
        env.map(|it| format!("{it:?}")).map_err(message)
    }

    #[test]
    fn scalars_are_written_as_in_json_and_null_is_unset() {
        let env = json!({ "A": "x\n'y'", "B": 1.5, "C": true, "D": null });
        assert_eq!(check(env).unwrap(), r#"{"A": "x\n'y'", "B": "1.5", "C": "true"}"#);
    }

    #[test]
    fn bad_names_long_values_and_secrets_are_refused() {
        for (env, code) in [
            (json!({ "1A": "" }), "invalid_input"),
            (json!({ "A=B": "" }), "invalid_input"),
            (json!({ "CORACLE_X": "" }), "invalid_input"),
            (json!({ "A": [] }), "invalid_input"),
            (json!({ "A": "x".repeat(100_000) }), "unsupported"),
            (json!({ "A": "x".repeat(1 << 17) }), "invalid_input"),
            (json!({ "DB_PASSWORD": "x" }), "unsupported"),
            (json!({ "api_key": "x" }), "unsupported"),
        ] {
            assert!(check(env.clone()).unwrap_err().starts_with(code), "{env}");
        }
    }
}
