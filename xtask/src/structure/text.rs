//! Separates code from comments and quoted texts.

pub fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|it| it == word)
}

/// Up to the unit tests, which stand last in a file.
pub fn without_unit_tests(code: &str) -> &str {
    code.split("#[cfg(test)]\nmod ").next().unwrap_or_default()
}

/// The code of a Rust file, without comments and quoted texts.
pub fn code(text: &str) -> String {
    split(text).0
}

/// The comments of a Rust file that begin with `//`, without the slashes.
pub fn comments(text: &str) -> String {
    split(text).1
}

/// Code and comments.
fn split(text: &str) -> (String, String) {
    let (mut code, mut comments) = (String::with_capacity(text.len()), String::new());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |it| it + 2)
        } else if c == '"' {
            quoted(rest)
        } else if c == 'r' && !code.ends_with(|it: char| it.is_alphanumeric() || it == '_') {
            raw(rest)
        } else if c == '\'' {
            character(rest)
        } else {
            0
        };
        if skipped == 0 {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            if rest.starts_with("//") {
                comments.push_str(rest[..skipped].trim_start_matches('/'));
                comments.push('\n');
            }
            rest = &rest[skipped..];
        }
    }
    (code, comments)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comments_and_texts_are_separated() {
        let text = "a /* b */ c // d\n'\"' '\\'' '\\u{1f600}' &'a str \"e \\\" f\" r#\"g \" h\"# r\"i\" var\"j\" k";
        assert_eq!(comments(text), " d\n");
        assert_eq!(code(text), "a  c \n   &'a str    var k");
    }
}
