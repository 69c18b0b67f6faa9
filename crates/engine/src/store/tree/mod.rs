//! A layer's directory, read as the entries of its canonical archive.
//!
//! The canonical order: a directory's own entries by name, then the content of each of its directories in the same order.
//! Whiteouts and opaque directories of the overlay appear in the form of archives (`.wh.NAME`, `.wh..wh..opq`).

mod digest;
mod disk;
mod walk;

pub(crate) use digest::{ContentDigests, DigestSink, TreeDigests};
pub(crate) use walk::{
    EntryPosition, Selection, TreeSink, WalkOptions, is_dir, is_whiteout, names, open_beneath, walk,
};

/// The namespace of the overlay's extended attributes. It depends on who mounts the overlay, as does the permission to create
/// device nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverlayForm {
    /// `trusted.overlay.*`: mounted by root.
    Trusted,
    /// `user.overlay.*`: mounted in a user namespace.
    User,
}

impl OverlayForm {
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Trusted => "trusted.overlay.",
            Self::User => "user.overlay.",
        }
    }

    /// The attribute of an opaque directory, which hides the content of that directory in lower layers.
    pub(crate) fn opaque(self) -> &'static str {
        match self {
            Self::Trusted => "trusted.overlay.opaque",
            Self::User => "user.overlay.opaque",
        }
    }
}

/// The prefix of a whiteout's name in an archive.
pub(crate) const WHITEOUT: &[u8] = b".wh.";
/// The name in an archive that makes its directory opaque.
pub(crate) const OPAQUE: &[u8] = b".wh..wh..opq";

/// Whether an attribute belongs to an image. Others belong to the host or the overlay.
pub(crate) fn is_portable(xattr: &[u8]) -> bool {
    let is_overlay = xattr.starts_with(b"user.overlay.");
    let is_user = xattr.starts_with(b"user.") && !is_overlay;
    is_user || matches!(xattr, b"security.capability" | b"system.posix_acl_access" | b"system.posix_acl_default")
}
