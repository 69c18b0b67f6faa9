//! Paths in tokens that have no syntax tree: arguments of macros and of attributes.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

use crate::facts::Path;

/// Calls `found` with each path that may name an item, and its line. A macro's name ends in `!`.
pub(crate) fn paths(tokens: &TokenStream, found: &mut dyn FnMut(Path, usize)) {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => paths(&group.stream(), found),
            TokenTree::Ident(first) => {
                let (path, end) = path_at(&tokens, at);
                if may_name_item(&tokens, at, end) {
                    found(with_bang(path, &tokens, end), first.span().start().line);
                }
                at = end;
                continue;
            }
            TokenTree::Literal(literal) => {
                if let Some(path) = path_in_quotes(&literal.to_string()) {
                    found(path, literal.span().start().line);
                }
            }
            TokenTree::Punct(_) => {}
        }
        at += 1;
    }
}

/// The path that begins at `at`, and the place after it.
fn path_at(tokens: &[TokenTree], mut at: usize) -> (Path, usize) {
    let mut path = vec![];
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        path.push(name.to_string());
        at += 1;
        if !(is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':') && is_ident(tokens.get(at + 2))) {
            break;
        }
        at += 2;
    }
    (path, at)
}

/// A single name in lower case may be a variable or a field, unless it is called.
fn may_name_item(tokens: &[TokenTree], start: usize, end: usize) -> bool {
    let before = start.checked_sub(1).and_then(|it| tokens.get(it));
    let is_external = is_punct(before, ':') && start > 1 && is_punct(tokens.get(start - 2), ':');
    let is_fragment = is_punct(before, '$') && !matches!(&tokens[start], TokenTree::Ident(it) if it == "crate");
    if is_punct(before, '.') || is_external || is_fragment || is_word(before, &["fn", "mod", "let"]) {
        return false;
    }
    let TokenTree::Ident(name) = &tokens[start] else { return false };
    if end - start > 1 || begins_upper(name) {
        return true;
    }
    let is_call = matches!(tokens.get(end), Some(TokenTree::Group(it)) if it.delimiter() == Delimiter::Parenthesis);
    is_call || is_macro(tokens, end)
}

fn is_macro(tokens: &[TokenTree], end: usize) -> bool {
    is_punct(tokens.get(end), '!') && matches!(tokens.get(end + 1), Some(TokenTree::Group(_)))
}

fn with_bang(mut path: Path, tokens: &[TokenTree], end: usize) -> Path {
    if path.len() == 1 && is_macro(tokens, end) {
        path[0].push('!');
    }
    path
}

/// `"super::parse"`, as derives take names of functions.
fn path_in_quotes(literal: &str) -> Option<Path> {
    let text = literal.strip_prefix('"')?.strip_suffix('"')?;
    let path: Path = text.split("::").map(str::to_owned).collect();
    let is_name = |it: &String| !it.is_empty() && it.chars().all(|c| c.is_alphanumeric() || c == '_');
    (path.len() > 1 && path.iter().all(is_name)).then_some(path)
}

fn begins_upper(name: &Ident) -> bool {
    name.to_string().starts_with(char::is_uppercase)
}

fn is_punct(token: Option<&TokenTree>, expected: char) -> bool {
    matches!(token, Some(TokenTree::Punct(it)) if it.as_char() == expected)
}

fn is_ident(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Ident(_)))
}

fn is_word(token: Option<&TokenTree>, words: &[&str]) -> bool {
    matches!(token, Some(TokenTree::Ident(it)) if words.iter().any(|word| it == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_a_macros_arguments_are_found() {
        let tokens: TokenStream =
            "x, a::b(y.len()), Kind::C, render(z), $crate::d::E, write!(f, \"super::g\"), ::std::h, $n"
                .parse()
                .expect("tokens");
        let mut found = vec![];
        paths(&tokens, &mut |path, _| found.push(path.join("::")));
        assert_eq!(found, ["a::b", "Kind::C", "render", "crate::d::E", "write!", "super::g"]);
    }
}
