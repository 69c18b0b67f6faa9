//! Reads files of variables and labels instead of Compose, which would open them again by name.

use std::collections::BTreeMap;
use std::io::Read as _;

use coracle_host::fs::HostPath;

use crate::diagnostics::short;

const MAX_BYTES: u64 = 1 << 20;

/// Reads a file of `NAME=value` lines. The result has the syntax of `environment` in a Compose file: Compose fills in
/// the remaining variables, and a `$$` is a `$`. The format is Compose's own, or `raw`, in which a value is the rest of
/// its line.
pub(super) fn read(file: &HostPath, format: Option<&str>) -> Result<BTreeMap<String, String>, String> {
    if let Some(format) = format.filter(|format| *format != "raw") {
        return Err(format!("has the format `{}`, which is not supported: leave it out, or say `raw`", short(format)));
    }
    if file.is_dir() {
        return Err("is a directory".into());
    }
    let mut bytes = Vec::new();
    let opened = file.file().map_err(|err| format!("cannot be read: {err}"))?;
    opened.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|err| format!("cannot be read: {err}"))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("is longer than {MAX_BYTES} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "is no text".to_owned())?;
    match format {
        Some(_) => raw(&text),
        None => parse(&text),
    }
}

/// Parses lines without quotes, variables, or comments behind a value.
fn raw(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, None), |(key, value)| (key, Some(value)));
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(no_variables(number + 1));
        }
        // The value of a name alone comes from the environment, which here is not the host's.
        if let Some(value) = value {
            found.insert(key.to_owned(), value.replace('$', "$$"));
        }
    }
    Ok(found)
}

fn no_variables(line: usize) -> String {
    format!("is no file of variables: line {line}")
}

/// Parses Compose's format. Errors contain the line number and no text, which the caller may not be allowed to see.
fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let mut rest = text.as_str();
    while !rest.trim_start().is_empty() {
        rest = rest.trim_start();
        let failed = || no_variables(text[..text.len() - rest.len()].matches('\n').count() + 1);
        let end = rest.find('\n').unwrap_or(rest.len());
        if rest.starts_with('#') {
            rest = &rest[end..];
            continue;
        }
        let line = &rest[..end];
        let Some(split) = line.find(['=', ':']) else {
            // The value of a name alone comes from the environment, which here is not the host's.
            name(line).ok_or_else(failed)?;
            rest = &rest[end..];
            continue;
        };
        let key = name(&line[..split]).ok_or_else(failed)?;
        let (value, after) = value(&rest[split + 1..], &found).ok_or_else(failed)?;
        found.insert(key.to_owned(), value);
        rest = after;
    }
    Ok(found)
}

fn name(text: &str) -> Option<&str> {
    let text = text.trim();
    let exported = text.strip_prefix("export").filter(|name| name.starts_with(char::is_whitespace));
    let text = exported.unwrap_or(text).trim_start();
    let plain = |c: char| c.is_alphanumeric() || "_.-[]".contains(c);
    (!text.is_empty() && text.chars().all(plain)).then_some(text)
}

/// Parses a value, and returns the rest of the text. A value in quotes may span lines, and `\` escapes its quote; in
/// single quotes everything else is literal. A value without quotes ends with its line or before a comment.
fn value<'a>(text: &'a str, known: &BTreeMap<String, String>) -> Option<(String, &'a str)> {
    let text = text.trim_start_matches([' ', '\t']);
    let (value, rest) = if let Some(after) = text.strip_prefix('\'') {
        let (quoted, rest) = quoted(after, '\'')?;
        (quoted.replace('$', "$$"), rest)
    } else if let Some(after) = text.strip_prefix('"') {
        let (quoted, rest) = quoted(after, '"')?;
        (filled(&unescaped(&quoted), known), rest)
    } else {
        let end = text.find('\n').unwrap_or(text.len());
        let line = &text[..end];
        let remark = line.find(" #").or_else(|| line.starts_with('#').then_some(0)).unwrap_or(line.len());
        return Some((filled(line[..remark].trim_end(), known), &text[end..]));
    };
    let end = rest.find('\n').unwrap_or(rest.len());
    let after = rest[..end].trim();
    (after.is_empty() || after.starts_with('#')).then_some((value, &rest[end..]))
}

/// Parses up to the quote that ends a value, and returns the rest of the text. `\` escapes a quote.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                c if c == quote => value.push(c),
                c => value.extend(['\\', c]),
            },
            c => value.push(c),
        }
    }
    None
}

/// Unescapes a value in double quotes, as shells do. Unknown escapes are not changed.
fn unescaped(text: &str) -> String {
    let mut value = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        value.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let escaped = rest.chars().next();
        let single = match escaped {
            Some('a') => "\x07",
            Some('b') => "\x08",
            Some('f') => "\x0c",
            Some('n') => "\n",
            Some('r') => "\r",
            Some('t') => "\t",
            Some('v') => "\x0b",
            Some('"') => "\"",
            Some('\\') => "\\",
            Some('$') => "$$",
            _ => "",
        };
        if !single.is_empty() {
            value.push_str(single);
            rest = &rest[1..];
        } else if let Some((byte, after)) = octal(rest) {
            value.push(byte.into());
            rest = after;
        } else {
            value.push('\\');
        }
    }
    value + rest
}

/// Parses `0` and three octal digits.
fn octal(text: &str) -> Option<(u8, &str)> {
    let digits = text.strip_prefix('0')?.get(..3)?;
    u8::from_str_radix(digits, 8).ok().map(|byte| (byte, &text[4..]))
}

/// Fills in `$NAME` and `${NAME}` of earlier lines; Compose evaluates the remaining variables.
fn filled(value: &str, known: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (braced, inner) = match after.strip_prefix('{') {
            Some(inner) => (true, inner),
            None => (false, after),
        };
        let length = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
        let closed = !braced || inner[length..].starts_with('}');
        match known.get(&inner[..length]).filter(|_| closed) {
            Some(value) => {
                out.push_str(value);
                rest = &inner[length + usize::from(braced)..];
            }
            None if after.starts_with('$') => {
                out.push_str("$$");
                rest = &after[1..];
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn pairs(text: &str) -> Vec<String> {
        parse(text).unwrap().into_iter().map(|(key, value)| format!("{key}={value}")).collect()
    }

    #[test]
    fn lines_are_parsed_as_compose_does() {
        let text = "# remark\nA=1\nexport B = two words # remark\n\nC='a $X #'\nD=\"x\\n\\\"y\\\" ${U}\" # r\nE=\nF: yaml\nG\n";
        assert_eq!(pairs(text), ["A=1", "B=two words", "C=a $$X #", "D=x\n\"y\" ${U}", "E=", "F=yaml"]);
        assert_eq!(pairs("A=\"one\ntwo\"\r\nB=2"), ["A=one\ntwo", "B=2"]);
        assert_eq!(pairs("A=a#b\nB=#c"), ["A=a#b", "B="]);
    }

    #[test]
    fn the_examples_of_composes_documentation_have_their_values() {
        for (line, value) in [
            (r"VAR=VAL", "VAL"),
            (r#"VAR="VAL""#, "VAL"),
            (r"VAR='VAL'", "VAL"),
            (r"VAR: VAL", "VAL"),
            (r"VAR = VAL  ", "VAL"),
            (r"VAR=VAL # comment", "VAL"),
            (r"VAR=VAL# not a comment", "VAL# not a comment"),
            (r#"VAR="VAL # not a comment""#, "VAL # not a comment"),
            (r#"VAR="VAL" # comment"#, "VAL"),
            (r"VAR='$OTHER'", "$$OTHER"),
            (r"VAR='${OTHER}'", "$${OTHER}"),
            (r"VAR='Let\'s go!'", "Let's go!"),
            (r#"VAR="{\"hello\": \"json\"}""#, r#"{"hello": "json"}"#),
            (r#"VAR="some\tvalue""#, "some\tvalue"),
            (r"VAR='some\tvalue'", r"some\tvalue"),
            (r"VAR=some\tvalue", r"some\tvalue"),
            ("VAR='SOME\nVALUE'", "SOME\nVALUE"),
            (r#"VAR="a\\b\0101\q\$X""#, r"a\bA\q$$X"),
            ("export\tVAR='a\\\\b'", r"a\\b"),
        ] {
            assert_eq!(pairs(line), [format!("VAR={value}")], "{line}");
        }
        assert_eq!(pairs("a[0]=x\nÜ.b-c=y"), ["a[0]=x", "Ü.b-c=y"]);
    }

    #[test]
    fn a_raw_value_is_the_rest_of_its_line() {
        let read = super::raw("# remark\n  A='x' # $Y \nB=\nC\n").unwrap();
        assert_eq!(
            read.into_iter().collect::<Vec<_>>(),
            [("A".into(), "'x' # $$Y ".into()), ("B".into(), String::new())]
        );
        assert_eq!(super::raw("A=1\nb c=2").unwrap_err(), "is no file of variables: line 2");
    }

    #[test]
    fn names_of_earlier_lines_are_filled_in_and_others_are_not() {
        let text = "H=db\nP=5432\nURL=pg://$H:${P}/x?$$y=${Z:-1}&$Q\nS='$H'";
        assert_eq!(pairs(text), ["H=db", "P=5432", "S=$$H", "URL=pg://db:5432/x?$$y=${Z:-1}&$Q"]);
    }

    #[test]
    fn an_invalid_file_of_variables_is_reported_by_line_only() {
        for (text, line) in [("A=1\nroot x 0 0", 2), ("root:*:0:0\nsecret stuff", 2), ("A=\"x", 1), ("A='x' y", 1)] {
            let message = parse(text).unwrap_err();
            assert_eq!(message, format!("is no file of variables: line {line}"));
        }
    }
}
