//! Rows of the isolation table, and which value is weaker.

use std::collections::BTreeMap;

/// The rows of one container.
pub(super) type Rows = BTreeMap<String, String>;

pub(super) fn parse(printed: &str) -> Rows {
    printed
        .lines()
        .filter_map(|it| it.split_once('\t'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The values of a row that are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    /// Empty if a container does not have the row.
    pub(super) ours: &'a str,
    pub(super) theirs: &'a str,
    /// Of a process on the host.
    pub(super) host: &'a str,
}

/// Whether Coracle's value allows a container more than Docker's.
pub(super) fn is_weaker(row: &str, Pair { ours, theirs, host }: Pair<'_>) -> bool {
    let (kind, rest) = row.split_once(' ').unwrap_or((row, ""));
    match kind {
        // A namespace of its own, or the host's.
        "namespace" | "hostname" => ours == host && theirs != host,
        "uid" => ours == host && theirs != host,
        "self" | "1" if rest.starts_with("Cap") => hex(ours) & !hex(theirs) != 0,
        "self" | "1" => number(ours) < number(theirs),
        // Groups that are seen by name.
        "cgroup" => theirs.is_empty() && !ours.is_empty(),
        // Where one of the two has no such mount, rows of files tell which is weaker.
        "mount" => {
            let flags: Vec<_> = ours.split(' ').collect();
            !ours.is_empty() && theirs.split(' ').any(|it| !it.is_empty() && !flags.contains(&it))
        }
        "readable" | "writable" => number(ours) > number(theirs),
        "device" | "descriptor" => !ours.is_empty() && theirs.is_empty(),
        "limit" => limit(ours) > limit(theirs) && rest == "Max core file size",
        // Refused or unknown, or else.
        _ => is_refused(theirs) && !is_refused(ours),
    }
}

fn is_refused(value: &str) -> bool {
    let (eperm, enosys, eacces, eafnosupport) = ("1", "38", "13", "97");
    [eperm, enosys, eacces, eafnosupport].contains(&value) || value.is_empty()
}

fn hex(value: &str) -> u64 {
    u64::from_str_radix(value, 16).unwrap_or_default()
}

fn number(value: &str) -> u64 {
    value.trim().parse().unwrap_or_default()
}

fn limit(value: &str) -> u64 {
    if value == "unlimited" { u64::MAX } else { number(value) }
}

/// The rows that differ as a table, one column for each container.
pub(super) fn table(containers: &[(String, Rows)]) -> String {
    let mut names: Vec<&String> = containers.iter().flat_map(|it| it.1.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let value = |rows: &Rows, name: &str| rows.get(name).map_or("-", String::as_str).to_owned();
    let line = |name: &str, values: Vec<String>| {
        values.iter().fold(format!("{name:<46}"), |line, it| format!("{line} {it:<44.44}")).trim_end().to_owned() + "\n"
    };
    let mut text = line("row", containers.iter().map(|it| it.0.clone()).collect());
    for name in names {
        let values: Vec<_> = containers.iter().map(|it| value(&it.1, name)).collect();
        if values.iter().any(|it| *it != values[0]) {
            text += &line(name, values);
        }
    }
    text
}

#[test]
fn a_value_that_gives_more_is_weaker() {
    let weaker = |row: &str, ours: &str, theirs: &str| is_weaker(row, Pair { ours, theirs, host: "host" });
    for (row, strong, weak) in [
        ("namespace user", "own", "host"),
        ("self CapEff", "00000000000000e3", "00000000000000fb"),
        ("self NoNewPrivs", "1", "0"),
        ("mount /proc", "mounted nosuid nodev noexec", "mounted nosuid"),
        ("mount /proc/keys", "mounted nosuid", "mounted"),
        ("readable /proc/kcore", "0", "1"),
        ("device /dev/sda", "", "block 8:0"),
        ("call 165", "1", "14"),
        ("call 425", "38", "14"),
    ] {
        assert!(weaker(row, weak, strong), "{row}: {weak}");
        assert!(!weaker(row, strong, weak) && !weaker(row, strong, strong), "{row}: {strong}");
    }
}
