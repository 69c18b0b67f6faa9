//! Separates code from comments and texts.

pub(crate) fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|it| it == word)
}

/// Up to the unit tests, which stand last in a file.
pub(crate) fn without_unit_tests(code: &str) -> &str {
    code.split("#[cfg(test)]\nmod ").next().unwrap_or_default()
}

/// The text without remarks and without what stands in quotes.
pub(crate) fn code(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |it| it + 2)
        } else if c == '"' {
            quoted(rest)
        } else if c == 'r' && !kept.ends_with(|it: char| it.is_alphanumeric() || it == '_') {
            raw(rest)
        } else if c == '\'' {
            character(rest)
        } else {
            0
        };
        if skipped == 0 {
            kept.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            rest = &rest[skipped..];
        }
    }
    kept
}

/// The length of a text in quotes.
fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of `r"…"` or `r#"…"#`; 0 for a name that begins with `r`.
fn raw(rest: &str) -> usize {
    let hashes = rest[1..].bytes().take_while(|it| *it == b'#').count();
    let Some(inside) = rest[1 + hashes..].strip_prefix('"') else { return 0 };
    let end = format!("\"{}", "#".repeat(hashes));
    inside.find(&end).map_or(rest.len(), |it| 2 + hashes + it + end.len())
}

/// The length of a character in quotes; 0 for a lifetime.
fn character(rest: &str) -> usize {
    let inside = &rest[1..];
    if let Some(escaped) = inside.strip_prefix('\\') {
        return escaped.char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 3);
    }
    let first = inside.chars().next().map_or(0, char::len_utf8);
    if inside[first..].starts_with('\'') { first + 2 } else { 0 }
}

#[test]
fn code_is_told_from_remarks_and_texts() {
    let text = "a /* b */ c // d\n'\"' '\\'' '\\u{1f600}' &'a str \"e \\\" f\" r#\"g \" h\"# r\"i\" var\"j\" k";
    assert_eq!(code(text), "a  c \n   &'a str    var k");
}
