//! Parses JSON with comments and trailing commas, and no other extension.

use std::collections::BTreeMap;

use coracle_types::failure::Result;
use jsonc_parser::ast::Value as Node;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::{Map, Value};

use crate::refusal::invalid;

/// Line and column of each property, from 1.
pub(super) type Places = BTreeMap<String, (usize, usize)>;

const READS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Parses the object of a file.
///
/// # Errors
/// `devcontainer_invalid` with line and column.
pub(super) fn object(bytes: &[u8]) -> Result<(Places, Map<String, Value>)> {
    let text = std::str::from_utf8(bytes).map_err(|err| {
        let before = String::from_utf8_lossy(&bytes[..err.valid_up_to()]);
        invalid(Some(place(&before, before.len())), "it is not UTF-8")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let read = parse_to_ast(text, &CollectOptions::default(), &READS).map_err(|err| {
        let at = (err.line_display(), err.column_display());
        invalid(Some(at), &err.kind().to_string().to_lowercase())
    })?;
    let Some(Node::Object(object)) = read.value else { return Err(invalid(Some((1, 1)), "it is no object")) };
    let (mut places, mut all) = (Places::new(), Map::new());
    for property in object.properties {
        let at = place(text, property.range().start);
        let name = property.name.into_string();
        if places.insert(name.clone(), at).is_some() {
            return Err(invalid(Some(at), &format!("`{}` is there twice", name.escape_debug())));
        }
        all.insert(name, property.value.into());
    }
    Ok((places, all))
}

/// Returns line and column of a byte offset.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at.min(text.len())];
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}
