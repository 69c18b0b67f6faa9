//! Splits a command line into arguments as Compose does.

use super::ModelError;

/// Quotes and backslashes preserve blanks. Operators of a shell are refused: there is no shell, and Compose would
/// drop the text behind them.
pub(super) fn split(line: &str) -> Result<Vec<String>, ModelError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let (mut quote, mut escaped) = (None, false);
    for c in line.chars() {
        match (c, quote) {
            _ if escaped => {
                escaped = false;
                word.get_or_insert_default().push(c);
            }
            ('\\', None | Some('"')) => escaped = true,
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (';' | '&' | '|' | '<' | '>' | '`', None) | ('(', None) => {
                return Err(format!("`{line}` has a `{c}` outside of quotes: write a list such as [sh, -c, …]"));
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() || escaped {
        return Err(format!("`{line}` has a quote that is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn quotes_preserve_blanks() {
        let words = split(r#"echo a\ b "c \"d\" \n"  'e\f' g"h"i "" # x$"#).unwrap();
        assert_eq!(words, ["echo", "a b", "c \"d\" n", r"e\f", "ghi", "", "#", "x$"]);
        assert_eq!(split("  ").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn syntax_of_a_shell_is_refused() {
        for line in ["a && b", "a; b", "a > b", "a | b", "a `b`", "a (b)", "a 'b", "a \"b", "a \\"] {
            assert!(split(line).is_err(), "{line}");
        }
        assert!(split("sh -c 'a && b > c'").is_ok());
    }
}
