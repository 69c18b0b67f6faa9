//! Checked names of entries.

use std::ffi::CString;

use super::super::LayerRefusal;

/// A path below the layer's root, whose components are neither empty, `.` nor `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryPath {
    bytes: Vec<u8>,
}

/// Maximum length of a path component, and of a path in one system call.
const MAX_NAME: usize = 255;
const MAX_PATH: usize = 4000;

impl EntryPath {
    /// Checks a name. `/` and `.` are the root.
    pub(super) fn parse(name: &[u8], max_depth: usize) -> Result<Self, LayerRefusal> {
        let refused = |why: &str| LayerRefusal::entry(name, why);
        let parts = || name.split(|it| *it == b'/').filter(|it| !matches!(*it, b"" | b"."));
        if name.is_empty() {
            return Err(refused("has no name"));
        }
        if name.starts_with(b"/") && parts().next().is_some() {
            return Err(refused("is absolute"));
        }
        if parts().any(|it| it == b"..") {
            return Err(refused("leads upwards"));
        }
        if parts().count() > max_depth {
            return Err(LayerRefusal::TooLarge { what: "parts of a path".into(), limit: max_depth as u64 });
        }
        if name.len() > MAX_PATH || parts().any(|it| it.len() > MAX_NAME) {
            return Err(refused("is too long"));
        }
        Ok(Self { bytes: parts().collect::<Vec<_>>().join(&b'/') })
    }

    pub(super) fn is_root(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The parent directory; empty for the root.
    pub(super) fn parent(&self) -> &[u8] {
        self.bytes.iter().rposition(|it| *it == b'/').map_or(&[], |at| &self.bytes[..at])
    }

    /// The last part.
    pub(super) fn name(&self) -> &[u8] {
        self.bytes.iter().rposition(|it| *it == b'/').map_or(&self.bytes, |at| &self.bytes[at + 1..])
    }

    /// The last part, as system calls take it.
    pub(super) fn c_name(&self) -> CString {
        CString::new(self.name()).expect("the reader refuses names with a NUL")
    }

    /// Another name in the same directory.
    pub(super) fn sibling(&self, name: &[u8]) -> Self {
        let parent = self.parent();
        Self { bytes: if parent.is_empty() { name.to_vec() } else { [parent, name].join(&b'/') } }
    }
}

/// Encodes a path, which may contain any byte, as text for records.
pub(super) fn text(path: &[u8]) -> String {
    if path.is_empty() { "/".to_owned() } else { path.escape_ascii().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_beneath_the_root_or_are_refused() {
        for (name, path) in
            [("a", "a"), ("./a//b/./c/", "a/b/c"), (".", ""), ("./", ""), ("/", ""), ("...", "..."), ("a/..b", "a/..b")]
        {
            assert_eq!(EntryPath::parse(name.as_bytes(), 9).unwrap().as_bytes(), path.as_bytes(), "{name}");
        }
        for name in ["", "/a", "//a", "..", "a/..", "../a", "a/../b", "/..", &"n".repeat(256), &"n/".repeat(2001)] {
            assert!(EntryPath::parse(name.as_bytes(), 9999).is_err(), "{name}");
        }
        assert!(EntryPath::parse(b"a/b/c", 2).is_err());
    }

    #[test]
    fn a_path_has_a_parent_and_a_name() {
        let path = EntryPath::parse(b"a/b/c", 9).unwrap();
        assert_eq!((path.parent(), path.name()), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(path.sibling(b"d").as_bytes(), b"a/b/d");
        let top = EntryPath::parse(b"a", 9).unwrap();
        assert_eq!((top.parent(), top.name(), top.sibling(b"b").as_bytes()), (&b""[..], &b"a"[..], &b"b"[..]));
    }
}
