//! Patterns of callers, which host and guest compile the same way.

mod line;
mod path;

pub use self::line::line_pattern;
pub use self::path::{MAX_PATTERN, Pattern};
