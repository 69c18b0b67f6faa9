//! A small Debian-like host in a temporary directory.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

/// Files that contain the word `s3cret` and must not be packed.
pub(crate) const SECRETS: [&str; 9] = [
    "etc/shadow",
    "etc/git.conf",
    "etc/ssh/ssh_host_key",
    "etc/apt/sources.list.d/private.list",
    "etc/apt/auth.conf",
    "home/me/.netrc",
    "root/.bash_history",
    "usr/lib/git/unlisted",
    "usr/bin/unwanted",
];

pub(crate) fn write(root: &TempDir, path: &str, text: &str) {
    let path = root.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const FILES: [(&str, &str); 22] = [
    ("usr/lib/os-release", "ID=debian\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n"),
    ("usr/bin/bash", "bash"),
    ("usr/bin/git", "the git program"),
    ("usr/bin/tool.real", "diverted"),
    ("usr/bin/mawk", "mawk"),
    ("usr/lib/git/core", "core"),
    ("usr/lib/python3/os.py", "py"),
    ("usr/lib/python3/__pycache__/os.cpython-311.pyc", "compiled"),
    ("usr/lib/python3/__pycache__/other.cpython-311.pyc", "not packaged"),
    ("usr/share/doc/git/copyright", "licence"),
    ("usr/share/doc/git/README", "long"),
    ("usr/share/base-passwd/passwd.master", "root:*:0:0:root:/root:/bin/bash\n"),
    ("usr/share/base-passwd/group.master", "root:*:0:\nshadow:*:42:\n"),
    ("etc/same.conf", "same"),
    ("etc/ssl/certs/ca-certificates.crt", "-----BEGIN CERTIFICATE-----\n"),
    ("etc/apt/sources.list", "deb http://mirror.example/debian bookworm main\n"),
    ("var/lib/dpkg/info/format", "1\n"),
    ("var/lib/dpkg/info/bash.list", "/.\n/bin\n/bin/bash\n"),
    (
        "var/lib/dpkg/info/git.list",
        "/.\n/usr/bin/git\n/usr/lib/git\n/usr/lib/git/core\n/etc/git.conf\n/etc/same.conf\n/usr/share/doc/git\n/usr/share/doc/git/copyright\n/usr/share/doc/git/README\n/usr/bin/tool\n/usr/bin/gone\n/usr/bin/mawk\n",
    ),
    ("var/lib/dpkg/info/unwanted.list", "/.\n/usr/bin/unwanted\n"),
    ("var/lib/dpkg/triggers/File", "/usr/lib/git git/noawait\n/usr/share/x unwanted\n"),
    ("var/lib/dpkg/alternatives/awk", "auto\n/usr/bin/awk\n\n/usr/bin/mawk\n5\n/usr/bin/gawk\n10\n\n"),
];

/// Creates a host with every package that a base needs, a changed configuration file, secrets, and an unneeded package.
pub(crate) fn host() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in FILES {
        write(&root, path, text);
    }
    for path in SECRETS {
        let text = if path.ends_with(".list") {
            "deb https://me:s3cret@private.example/debian bookworm main"
        } else {
            "s3cret"
        };
        write(&root, path, text);
    }
    for name in ["apt", "ca-certificates", "curl", "dpkg", "libone"] {
        write(&root, &format!("var/lib/dpkg/info/{name}.list"), "/.\n");
    }
    write(&root, "var/lib/dpkg/info/python3:amd64.list", "/.\n/usr/lib/python3\n/usr/lib/python3/os.py\n");
    write(&root, "var/lib/dpkg/diversions", "/usr/bin/tool\n/usr/bin/tool.real\nunwanted\n");
    write(&root, "var/lib/dpkg/status", &status());
    symlink("usr/bin", root.path().join("bin")).unwrap();
    root
}

fn status() -> String {
    let package = |(name, fields): (&str, &str)| {
        format!("Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:2.3-4\n{fields}")
    };
    // The sums of `same` and of a text that `git.conf` does not have.
    let git = "Depends: libone\nConffiles:\n /etc/same.conf 51037a4a37730f52c8732586d3aaa316\n \
               /etc/git.conf 0cc175b9c0f1b6a831c399e269772661\n";
    let table = [
        ("apt", ""),
        ("bash", "Essential: yes\n"),
        ("ca-certificates", ""),
        ("curl", ""),
        ("dpkg", "Essential: yes\n"),
        ("git", git),
        ("libone", ""),
        ("python3", ""),
        ("unwanted", ""),
    ];
    table.map(package).map(|it| it.trim_end().to_owned()).join("\n\n") + "\n"
}
