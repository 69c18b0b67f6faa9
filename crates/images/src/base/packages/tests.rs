use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek};
use std::os::unix::fs::symlink;

use insta::assert_snapshot;
use tempfile::TempDir;

use super::inspect;
use crate::base::fixture::{self, write};

/// Returns what is packed: paths with the target of a link or the text of a generated file, and the note.
fn packed(root: &TempDir) -> (BTreeMap<String, String>, String) {
    let mut tar = tempfile::tempfile().unwrap();
    let note = inspect(root.path(), "amd64").unwrap().pack(&tar).unwrap();
    tar.rewind().unwrap();
    let mut all = BTreeMap::new();
    for entry in tar::Archive::new(tar).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut text = entry.link_name().unwrap().map(|it| format!("-> {}", it.display())).unwrap_or_default();
        entry.read_to_string(&mut text).unwrap();
        all.insert(path.trim_end_matches('/').to_owned(), text);
    }
    (all, note)
}

#[test]
fn a_base_contains_only_the_closure_as_packaged() {
    let (all, note) = packed(&fixture::host());
    let paths: Vec<_> = all.keys().map(String::as_str).filter(|it| it.starts_with(['b', 'e', 'r', 'u', 'h'])).collect();
    assert_snapshot!(paths.join("\n"), @r"
    bin
    boot
    etc
    etc/alternatives
    etc/alternatives/awk
    etc/apt
    etc/apt/sources.list.d
    etc/apt/sources.list.d/debian.sources
    etc/group
    etc/gshadow
    etc/localtime
    etc/pam.d
    etc/pam.d/common-account
    etc/pam.d/common-auth
    etc/pam.d/common-password
    etc/pam.d/common-session
    etc/pam.d/common-session-noninteractive
    etc/passwd
    etc/same.conf
    etc/shadow
    etc/shells
    etc/ssl
    etc/ssl/certs
    etc/ssl/certs/ca-certificates.crt
    etc/timezone
    home
    root
    run
    run/lock
    usr
    usr/bin
    usr/bin/awk
    usr/bin/bash
    usr/bin/git
    usr/bin/mawk
    usr/bin/tool
    usr/lib
    usr/lib/git
    usr/lib/git/core
    usr/lib/python3
    usr/lib/python3/__pycache__
    usr/lib/python3/__pycache__/os.cpython-311.pyc
    usr/lib/python3/os.py
    usr/local
    usr/local/bin
    usr/share
    usr/share/doc
    usr/share/doc/git
    usr/share/doc/git/copyright
    ");
    assert_snapshot!(note, @"made from 8 packages installed on this host (Debian 12, Python 2.3, git 2.3), 0 MB; 1 changed configuration files left out; 1 files could not be read");
}

#[test]
fn the_package_database_lists_the_closure_only() {
    let (all, _) = packed(&fixture::host());
    let dpkg = all.iter().filter(|(path, _)| path.starts_with("var/lib/dpkg/") && !path.contains("/info/"));
    let shown: Vec<_> = dpkg.map(|(path, text)| format!("{path}: {}", text.len())).collect();
    assert_snapshot!(shown.join("\n"), @r"
    var/lib/dpkg/alternatives: 0
    var/lib/dpkg/alternatives/awk: 36
    var/lib/dpkg/available: 0
    var/lib/dpkg/diversions: 0
    var/lib/dpkg/info: 0
    var/lib/dpkg/parts: 0
    var/lib/dpkg/statoverride: 0
    var/lib/dpkg/status: 816
    var/lib/dpkg/triggers: 0
    var/lib/dpkg/triggers/File: 25
    var/lib/dpkg/triggers/Unincorp: 0
    var/lib/dpkg/updates: 0
    ");
    assert!(all["var/lib/dpkg/status"].contains("Package: git\n") && !all["var/lib/dpkg/status"].contains("unwanted"));
    assert_eq!(all["var/lib/dpkg/triggers/File"], "/usr/lib/git git/noawait\n");
    assert!(all.contains_key("var/lib/dpkg/info/git.list") && !all.contains_key("var/lib/dpkg/info/unwanted.list"));
}

#[test]
fn accounts_and_sources_are_generated() {
    let (all, _) = packed(&fixture::host());
    assert_snapshot!(all["etc/passwd"], @r"
    root:x:0:0:root:/root:/bin/bash
    _apt:x:42:65534::/nonexistent:/usr/sbin/nologin
    ");
    assert_snapshot!(all["etc/shadow"], @r"
    root:*::0:99999:7:::
    _apt:*::0:99999:7:::
    ");
    assert_snapshot!(all["etc/apt/sources.list.d/debian.sources"], @r"
    Types: deb
    URIs: http://mirror.example/debian
    Suites: bookworm
    Components: main
    ");
}

#[test]
fn no_secret_of_the_host_is_in_the_tar() {
    let root = fixture::host();
    for path in fixture::SECRETS {
        assert!(fs::read_to_string(root.path().join(path)).unwrap().contains("s3cret"), "{path}");
    }
    let tar = tempfile::NamedTempFile::new().unwrap();
    inspect(root.path(), "amd64").unwrap().pack(tar.as_file()).unwrap();
    let bytes = fs::read(tar.path()).unwrap();
    let has = |text: &[u8]| bytes.windows(text.len()).any(|it| it == text);
    assert!(has(b"the git program"), "the search works");
    assert!(!has(b"s3cret"));
}

#[test]
fn a_directory_that_became_a_link_is_left_out() {
    let root = fixture::host();
    let lib = root.path().join("usr/lib/git");
    fs::remove_dir_all(&lib).unwrap();
    symlink(root.path().join("home/me"), &lib).unwrap();
    write(&root, "home/me/core", "s3cret");
    let (all, note) = packed(&root);
    assert!(!all.contains_key("usr/lib/git/core"));
    assert!(note.ends_with("2 files could not be read"), "{note}");
}

#[test]
fn a_host_with_unsuitable_packages_is_reported_with_the_reason() {
    for (gone, arch, expected) in [
        ("", "arm64", "this host is amd64 and the engine arm64"),
        ("curl", "amd64", "`curl` is not installed on this host"),
        ("libone", "amd64", "packages of this host miss what they depend on (git: libone)"),
        ("dpkg", "amd64", "this host is no Debian whose packages can be read"),
    ] {
        let root = fixture::host();
        let status = root.path().join("var/lib/dpkg/status");
        let text = fs::read_to_string(&status).unwrap();
        let left = text.split("\n\n").filter(|it| !it.starts_with(&format!("Package: {gone}\n")));
        fs::write(&status, left.collect::<Vec<_>>().join("\n\n")).unwrap();
        assert_eq!(inspect(root.path(), arch).unwrap_err(), expected);
    }
    let root = fixture::host();
    write(&root, "usr/lib/os-release", "ID=fedora\n");
    assert!(inspect(root.path(), "amd64").is_err());
}
