//! Stacks of services beside a container.
//!
//! [`read`] is our own first look at the text, before Compose sees it; what Compose makes of it goes through [`admit`],
//! which copies what it knows into a new model, an [`AdmittedStack`]; [`claim`], [`up`], [`services`] and [`down`] act.
//!
//! **Invariant:** what Compose gets to read is written by [`read`], from what was understood of the text; Compose opens
//! no other file for it.
//! **Invariant:** a key that is not in a table is refused, never ignored and never passed on.
//! **Invariant:** every broken rule is reported, with its service and key.
//! **Invariant:** a stack is brought up from an [`AdmittedStack`] only, and only [`admit`] makes one.
//! **Invariant:** a project is taken down only by those who proved that all of it is ours.

#![warn(missing_docs)]

mod admit;
mod diagnostics;
#[cfg(test)]
mod fixtures;
mod read;
mod rules;
mod stack;

pub use admit::{AdmittedStack, BoundFileError, LabelledPart, ReassignedPort, StackImage, admit};
pub use read::{ComposeFile, ReadError, read};
pub use rules::Rules;
pub use stack::{BadService, Claim, Service, StackError, UpOptions, claim, down, services, up};
