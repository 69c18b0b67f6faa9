//! Items in a list of tokens.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::Attribute;
use syn::parse::Parser as _;

/// The attributes that begin at `at`, and the place after them. One of a macro may be a fragment of its arguments, and is none.
#[must_use]
pub fn attributes_at(tokens: &[TokenTree], mut at: usize) -> (Vec<Attribute>, usize) {
    let mut attributes = vec![];
    while let [mark, group @ TokenTree::Group(_)] = &tokens[at..tokens.len().min(at + 2)]
        && is_punct(mark, '#')
    {
        let stream: TokenStream = [mark.clone(), group.clone()].into_iter().collect();
        attributes.extend(Attribute::parse_outer.parse2(stream).unwrap_or_default());
        at += 2;
    }
    (attributes, at)
}

/// The last token of what begins at `at`: a comma, a semicolon or a block.
#[must_use]
pub fn end_of_item(tokens: &[TokenTree], at: usize) -> usize {
    let ends = |token: &TokenTree| {
        let is_block = matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        is_punct(token, ',') || is_punct(token, ';') || is_block
    };
    tokens[at..].iter().position(ends).map_or(tokens.len() - 1, |length| at + length)
}

/// `x` of the tokens `mod x;`, whatever stands before them.
#[must_use]
pub fn declared_module(item: &[TokenTree]) -> Option<String> {
    let [.., TokenTree::Ident(word), TokenTree::Ident(name), end] = item else { return None };
    (word == "mod" && is_punct(end, ';')).then(|| name.to_string())
}

#[must_use]
pub fn is_punct(token: &TokenTree, expected: char) -> bool {
    matches!(token, TokenTree::Punct(it) if it.as_char() == expected)
}
