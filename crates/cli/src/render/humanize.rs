//! Amounts and times as people read them.

use jiff::Timestamp;

/// A span of time, as `cargo` and `make` people read it.
pub(crate) fn took(ms: u64) -> String {
    match ms {
        0..60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        _ => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
    }
}

/// A time to the second, or the text itself when it is none.
pub(super) fn second(text: &str) -> String {
    text.parse::<Timestamp>().map_or_else(|_| super::plain(text), |it| format!("{it:.0}"))
}

/// How long ago a time was, or the text itself when it is none.
pub(super) fn ago(text: &str, now: Timestamp) -> String {
    let Ok(then) = text.parse::<Timestamp>() else { return super::plain(text) };
    match now.as_second().saturating_sub(then.as_second()) {
        ..60 => "just now".to_owned(),
        seconds @ 60..3600 => format!("{} min ago", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

/// How long until a time, or nothing when there is none.
pub(super) fn until(text: &str, now: Timestamp) -> String {
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
    use super::{ago, second, took};

    #[test]
    fn spans_are_short() {
        assert_eq!([0, 94, 7_640, 61_000].map(took).join(", "), "0.0 s, 0.1 s, 7.6 s, 1 min 1 s");
    }

    #[test]
    fn times_are_told_from_now() {
        let now = "2026-11-22T12:00:00Z".parse().unwrap();
        let told = |it: &str| ago(it, now);
        assert_eq!(told("2026-11-22T11:59:30.5Z"), "just now");
        assert_eq!(told("2026-11-22T11:50:00Z"), "10 min ago");
        assert_eq!(told("2026-11-21T11:00:00Z"), "25 h ago");
        assert_eq!(told("2026-11-12T12:00:00Z"), "10 days ago");
        assert_eq!(told("soon"), "soon");
        assert_eq!(second("2026-11-23T19:05:13.231196726Z"), "2026-11-23T19:05:13Z");
        assert_eq!(second("soon"), "soon");
    }
}
