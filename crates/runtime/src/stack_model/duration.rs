//! Durations as Compose writes them: `1m30s`, `500ms`.

use std::time::Duration;

use serde::{Deserialize as _, Deserializer, Serializer, de};

/// Units of a duration in nanoseconds, longest names first where one begins another.
const UNITS: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

pub(super) fn serialize<S: Serializer>(length: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format_duration(length.unwrap_or_default()))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    parse_duration(&text).map(Some).ok_or_else(|| de::Error::custom(format!("`{text}` is no duration")))
}

/// Reads `1m30s` and the like. `None` for what is no duration.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    if rest == "0" {
        return Some(total);
    }
    while total == Duration::ZERO || !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let after = &rest[digits..];
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (_, nanos) = UNITS.iter().find(|(name, _)| *name == &after[..unit])?;
        let seconds = rest[..digits].parse::<f64>().ok()? * nanos / 1e9;
        total = total.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
        rest = &after[unit..];
        if rest.is_empty() {
            break;
        }
    }
    Some(total)
}

/// Writes a duration as Compose does: `1m30s`.
#[must_use]
pub fn format_duration(length: Duration) -> String {
    let (seconds, nanos) = (length.as_secs(), length.subsec_nanos());
    if seconds == 0 {
        return match nanos {
            0 => "0s".into(),
            1..1_000 => format!("{nanos}ns"),
            1_000..1_000_000 => format!("{}µs", f64::from(nanos) / 1e3),
            _ => format!("{}ms", f64::from(nanos) / 1e6),
        };
    }
    let fraction = format!("{nanos:09}");
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}{dot}{fraction}s"),
        (0, m, s) => format!("{m}m{s}{dot}{fraction}s"),
        (h, m, s) => format!("{h}h{m}m{s}{dot}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_compose_writes_them() {
        for (text, printed) in [
            ("90s", "1m30s"),
            ("1m30s", "1m30s"),
            ("500ms", "500ms"),
            ("1.5ms", "1.5ms"),
            ("1h2m3.5s", "1h2m3.5s"),
            ("1h", "1h0m0s"),
            ("0s", "0s"),
            ("0", "0s"),
            ("30us", "30µs"),
        ] {
            assert_eq!(parse_duration(text).map(format_duration).as_deref(), Some(printed), "{text}");
        }
        for bad in ["", "s", "5", "5 s", "-1s", "1e400h", "99999999999999999999h", "1d"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
