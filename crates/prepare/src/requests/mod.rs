//! The arguments of calls as they are parsed: plain types, before defaults are filled in.

mod content;
mod create;
mod short_forms;

pub use self::content::Content;
pub use self::create::{Create, IfExists, MountArg, PortArg, RepoArg, without_image};
