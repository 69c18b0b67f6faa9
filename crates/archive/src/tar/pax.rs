//! Records of PAX extended headers.

use super::FileTime;

/// A record: `LENGTH KEY=VALUE\n`. Values are any bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// Parses the records of an extended header. `None` if it is invalid.
pub(super) fn records(mut data: &[u8]) -> Option<Vec<Record<'_>>> {
    let mut all = Vec::new();
    // Some writers pad the records.
    while data.first().is_some_and(|it| *it != 0) {
        let space = data.iter().position(|it| *it == b' ')?;
        let length: usize = std::str::from_utf8(&data[..space]).ok()?.parse().ok()?;
        let record = data.get(space + 1..length)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|it| *it == b'=')?;
        all.push(Record { key: &record[..equals], value: &record[equals + 1..] });
        data = &data[length..];
    }
    Some(all)
}

/// Appends a record.
pub(super) fn push(data: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    // The length includes its own digits.
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    data.extend_from_slice(length.to_string().as_bytes());
    data.push(b' ');
    data.extend_from_slice(key);
    data.push(b'=');
    data.extend_from_slice(value);
    data.push(b'\n');
}

/// Parses a decimal number.
pub(super) fn decimal(value: &[u8]) -> Option<u64> {
    let is_digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    is_digits.then(|| std::str::from_utf8(value).ok()?.parse().ok()).flatten()
}

/// Parses a time: decimal seconds, possibly negative or with a fraction. Digits beyond nanoseconds are dropped.
pub(super) fn time(value: &[u8]) -> Option<FileTime> {
    let (negative, value) = match value.strip_prefix(b"-") {
        Some(value) => (true, value),
        None => (false, value),
    };
    let point = value.iter().position(|it| *it == b'.').unwrap_or(value.len());
    let whole = i64::try_from(decimal(&value[..point])?).ok()?;
    let fraction = value.get(point + 1..).unwrap_or_default();
    let digits: Vec<u8> = fraction.iter().copied().chain(std::iter::repeat(b'0')).take(9).collect();
    let nanoseconds = u32::try_from(decimal(&digits)?).ok()?;
    Some(match (negative, nanoseconds) {
        (false, _) => FileTime { seconds: whole, nanoseconds },
        (true, 0) => FileTime { seconds: -whole, nanoseconds },
        (true, _) => FileTime { seconds: -whole - 1, nanoseconds: 1_000_000_000 - nanoseconds },
    })
}

/// Formats a time; `None` if a header can contain it.
pub(super) fn time_text(time: FileTime) -> Option<String> {
    let FileTime { seconds, nanoseconds } = time;
    let text = match (seconds, nanoseconds) {
        (0..=0o77_777_777_777, 0) => return None,
        (_, 0) => return Some(seconds.to_string()),
        (..0, _) => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds),
        _ => format!("{seconds}.{nanoseconds:09}"),
    };
    Some(text.trim_end_matches('0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_contain_any_bytes() {
        let mut data = Vec::new();
        push(&mut data, b"SCHILY.xattr.a", b"one\ntwo=\0\xff\n");
        for length in 0..200 {
            push(&mut data, b"k", &vec![b'v'; length]);
        }
        let read = records(&data).unwrap();
        assert_eq!(read[0], Record { key: b"SCHILY.xattr.a", value: b"one\ntwo=\0\xff\n" });
        assert!(read[1..].iter().enumerate().all(|(at, it)| it.value.len() == at), "{read:?}");
        assert_eq!(records(b"6 a=b\n\0\0\0").unwrap().len(), 1);
    }

    #[test]
    fn invalid_records_are_refused() {
        for bad in [&b"5 a=b\n"[..], b"7 a=b\n", b"99999999999999999999 a=b\n", b"x a=b\n", b"6 abc\n", b"3\n", b"2 a"]
        {
            assert_eq!(records(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn times_are_read_and_written() {
        for (text, seconds, nanoseconds) in [
            ("0.5", 0, 500_000_000),
            ("1700000000.123456789", 1_700_000_000, 123_456_789),
            ("-1", -1, 0),
            ("-0.25", -1, 750_000_000),
            ("-2.000000001", -3, 999_999_999),
            ("99999999999", 99_999_999_999, 0),
        ] {
            let it = FileTime { seconds, nanoseconds };
            assert_eq!(time(text.as_bytes()), Some(it), "{text}");
            assert_eq!(time_text(it).as_deref(), Some(text));
        }
        assert_eq!(time(b"1.1234567899"), Some(FileTime { seconds: 1, nanoseconds: 123_456_789 }));
        assert_eq!(time_text(FileTime { seconds: 5, nanoseconds: 0 }), None);
        for bad in ["", "-", ".5", "1.x", "1e5", "99999999999999999999", "+1"] {
            assert_eq!(time(bad.as_bytes()), None, "{bad}");
        }
    }
}
