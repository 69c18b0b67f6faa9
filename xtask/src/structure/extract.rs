//! Extracts facts from the tokens of a file. No syntax tree is built: macros and attributes have none, and paths look the same
//! everywhere.

use std::mem;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::Attribute;
use syn::parse::Parser as _;

use crate::conditions::is_test_only;
use crate::facts::{Body, Child, Definition, FileFacts, Lines, ModuleFacts, Path};
use crate::tokens::{attributes_at, declared_module, end_of_item, is_punct};
use crate::uses::imports;

/// Words before the name of an item.
const ITEMS: &[&str] = &["const", "enum", "fn", "static", "struct", "trait", "type", "union"];

pub(crate) fn extract(text: &str) -> syn::Result<FileFacts> {
    let tokens: Vec<TokenTree> = text.parse::<TokenStream>()?.into_iter().collect();
    let mut extractor = Extractor::default();
    if extractor.is_test_file(&tokens)? {
        return Ok(FileFacts { lines: test_lines(text), ..FileFacts::default() });
    }
    extractor.walk(&tokens, true)?;
    Ok(FileFacts { lines: count(text, &extractor.test_ranges), module: extractor.module })
}

/// The lines of a file that is compiled for tests alone.
pub(crate) fn test_lines(text: &str) -> Lines {
    Lines { code: 0, tests: text.lines().filter(|it| is_code(it)).count() }
}

fn count(text: &str, tests: &[(usize, usize)]) -> Lines {
    let mut lines = Lines::default();
    for (at, _) in text.lines().enumerate().filter(|(_, line)| is_code(line)) {
        let is_test = tests.iter().any(|(first, last)| (*first..=*last).contains(&(at + 1)));
        *(if is_test { &mut lines.tests } else { &mut lines.code }) += 1;
    }
    lines
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

#[derive(Default)]
struct Extractor {
    module: ModuleFacts,
    /// First and last lines of what is compiled for tests alone.
    test_ranges: Vec<(usize, usize)>,
}

impl Extractor {
    /// Whether the file begins with `#![cfg(test)]`.
    fn is_test_file(&self, tokens: &[TokenTree]) -> syn::Result<bool> {
        let mut inner =
            tokens.windows(3).take_while(|three| is_punct(&three[0], '#') || matches!(three[0], TokenTree::Group(_)));
        let mut attributes = vec![];
        while let Some(three) = inner.find(|three| is_punct(&three[0], '#') && is_punct(&three[1], '!')) {
            let stream: TokenStream = three.iter().cloned().collect();
            attributes.extend(Attribute::parse_inner.parse2(stream)?);
        }
        Ok(is_test_only(&attributes))
    }

    /// Reads the tokens of a module, or of anything inside of one.
    fn walk(&mut self, tokens: &[TokenTree], is_module: bool) -> syn::Result<()> {
        let (mut at, mut attributes) = (0, vec![]);
        while let Some(token) = tokens.get(at) {
            let (found, start) = attributes_at(tokens, at);
            if start > at {
                if is_test_only(&found) {
                    at = self.skip_test(tokens, start, &found, is_module);
                } else {
                    tokens[at..start]
                        .iter()
                        .try_for_each(|it| if let TokenTree::Group(it) = it { self.inside(it) } else { Ok(()) })?;
                    (attributes, at) = (found, start);
                }
                continue;
            }
            // The item itself stands behind its visibility.
            let is_visibility = matches!(token, TokenTree::Ident(word) if word == "pub");
            let attributes = if is_visibility { attributes.clone() } else { mem::take(&mut attributes) };
            at = match token {
                TokenTree::Ident(word) => self.word(&word.to_string(), tokens, at, is_module, &attributes)?,
                TokenTree::Group(group) => {
                    self.inside(group)?;
                    at + 1
                }
                TokenTree::Literal(literal) => {
                    if let Some(path) = path_in_quotes(&literal.to_string()) {
                        self.mention(path, line(token));
                    }
                    at + 1
                }
                TokenTree::Punct(_) => at + 1,
            };
        }
        Ok(())
    }

    fn inside(&mut self, group: &Group) -> syn::Result<()> {
        self.walk(&group.stream().into_iter().collect::<Vec<_>>(), false)
    }

    /// Reads what begins with a word; the place after it.
    fn word(
        &mut self,
        word: &str,
        tokens: &[TokenTree],
        at: usize,
        is_module: bool,
        attributes: &[Attribute],
    ) -> syn::Result<usize> {
        let next = tokens.get(at + 1);
        match (word, next) {
            // `pub(in crate::a)` is no use of `a`.
            ("pub", Some(TokenTree::Group(group))) if group.delimiter() == Delimiter::Parenthesis => return Ok(at + 2),
            ("use", Some(next)) if !is_punct(next, '<') => return self.import(tokens, at, is_module),
            ("mod", Some(TokenTree::Ident(name))) if is_module => {
                let end = at + 3;
                let body = match tokens.get(at + 2) {
                    Some(TokenTree::Group(group)) => Body::Inline(self.inline(group)?),
                    _ => Body::File { path: path_attribute(attributes) },
                };
                self.module.children.push(Child { name: name.to_string(), is_test: false, body });
                return Ok(end);
            }
            _ => {}
        }
        if is_module && let Some(name) = defined(word, &tokens[at..]) {
            self.module.definitions.push(Definition { name, is_macro: word == "macro_rules" });
        }
        let (path, end) = path_at(tokens, at);
        if may_name_item(tokens, at, end) {
            self.mention(with_bang(path, tokens, end), line(&tokens[at]));
        }
        Ok(end)
    }

    /// An import. One inside of a function binds no name of the module, so each path of it counts as used there.
    fn import(&mut self, tokens: &[TokenTree], at: usize, is_module: bool) -> syn::Result<usize> {
        let length = tokens[at..].iter().position(|it| is_punct(it, ';')).map_or(tokens.len() - at, |it| it + 1);
        // That of a macro may have fragments of its arguments.
        let Ok(item) = syn::parse2(tokens[at..at + length].iter().cloned().collect()) else { return Ok(at + length) };
        let before = |back: usize| at.checked_sub(back).map(|it| &tokens[it]);
        let is_pub = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Ident(it)) if it == "pub");
        let is_reexport = is_pub(before(1)) || (matches!(before(1), Some(TokenTree::Group(_))) && is_pub(before(2)));
        for import in imports(&item, is_reexport) {
            if is_module {
                self.module.imports.push(import);
            } else {
                self.mention(import.path, import.line);
            }
        }
        Ok(at + length)
    }

    fn inline(&mut self, group: &Group) -> syn::Result<ModuleFacts> {
        let outer = mem::take(&mut self.module);
        self.walk(&group.stream().into_iter().collect::<Vec<_>>(), true)?;
        Ok(mem::replace(&mut self.module, outer))
    }

    /// Skips what is for tests alone; a module in a file of its own is noted.
    fn skip_test(&mut self, tokens: &[TokenTree], at: usize, attributes: &[Attribute], is_module: bool) -> usize {
        let end = end_of_item(tokens, at);
        let first = attributes.first().map_or(line(&tokens[at]), |it| it.pound_token.span.start().line);
        self.test_ranges.push((first, tokens[end].span().end().line));
        if let Some(name) = declared_module(&tokens[at..=end]).filter(|_| is_module) {
            let body = Body::File { path: path_attribute(attributes) };
            self.module.children.push(Child { name, is_test: true, body });
        }
        end + 1
    }

    fn mention(&mut self, path: Path, line: usize) {
        if path[0] != "Self" && path != ["self"] {
            self.module.mentions.entry(path).or_insert(line);
        }
    }
}

/// The name that an item at the beginning of the tokens defines.
fn defined(word: &str, tokens: &[TokenTree]) -> Option<String> {
    let at = match word {
        "macro_rules" => 2,
        "static" if matches!(tokens.get(1), Some(TokenTree::Ident(it)) if it == "mut") => 2,
        _ if ITEMS.contains(&word) => 1,
        _ => return None,
    };
    let TokenTree::Ident(name) = tokens.get(at)? else { return None };
    (!ITEMS.contains(&name.to_string().as_str())).then(|| name.to_string())
}

/// The path that begins at `at`, and the place after it.
fn path_at(tokens: &[TokenTree], mut at: usize) -> (Path, usize) {
    let mut path = vec![];
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        path.push(name.to_string());
        at += 1;
        let is_colon = |place: usize| tokens.get(place).is_some_and(|it| is_punct(it, ':'));
        if !(is_colon(at) && is_colon(at + 1) && matches!(tokens.get(at + 2), Some(TokenTree::Ident(_)))) {
            break;
        }
        at += 2;
    }
    (path, at)
}

/// A single name in lower case may be a variable or a field, unless it is called.
fn may_name_item(tokens: &[TokenTree], start: usize, end: usize) -> bool {
    let is_before = |back: usize, mark: char| start.checked_sub(back).is_some_and(|it| is_punct(&tokens[it], mark));
    let TokenTree::Ident(name) = &tokens[start] else { return false };
    let is_external = is_before(1, ':') && is_before(2, ':');
    let is_fragment = is_before(1, '$') && name != "crate";
    let is_new =
        matches!(start.checked_sub(1).map(|it| &tokens[it]), Some(TokenTree::Ident(it)) if it == "fn" || it == "let");
    if is_before(1, '.') || is_external || is_fragment || is_new {
        return false;
    }
    let is_call = matches!(tokens.get(end), Some(TokenTree::Group(it)) if it.delimiter() == Delimiter::Parenthesis);
    end - start > 1 || name.to_string().starts_with(char::is_uppercase) || is_call || is_macro(tokens, end)
}

fn is_macro(tokens: &[TokenTree], end: usize) -> bool {
    tokens.get(end).is_some_and(|it| is_punct(it, '!')) && matches!(tokens.get(end + 1), Some(TokenTree::Group(_)))
}

/// A macro's name ends in `!`.
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

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|it| it.path().is_ident("path"))?;
    let value = &attribute.meta.require_name_value().ok()?.value;
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) = value else { return None };
    Some(path.value())
}

fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_code_attributes_and_arguments_of_macros() {
        let text = "fn it() { m!(x, a::b(y.len()), Kind::C, render(z), $crate::d::E, \"super::g\", ::std::h, $n) }";
        let facts = extract(text).expect("tokens");
        let found: Vec<String> = facts.module.mentions.keys().map(|path| path.join("::")).collect();
        assert_eq!(found, ["Kind::C", "a::b", "crate::d::E", "m!", "render", "super::g"]);
    }

    #[test]
    fn a_module_has_the_path_of_its_attribute() {
        let facts = extract("#[path = \"odd.rs\"]\npub(crate) mod a;\nmod b;").expect("tokens");
        let paths: Vec<String> = facts.module.children.iter().map(|child| format!("{:?}", child.body)).collect();
        assert_eq!(paths, ["File { path: Some(\"odd.rs\") }", "File { path: None }"]);
    }

    #[test]
    fn lines_of_tests_are_no_code() {
        let text = "fn a() {}\n\n// no\n#[cfg(test)]\nuse x::{y, z};\nimpl A {\n    #[cfg(test)]\n    fn b() {\n    }\n}\n#[test]\nfn c() {}\n#[cfg(test)]\nmod tests;\n";
        let lines = extract(text).expect("tokens").lines;
        assert_eq!(lines, Lines { code: 3, tests: 9 });
        assert_eq!(extract("#![cfg(test)]\nfn a() {}\n").expect("tokens").lines, Lines { code: 0, tests: 2 });
    }
}
