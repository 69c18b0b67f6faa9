//! Tar archives, OCI image layouts and Docker image archives: reads untrusted ones, writes canonical ones.
//!
//! - [`tar`]: the format itself, with a bounded reader and a canonical writer.
//! - [`transfer`]: copies files and directories between two hosts.
//! - [`restore`]: unpacks archives as files of a container, with owners and modes.
//! - [`index`]: locates the files in an archive.
//! - [`oci`]: manifests, indexes, configurations and platforms of images.
//! - [`layout`]: finds images of a layout or of `docker save` by name and platform.
//! - [`image`]: reads and writes archives of one image with other labels.
//!
//! **Invariant:** an archive is untrusted: what is read into memory is bounded, and nothing is written outside the
//! given directory.
//! **Invariant:** there is one reader and one writer of tar, which the rest of the crate uses.
//! **Invariant:** nothing here depends on an engine, a registry or a container.
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
