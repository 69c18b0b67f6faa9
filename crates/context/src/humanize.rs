//! Formats amounts, times and characters for users.

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

/// Formats bytes in the largest unit that is not below one.
pub fn bytes(amount: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, bits)| amount >> bits > 0) {
        None => count(amount, "byte", "bytes"),
        Some((unit, bits)) if amount.is_multiple_of(1 << bits) => format!("{} {unit}", amount >> bits),
        Some((unit, bits)) => format!("{:.1} {unit}", amount as f64 / (1_u64 << bits) as f64),
    }
}

/// Formats a duration as `cargo` and `make` do.
pub fn duration(ms: u64) -> String {
    match ms {
        0..60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        _ => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
    }
}

/// Formats a time to the second; returns the text itself if it is not a time.
pub fn to_second(text: &str) -> String {
    text.parse::<Timestamp>().map_or_else(|_| text.to_owned(), |it| format!("{it:.0}"))
}

/// Formats how long ago a time was; returns the text itself if it is not a time.
pub fn ago(text: &str, now: Timestamp) -> String {
    let Ok(then) = text.parse::<Timestamp>() else { return text.to_owned() };
    match now.as_second().saturating_sub(then.as_second()) {
        ..60 => "just now".to_owned(),
        seconds @ 60..3600 => format!("{} min ago", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

/// Formats how long until an unused container expires; empty if the text is not a time.
pub fn until_expiry(text: &str, now: Timestamp) -> String {
    let Ok(then) = text.parse::<Timestamp>() else { return String::new() };
    let span = match then.as_second().saturating_sub(now.as_second()) {
        ..60 => return "any moment, unless it is used".to_owned(),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    };
    format!("in {span}, unless it is used")
}

/// Names an image by purpose and version: `python 3.12` for `docker.io/library/python:3.12`, `python` for one that
/// Coracle built.
#[must_use]
pub fn image_label(image: &str, purpose: Option<&str>) -> String {
    let (path, digest) = image.split_once('@').unwrap_or((image, ""));
    let last = path.rsplit('/').next().unwrap_or(path);
    let (name, tag) = last.split_once(':').unwrap_or((last, ""));
    let is_hex = |text: &str, least: usize| text.len() >= least && text.bytes().all(|it| it.is_ascii_hexdigit());
    let mut dashes = tag.match_indices('-').map(|(at, _)| at);
    let is_key = |at: &usize| is_hex(tag[at + 1..].split('-').next().unwrap_or(""), 6);
    if let Some(at) = dashes.find(is_key).filter(|_| name.ends_with("-cache")) {
        return purpose.unwrap_or(&tag[..at]).to_owned();
    }
    let tag = if tag.is_empty() { digest.trim_start_matches("sha256:").get(..12).unwrap_or("") } else { tag };
    let version = match tag {
        "latest" => "",
        _ if is_hex(tag, 12) => &tag[..7],
        _ => tag,
    };
    let name = name.strip_prefix("coracle-").unwrap_or(name);
    let own = if version.is_empty() { name.to_owned() } else { format!("{name} {version}") };
    match purpose {
        Some(purpose) if !own.starts_with(purpose) => format!("{purpose} · {own}"),
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::{ago, bytes, duration, image_label, to_second};

    #[test]
    fn an_image_is_named_by_purpose_and_version() {
        let with_digest = format!("registry.example:5000/team/app@sha256:{}", "0123456789abcdef".repeat(4));
        for (image, purpose, label) in [
            ("docker.io/library/python:3.12-slim", None, "python 3.12-slim"),
            ("ubuntu:24.04", None, "ubuntu 24.04"),
            ("ubuntu", None, "ubuntu"),
            ("postgres:latest", None, "postgres"),
            ("localhost/coracle-cache:python-4f1c9a7b20de-9b8d1c2e4f60", Some("python"), "python"),
            ("localhost/coracle-cache:try-repo-4f1c9a7b20de-9b8d1c2e4f60", None, "try-repo"),
            ("python:3.12", Some("python"), "python 3.12"),
            ("debian:12", Some("python"), "python · debian 12"),
            ("coracle-devcontainer:7876480be1515389", None, "devcontainer 7876480"),
            (&with_digest, None, "app 0123456"),
        ] {
            assert_eq!(image_label(image, purpose), label, "{image}");
        }
    }

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
