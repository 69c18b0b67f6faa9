//! The encodings in which programs write a value: what a search for a secret must look for.

use std::collections::BTreeSet;
use std::fmt::Write;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};

/// Shorter values occur in any text by chance.
pub const MIN_BYTES: usize = 8;

/// A line of a longer value is searched for separately from this length on: logs indent and number lines.
const LINE_BYTES: usize = 24;

/// All encodings of at least [`MIN_BYTES`], the value itself included: hexadecimal, base64 at each alignment, percent-encoded,
/// escaped as in JSON, and the lines of a longer value.
#[must_use]
pub fn encode_all(value: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = BTreeSet::from([value.to_vec(), hex::encode(value).into(), hex::encode_upper(value).into()]);
    forms.extend(base64(value));
    forms.extend(percent(value));
    forms.extend(lines(value));
    match std::str::from_utf8(value) {
        Ok(text) => forms.extend(escaped(text)),
        // Programs replace invalid UTF-8 by a replacement character.
        Err(_) => forms.extend([String::from_utf8_lossy(value).into_owned().into()]),
    }
    forms.retain(|it| it.len() >= MIN_BYTES);
    forms.into_iter().collect()
}

/// Within longer data a value has one of three alignments, and its first and last characters contain bits of its neighbours.
fn base64(value: &[u8]) -> Vec<Vec<u8>> {
    let mut found = vec![];
    for before in 0..3 {
        let shifted = [&[0; 2][..before], value].concat();
        let first = (before * 8).div_ceil(6);
        let last = shifted.len() * 8 / 6;
        for engine in [&BASE64_STANDARD_NO_PAD, &BASE64_URL_SAFE_NO_PAD] {
            found.push(engine.encode(&shifted).as_bytes()[first..last].to_vec());
        }
    }
    found
}

/// Programs differ in which characters they leave unencoded, and in the case of hex digits.
fn percent(value: &[u8]) -> Vec<Vec<u8>> {
    let unreserved = |it: u8| it.is_ascii_alphanumeric() || b"-._~".contains(&it);
    let component = |it: u8| unreserved(it) || b"!'()*".contains(&it);
    let path = |it: u8| component(it) || b"$&+,;=:@/".contains(&it);
    let form = |it: u8| it.is_ascii_alphanumeric() || b"-._*".contains(&it);
    let sets: [&dyn Fn(u8) -> bool; 5] = [&unreserved, &component, &path, &form, &|_| false];
    let mut found = vec![];
    for is_unencoded in sets {
        let (mut upper, mut lower) = (String::new(), String::new());
        for byte in value {
            if is_unencoded(*byte) {
                upper.push(char::from(*byte));
                lower.push(char::from(*byte));
            } else {
                let _ = (write!(upper, "%{byte:02X}"), write!(lower, "%{byte:02x}"));
            }
        }
        found.extend([upper.replace("%20", "+").into(), lower.replace("%20", "+").into(), upper.into(), lower.into()]);
    }
    found
}

/// As in JSON, with and without escaped non-ASCII characters, and as Coracle escapes control characters.
fn escaped(text: &str) -> Vec<Vec<u8>> {
    let json = serde_json::to_string(text).unwrap_or_default();
    let json = json.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or_default();
    let mut ascii = String::new();
    for unit in json.encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => ascii.push(char::from(byte)),
            _ => drop(write!(ascii, "\\u{unit:04x}")),
        }
    }
    let shown: String = text.chars().fold(String::new(), |mut shown, it| {
        match it.is_control() && it != '\n' {
            true => shown.extend(it.escape_default()),
            false => shown.push(it),
        }
        shown
    });
    let slashes = json.replace('/', "\\/");
    let debugged = text.escape_debug().to_string();
    [json.to_owned(), ascii.replace('/', "\\/"), ascii, slashes, shown, debugged].map(Into::into).into()
}

/// The lines of a key, without its header and footer, which are not secret.
fn lines(value: &[u8]) -> Vec<Vec<u8>> {
    let lines = value.split(|it| matches!(it, b'\n' | b'\r')).map(<[u8]>::trim_ascii);
    lines.filter(|it| it.len() >= LINE_BYTES && !it.starts_with(b"-----")).map(<[u8]>::to_vec).collect()
}
