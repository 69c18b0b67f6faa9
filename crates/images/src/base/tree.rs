//! The entries of a base by path. Does no I/O.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Entries by path without a leading slash, sorted, so that the tar is reproducible.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tree(BTreeMap<PathBuf, Node>);

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// Copied from the host: a regular file, a directory or a link, with its mode and owner.
    Host(PathBuf),
    /// A directory of root.
    Dir { mode: u32 },
    /// A file of root.
    File { mode: u32, gid: u32, bytes: Vec<u8> },
    /// A symbolic link.
    Link(PathBuf),
}

impl Node {
    /// A world-readable file.
    pub(super) fn text(text: impl Into<Vec<u8>>) -> Self {
        Self::File { mode: 0o644, gid: 0, bytes: text.into() }
    }
}

impl Tree {
    /// Adds an entry, or replaces it.
    pub(super) fn put(&mut self, path: impl AsRef<Path>, node: Node) {
        let path = path.as_ref();
        self.0.insert(path.strip_prefix("/").unwrap_or(path).to_owned(), node);
    }

    /// Adds an entry unless one exists.
    pub(super) fn put_new(&mut self, path: impl AsRef<Path>, node: Node) {
        if !self.has(path.as_ref()) {
            self.put(path, node);
        }
    }

    /// Whether an entry of that path exists, with or without a leading slash.
    pub(super) fn has(&self, path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        self.0.contains_key(path.strip_prefix("/").unwrap_or(path))
    }

    /// Adds missing parent directories.
    pub(super) fn close(&mut self) {
        let parents = self.0.keys().flat_map(|it| it.ancestors().skip(1)).filter(|it| !it.as_os_str().is_empty());
        for parent in parents.map(Path::to_owned).collect::<std::collections::BTreeSet<_>>() {
            self.put_new(parent, Node::Dir { mode: 0o755 });
        }
    }

    /// The entries; a directory precedes its content.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Path, &Node)> {
        self.0.iter().map(|(path, node)| (path.as_path(), node))
    }
}
