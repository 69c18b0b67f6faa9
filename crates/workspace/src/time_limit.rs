//! A time limit as a call gives it: `timeout`, in seconds or as `90s`.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::Code;
use crate::response::{Result, fail};

/// Schema of a time limit: `#[schemars(with = "Option<TimeLimit>")]`.
#[derive(Debug)]
pub(crate) struct TimeLimit;

impl JsonSchema for TimeLimit {
    fn schema_name() -> Cow<'static, str> {
        "TimeLimit".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "string"], "examples": [90, "90s"] })
    }
}

/// The limits of a tool, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeBounds {
    /// When the call gives none.
    pub(crate) default: f64,
    /// A lower value counts as this.
    pub(crate) least: f64,
    /// A `timeout` above it is refused.
    pub(crate) most: f64,
}

impl TimeBounds {
    /// Reads `timeout`. Above the maximum it is refused, and not lowered: the number may be milliseconds.
    pub(crate) fn read(self, given: &Value, hint: Option<&str>) -> Result<Duration> {
        let invalid = |message: String| {
            let message = hint.map_or(message.clone(), |hint| format!("{message} {hint}"));
            fail(Code::InvalidTimeout, message)
        };
        let Some(seconds) = seconds(given) else {
            return invalid("timeout must be seconds as a number, or a string such as \"90s\" or \"2m\".".to_owned());
        };
        if seconds > self.most {
            return invalid(format!("timeout is {seconds} s, and the most is {} s.", self.most));
        }
        Ok(self.clamped(seconds))
    }

    /// A number of seconds, lowered and raised to what is possible.
    pub(crate) fn clamped(self, seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds.max(self.least).min(self.most))
    }
}

/// Both of two names of one limit.
pub(crate) fn given_twice<T>(alias: &str) -> Result<T> {
    fail(Code::InvalidTimeout, format!("timeout and {alias} are the same limit; give one of them."))
}

/// Seconds of a number, or of a text with a unit.
fn seconds(given: &Value) -> Option<f64> {
    let seconds = match given {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => {
            let text = text.trim();
            let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
            let found = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
            let (digits, factor) = found.unwrap_or((text, 1.0));
            let plain = digits.bytes().all(|it| it.is_ascii_digit() || it == b'.');
            plain.then(|| digits.parse::<f64>().ok()).flatten()? * factor
        }
        _ => return None,
    };
    (seconds.is_finite() && seconds >= 0.0).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::TimeBounds;

    fn read(given: &Value) -> String {
        let bounds = TimeBounds { default: 30.0, least: 1.0, most: 120.0 };
        bounds.read(given, Some("Hint.")).map_or_else(|failure| failure.message, |it| format!("{it:?}"))
    }

    #[test]
    fn a_limit_is_seconds_or_a_text_with_a_unit() {
        for (given, expected) in [
            (json!(5), "5s"),
            (json!(1.5), "1.5s"),
            (json!("90s"), "90s"),
            (json!("2m"), "120s"),
            (json!("1500ms"), "1.5s"),
            (json!("7"), "7s"),
            (json!(0), "1s"),
        ] {
            assert_eq!(read(&given), expected, "{given}");
        }
    }

    #[test]
    fn one_above_the_maximum_or_of_another_kind_is_refused() {
        assert_eq!(read(&json!(30_000)), "timeout is 30000 s, and the most is 120 s. Hint.");
        for bad in [json!("soon"), json!(-1), json!([]), json!(""), json!("s"), json!("é"), json!("1e3"), json!(true)]
        {
            assert!(read(&bad).starts_with("timeout must be seconds"), "{bad}");
        }
    }
}
