//! Tar archives, OCI image layouts and Docker image archives: read without trust, written once.
//!
//! - [`tar`]: the format itself, with a bounded reader and a canonical writer.
//! - [`transfer`]: files and directories on their way between two machines.
//! - [`restore`]: archives that become files of a container, with owners and modes.
//! - [`index`]: where the files of an archive lie.
//! - [`oci`]: manifests, indexes, configurations and platforms of images.
//! - [`layout`]: images of a layout or of `docker save`, found by name and platform.
//! - [`image`]: archives of one image, read and written with other labels.
//!
//! **Invariant:** an archive is hostile data: what is read into memory is bounded, and nothing is written outside the given
//! directory.
//! **Invariant:** there is one reader and one writer of tar; the rest of the crate stands on them.
//! **Invariant:** nothing here knows an engine, a registry or a container.
//!
//! ```
//! use std::io::Read as _;
//!
//! use coracle_archive::tar::{TarEntry, EntryKind, Reader, Writer};
//!
//! let mut writer = Writer::new(Vec::new());
//! writer.write_file(&TarEntry::new("etc/motd", EntryKind::file(6), 0o644), &b"hello\n"[..])?;
//! let archive = writer.finish()?;
//!
//! let mut reader = Reader::new(&archive[..]);
//! let entry = reader.next_entry()?.expect("the archive has an entry");
//! let mut text = String::new();
//! reader.read_to_string(&mut text)?;
//! assert_eq!((entry.path.as_slice(), text.as_str()), (&b"etc/motd"[..], "hello\n"));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

mod digest;
pub mod image;
pub mod index;
pub mod layout;
pub mod oci;
pub mod restore;
pub mod tar;
pub mod transfer;

pub use digest::{HashingStream, Sha256Digest};
