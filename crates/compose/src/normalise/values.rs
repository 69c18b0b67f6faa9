//! Normalises values of one kind, in the forms that files may use.

use std::path::{Component, Path, PathBuf};

use coracle_runtime::stack_model::{format_duration, parse_duration};
use serde_json::{Map, Number, Value, json};

use super::ModelError;

/// Returns a number, a flag or a text as text.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(digits(number)),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// Formats a number as Compose does: `1.0` is `1`, and exponents have two digits.
fn digits(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    let scientific = format!("{float:e}");
    let Some((digits, Ok(exponent))) = scientific.split_once('e').map(|(it, exponent)| (it, exponent.parse::<i32>()))
    else {
        return float.to_string();
    };
    match exponent {
        -4..6 => float.to_string(),
        exponent if exponent < 0 => format!("{digits}e-{:02}", -exponent),
        exponent => format!("{digits}e+{exponent:02}"),
    }
}

/// Returns one text as a list, and numbers in a list as texts.
pub(super) fn words(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(|it| text(&it).map_or(it, Value::from)).collect(),
        Value::String(_) | Value::Number(_) => json!([text(&value)]),
        other => other,
    }
}

/// Returns a list of `NAME=value`, or a mapping, as a mapping of texts. `missing` returns the values of names without
/// one.
pub(super) fn pairs(value: Value, missing: impl Fn(&str) -> Value) -> Result<Value, ModelError> {
    let mut out = Map::new();
    match value {
        Value::Array(items) => {
            for item in items {
                let line = item.as_str().ok_or("must be a list of strings")?;
                match line.split_once('=') {
                    Some((name, value)) => out.insert(name.to_owned(), value.into()),
                    None => out.insert(line.to_owned(), missing(line)),
                };
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let value = if value.is_null() { missing(&name) } else { value };
                let value = text(&value).map_or(value, Value::from);
                out.insert(name, value);
            }
        }
        other => return Ok(other),
    }
    Ok(Value::Object(out))
}

/// Parses `true`, or the text of a variable.
pub(super) fn flag(value: Value) -> Value {
    match value.as_str().map(str::to_ascii_lowercase).as_deref() {
        Some("true" | "y" | "yes" | "on" | "1" | "t") => true.into(),
        Some("false" | "n" | "no" | "off" | "0" | "f") => false.into(),
        _ => value,
    }
}

pub(super) fn integer(value: Value) -> Value {
    value.as_str().and_then(|it| it.parse::<i64>().ok()).map_or(value, Value::from)
}

pub(super) fn decimal(value: Value) -> Value {
    value.as_str().and_then(|it| it.parse::<f64>().ok()).map_or(value, |it| json!(it))
}

/// Parses `64m`, `1.5 GB`, or a number of bytes.
pub(super) fn size(value: Value) -> Result<Value, ModelError> {
    let Some(written) = text(&value) else { return Ok(value) };
    let digits = written.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(written.len());
    let (number, unit) = written.split_at(digits);
    let unit = unit.strip_prefix(' ').unwrap_or(unit).to_ascii_lowercase();
    let power = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(format!("`{written}` is no number of bytes")),
    };
    let parsed = number.parse::<f64>().ok().filter(|_| number.starts_with(|c: char| c.is_ascii_digit()));
    let bytes = parsed.ok_or_else(|| format!("`{written}` is no number of bytes"))? * 1024f64.powi(power);
    Ok(format!("{:.0}", bytes.trunc()).into())
}

/// Formats a duration as models do.
pub(super) fn duration(value: Value) -> Result<Value, ModelError> {
    let Some(written) = value.as_str() else { return Ok(value) };
    let length = parse_duration(written).ok_or_else(|| format!("`{written}` is no duration"))?;
    Ok(format_duration(length).into())
}

/// Resolves a path from a directory, without looking up `.` and `..`.
pub(super) fn absolute(dir: &Path, path: &str) -> Result<String, ModelError> {
    if path.starts_with('~') {
        return Err(format!("`{path}`: a `~` is not read; name the directory"));
    }
    let mut out = PathBuf::new();
    for part in dir.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out.into_os_string().into_string().map_err(|it| format!("`{}` is no text", it.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes() {
        for (written, bytes) in [
            ("64m", "67108864"),
            ("1.5g", "1610612736"),
            ("1000", "1000"),
            ("1b", "1"),
            ("2GiB", "2147483648"),
            ("1 KB", "1024"),
            ("0", "0"),
        ] {
            assert_eq!(size(written.into()).as_ref(), Ok(&json!(bytes)), "{written}");
        }
        assert_eq!(size(json!(512)), Ok(json!("512")));
        for bad in ["", "m", "-1", "1x", "1.2.3", "a1", "1  m"] {
            assert!(size(bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_formatted_as_compose_does() {
        for (number, written) in [
            (json!(1.0), "1"),
            (json!(1e3), "1000"),
            (json!(123_456.5), "123456.5"),
            (json!(1e6), "1e+06"),
            (json!(0.000_01), "1e-05"),
            (json!(1.5e300), "1.5e+300"),
            (json!(-2), "-2"),
        ] {
            assert_eq!(text(&number).as_deref(), Some(written));
        }
    }

    #[test]
    fn paths_are_relative_to_the_directory() {
        let of = |path| absolute(Path::new("/a/b"), path).unwrap();
        assert_eq!([of("."), of("./c/../d"), of("../../../e"), of("/f/")], ["/a/b", "/a/b/d", "/e", "/f"]);
        assert!(absolute(Path::new("/a"), "~/x").is_err());
    }
}
