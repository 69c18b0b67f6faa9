//! The certificate authorities that the host trusts. They are public, and programs inside must trust the same ones.

use std::fs;
use std::path::{Path, PathBuf};

use super::host::DebianHost;
use super::tree::{Node, Tree};

const MAX_BYTES: u64 = 1 << 20;

/// Adds the bundle, locally added authorities, and the links by name and hash to packed certificates.
pub(super) fn add(tree: &mut Tree, host: &DebianHost) {
    add_if_public(tree, host, Path::new("etc/ssl/certs/ca-certificates.crt"));
    for path in files_in(host, "usr/local/share/ca-certificates") {
        add_if_public(tree, host, &path);
    }
    if let Ok(list) = host.read("etc/ca-certificates.conf") {
        tree.put("etc/ca-certificates.conf", Node::text(list));
    }
    for path in files_in(host, "etc/ssl/certs") {
        let real = host.root.join(&path);
        let (Ok(target), Ok(end)) = (fs::read_link(&real), fs::canonicalize(&real)) else { continue };
        if end.strip_prefix(&host.root).is_ok_and(|it| tree.has(it)) {
            tree.put(path, Node::Link(target));
        }
    }
}

fn files_in(host: &DebianHost, dir: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(host.root.join(dir)).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|it| Path::new(dir).join(it.file_name())).collect();
    paths.sort_unstable();
    paths
}

/// Adds a file if it contains certificates and nothing private.
fn add_if_public(tree: &mut Tree, host: &DebianHost, path: &Path) {
    let real = host.root.join(path);
    let small = fs::metadata(&real).is_ok_and(|it| it.is_file() && it.len() <= MAX_BYTES);
    match fs::read_to_string(&real) {
        Ok(text) if small && is_public(&text) => tree.put(path, Node::text(text)),
        _ => {}
    }
}

fn is_public(text: &str) -> bool {
    text.contains("-----BEGIN CERTIFICATE-----") && !text.contains("PRIVATE KEY")
}

#[cfg(test)]
mod tests {
    use super::is_public;

    #[test]
    fn a_file_with_a_key_is_left_out() {
        assert!(is_public("# mine\n-----BEGIN CERTIFICATE-----\n"));
        assert!(!is_public("-----BEGIN CERTIFICATE-----\n-----BEGIN RSA PRIVATE KEY-----\n"));
        assert!(!is_public("password"));
    }
}
