//! Files of variables and labels, read in place of Compose: it would open them again by name.

use std::collections::BTreeMap;
use std::io::Read as _;

use coracle_runtime::host::fs::HostPath;

const MAX_BYTES: u64 = 1 << 20;

/// Reads a file of `NAME=value` lines. A value is as the `environment` of a Compose file has it: Compose fills in what
/// is left of its variables, and a `$$` is a `$`.
pub(super) fn read(file: &HostPath) -> Result<BTreeMap<String, String>, String> {
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
    parse(&text)
}

/// Errors name the line and none of its text: the caller may not be allowed to see it.
fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let mut rest = text.as_str();
    while !rest.trim_start().is_empty() {
        rest = rest.trim_start();
        let failed = || {
            let line = text[..text.len() - rest.len()].matches('\n').count() + 1;
            format!("is no file of variables: line {line}")
        };
        let end = rest.find('\n').unwrap_or(rest.len());
        if rest.starts_with('#') {
            rest = &rest[end..];
            continue;
        }
        let line = &rest[..end];
        let Some(split) = line.find(['=', ':']) else {
            // A name alone would be taken from the environment, which is not the host's.
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
    let text = text.strip_prefix("export ").unwrap_or(text).trim_start();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    (!text.is_empty() && text.chars().all(plain)).then_some(text)
}

/// A value, and what comes after it. In single quotes everything is what it is; in double quotes a value may go over
/// lines; else it ends with its line or before a remark.
fn value<'a>(text: &'a str, known: &BTreeMap<String, String>) -> Option<(String, &'a str)> {
    let text = text.trim_start_matches([' ', '\t']);
    let (value, rest) = if let Some(quoted) = text.strip_prefix('\'') {
        let end = quoted.find('\'')?;
        (quoted[..end].replace('$', "$$"), &quoted[end + 1..])
    } else if let Some(quoted) = text.strip_prefix('"') {
        let (value, rest) = unescaped(quoted)?;
        (filled(&value, known), rest)
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

fn unescaped(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                '$' => value.push_str("$$"),
                c => value.push(c),
            },
            c => value.push(c),
        }
    }
    None
}

/// `$NAME` and `${NAME}` of lines above; what else there is of variables is left to Compose.
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
    fn lines_are_read_as_compose_reads_them() {
        let text = "# remark\nA=1\nexport B = two words # remark\n\nC='a $X #'\nD=\"x\\n\\\"y\\\" ${U}\" # r\nE=\nF: yaml\nG\n";
        assert_eq!(pairs(text), ["A=1", "B=two words", "C=a $$X #", "D=x\n\"y\" ${U}", "E=", "F=yaml"]);
        assert_eq!(pairs("A=\"one\ntwo\"\r\nB=2"), ["A=one\ntwo", "B=2"]);
        assert_eq!(pairs("A=a#b\nB=#c"), ["A=a#b", "B="]);
    }

    #[test]
    fn names_of_lines_above_are_filled_in_and_others_are_left() {
        let text = "H=db\nP=5432\nURL=pg://$H:${P}/x?$$y=${Z:-1}&$Q\nS='$H'";
        assert_eq!(pairs(text), ["H=db", "P=5432", "S=$$H", "URL=pg://db:5432/x?$$y=${Z:-1}&$Q"]);
    }

    #[test]
    fn what_is_no_file_of_variables_is_told_by_line_alone() {
        for (text, line) in [("A=1\nroot x 0 0", 2), ("root:*:0:0\nsecret stuff", 2), ("A=\"x", 1), ("A='x' y", 1)] {
            let told = parse(text).unwrap_err();
            assert_eq!(told, format!("is no file of variables: line {line}"));
        }
    }
}
