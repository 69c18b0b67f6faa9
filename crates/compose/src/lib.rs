//! Stacks of services beside a container.
//!
//! [`read`] parses the text of a Compose file and reads the files of variables that it names; [`admit`] fills in
//! variables, expands short forms, and builds a model from known keys, an [`AdmittedStack`]; [`claim`], [`up`],
//! [`services`] and [`down`] operate on the engine.
//!
//! ```
//! use std::path::Path;
//!
//! use coracle_compose::{Rules, admit, read};
//! use coracle_runtime::Policy;
//! use coracle_types::{LabelNamespace, ProjectName};
//!
//! let (policy, namespace) = (Policy::permissive("/home/me".into()), LabelNamespace::parse("example")?);
//! let (rules, project) = (Rules::new(&policy, &namespace), ProjectName::parse("shop")?);
//! let file = read("services: { db: { image: 'postgres:17' } }", Path::new("/"), &policy)?;
//! let stack = admit(&file, &project, &rules)?;
//! assert_eq!(stack.services()[0].service, "db");
//!
//! let file = read("services: { db: { image: 'postgres:17', privileged: true } }", Path::new("/"), &policy)?;
//! let refused = admit(&file, &project, &rules).unwrap_err();
//! assert!(refused.to_string().contains("privileged"));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! **Invariant:** every engine gets the model. No program of an engine reads the text, nor a file that the text names.
//! **Invariant:** an unknown key is refused, never ignored and never passed on.
//! **Invariant:** every violation is reported, with its service and key.
//! **Invariant:** a stack is brought up from an [`AdmittedStack`] only, and only [`admit`] creates one.
//! **Invariant:** a project is taken down only after a proof that all of it is Coracle's.

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
