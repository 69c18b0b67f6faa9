//! Amounts, times and characters as people read them.

use std::time::Duration;

use jiff::Timestamp;

/// Milliseconds, as answers have them.
pub fn millis(it: Duration) -> u64 {
    u64::try_from(it.as_millis()).unwrap_or(u64::MAX)
}

/// `1 file`, `2 files`.
pub fn count(amount: u64, one: &str, many: &str) -> String {
    format!("{amount} {}", if amount == 1 { one } else { many })
}

/// Bytes in the largest unit that is not below one.
pub fn bytes(amount: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, bits)| amount >> bits > 0) {
        None => count(amount, "byte", "bytes"),
        Some((unit, bits)) if amount.is_multiple_of(1 << bits) => format!("{} {unit}", amount >> bits),
        Some((unit, bits)) => format!("{:.1} {unit}", amount as f64 / (1_u64 << bits) as f64),
    }
}

/// A duration, as `cargo` and `make` print it.
pub fn duration(ms: u64) -> String {
    match ms {
        0..60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        _ => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
    }
}

/// A time to the second, or the text itself when it is none.
pub fn to_second(text: &str) -> String {
    text.parse::<Timestamp>().map_or_else(|_| text.to_owned(), |it| format!("{it:.0}"))
}

/// How long ago a time was, or the text itself when it is none.
pub fn ago(text: &str, now: Timestamp) -> String {
    let Ok(then) = text.parse::<Timestamp>() else { return text.to_owned() };
    match now.as_second().saturating_sub(then.as_second()) {
        ..60 => "just now".to_owned(),
        seconds @ 60..3600 => format!("{} min ago", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

/// How long until an unused container expires, or nothing when the text is no time.
pub(crate) fn until_expiry(text: &str, now: Timestamp) -> String {
    let Ok(then) = text.parse::<Timestamp>() else { return String::new() };
    let span = match then.as_second().saturating_sub(now.as_second()) {
        ..60 => return "any moment, unless it is used".to_owned(),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    };
    format!("in {span}, unless it is used")
}

#[cfg(test)]
mod tests {
    use super::{ago, bytes, duration, to_second};

    #[test]
    fn sizes_are_short() {
        assert_eq!(
            [0, 1, 3, 1024, 1536, 4 << 30].map(bytes).join(", "),
            "0 bytes, 1 byte, 3 bytes, 1 KiB, 1.5 KiB, 4 GiB"
        );
    }

    #[test]
    fn spans_are_short() {
        assert_eq!([0, 94, 7_640, 61_000].map(duration).join(", "), "0.0 s, 0.1 s, 7.6 s, 1 min 1 s");
    }

    #[test]
    fn times_are_relative_to_now() {
        let now = "2026-11-22T12:00:00Z".parse().unwrap();
        let past = |it: &str| ago(it, now);
        assert_eq!(past("2026-11-22T11:59:30.5Z"), "just now");
        assert_eq!(past("2026-11-22T11:50:00Z"), "10 min ago");
        assert_eq!(past("2026-11-21T11:00:00Z"), "25 h ago");
        assert_eq!(past("2026-11-12T12:00:00Z"), "10 days ago");
        assert_eq!(past("soon"), "soon");
        assert_eq!(to_second("2026-11-23T19:05:13.231196726Z"), "2026-11-23T19:05:13Z");
        assert_eq!(to_second("soon"), "soon");
    }
}
