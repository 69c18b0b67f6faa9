//! Parameters that both kinds of searches share.

use coracle_protocol::workspace::SearchLimits;

use crate::Code;
use crate::paths::PathCharset;
use crate::response::{Result, fail};

/// The limits of a search with so many results.
pub(super) fn bounds(most: u32) -> SearchLimits {
    SearchLimits { most, entries: 200_000, within_ms: 10_000 }
}

/// A pattern for paths, without a slash at its start.
pub(super) fn pattern(text: &str, charset: PathCharset) -> Result<String> {
    let text = text.trim();
    if text.is_empty() {
        return fail(Code::InvalidPattern, "Pattern must not be empty.");
    }
    if text.contains('\0') || (charset == PathCharset::Ascii && !text.is_ascii()) {
        return fail(Code::InvalidPattern, "Pattern must be ASCII text.");
    }
    if text.split('/').any(|it| it == "..") {
        return fail(Code::InvalidPattern, "Pattern must not contain '..' segments.");
    }
    Ok(text.trim_start_matches('/').to_owned())
}
