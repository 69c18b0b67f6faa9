//! The files of the workspace: one file for each tool.

mod edit;
mod info;
mod ls;
mod read;
mod rm;
mod write;

pub use self::edit::EditFile;
pub use self::info::FileInfo;
pub(crate) use self::info::{shown_time, versioned};
pub use self::ls::Ls;
pub use self::read::{ReadFile, ReadFileResult};
pub use self::rm::{DeleteEntry, Rm};
pub use self::write::{WriteFile, WrittenFile};
