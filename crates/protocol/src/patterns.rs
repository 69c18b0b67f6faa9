//! Patterns that callers write, and that host and guest read alike.

mod line;
mod path;

pub use self::line::line_pattern;
pub use self::path::{MAX_PATTERN, Pattern};
