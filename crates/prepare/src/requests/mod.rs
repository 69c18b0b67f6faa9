//! What calls ask for, as it is read: plain types that nothing has been decided about.

mod content;
mod create;
mod short_forms;

pub use self::content::Content;
pub use self::create::{Create, IfExists, MountArg, PortArg, RepoArg, without_image};
