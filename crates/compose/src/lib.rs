//! Stacks of services beside a container.
//!
//! [`read`] parses the text of a Compose file and reads the files of variables that it names; [`admit`] fills in variables,
//! writes out short forms, and makes a model of the keys that it knows, an [`AdmittedStack`]; [`claim`], [`up`],
//! [`services`] and [`down`] act.
//!
//! **Invariant:** every engine gets the model. No program of an engine reads the text, nor a file that the text names.
//! **Invariant:** a key that is not known is refused, never ignored and never passed on.
//! **Invariant:** every broken rule is reported, with its service and key.
//! **Invariant:** a stack is brought up from an [`AdmittedStack`] only, and only [`admit`] makes one.
//! **Invariant:** a project is taken down only by those who proved that all of it is ours.

#![warn(missing_docs)]

mod admit;
mod diagnostics;
#[cfg(test)]
mod fixtures;
mod normalise;
mod read;
mod rules;
mod stack;

pub use admit::{AdmittedStack, BoundFileError, LabelledPart, ReassignedPort, StackImage, admit};
pub use read::{ComposeFile, ReadError, read};
pub use rules::Rules;
pub use stack::{BadService, Claim, Service, StackError, UpOptions, claim, down, services, up};
