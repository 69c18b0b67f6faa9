//! Generates what package scripts create: accounts, links, dpkg's own database. Everything is generated from the
//! masters in packages, not copied from the host.

use std::path::Path;
use std::{fs, io};

use super::alternatives;
use super::dependency_closure::Closure;
use super::host::DebianHost;
use super::tar_writer::OwnerIds;
use super::tree::{Node, Tree};

/// Directories with their modes.
const DIRECTORIES: [(&str, u32); 22] = [
    ("boot", 0o755),
    ("dev", 0o755),
    ("home", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o755),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("srv", 0o755),
    ("sys", 0o755),
    ("tmp", 0o1777),
    ("usr/local/bin", 0o755),
    ("var/cache/apt/archives/partial", 0o700),
    ("var/lib/apt/lists/partial", 0o755),
    ("var/lib/dpkg/parts", 0o755),
    ("var/lib/dpkg/updates", 0o755),
    ("var/log", 0o755),
    ("var/mail", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
];

const LINKS: [(&str, &str); 3] =
    [("etc/localtime", "/usr/share/zoneinfo/Etc/UTC"), ("var/lock", "/run/lock"), ("var/run", "/run")];

/// Files of which packages contain a master, and their target if the master exists.
const MASTERS: [(&str, &str); 5] = [
    ("usr/share/libc-bin/nsswitch.conf", "etc/nsswitch.conf"),
    ("usr/share/base-files/nsswitch.conf", "etc/nsswitch.conf"),
    ("usr/share/base-files/profile", "etc/profile"),
    ("usr/share/base-files/dot.bashrc", "root/.bashrc"),
    ("usr/share/base-files/dot.profile", "root/.profile"),
];

/// The output of `pam-auth-update` for plain Unix accounts.
const PAM: [(&str, &str); 5] = [
    (
        "auth",
        "auth [success=1 default=ignore] pam_unix.so nullok\nauth requisite pam_deny.so\nauth required pam_permit.so\n",
    ),
    (
        "account",
        "account [success=1 new_authtok_reqd=done default=ignore] pam_unix.so\naccount requisite pam_deny.so\n\
         account required pam_permit.so\n",
    ),
    (
        "password",
        "password [success=1 default=ignore] pam_unix.so obscure yescrypt\npassword requisite pam_deny.so\n\
         password required pam_permit.so\n",
    ),
    ("session", SESSION),
    ("session-noninteractive", SESSION),
];
const SESSION: &str = "session [default=1] pam_permit.so\nsession requisite pam_deny.so\n\
                       session required pam_permit.so\nsession required pam_unix.so\n";

/// Adds all of it, and returns the possible owners of files.
///
/// # Errors
/// If the masters of the accounts or dpkg's directory cannot be read.
pub(super) fn add(tree: &mut Tree, host: &DebianHost, closure: &Closure<'_>) -> io::Result<OwnerIds> {
    for (path, mode) in DIRECTORIES {
        tree.put(path, Node::Dir { mode });
    }
    for (path, target) in LINKS {
        tree.put(path, Node::Link(target.into()));
    }
    for (master, path) in MASTERS {
        if tree.has(master) {
            tree.put_new(path, Node::text(host.read(master)?));
        }
    }
    for (kind, text) in PAM {
        tree.put(format!("etc/pam.d/common-{kind}"), Node::text(text));
    }
    tree.put("etc/timezone", Node::text("Etc/UTC\n"));
    tree.put("etc/shells", Node::text("/bin/sh\n/usr/bin/sh\n/bin/bash\n/usr/bin/bash\n/bin/dash\n/usr/bin/dash\n"));
    add_dpkg(tree, host, closure)?;
    for (name, record) in texts_in(&host.root.join("var/lib/dpkg/alternatives"))? {
        alternatives::add(tree, &name, &record, |path| host.place(path));
    }
    add_accounts(tree, host)
}

/// Adds accounts from base-passwd's masters, and apt's own, which its package script creates.
fn add_accounts(tree: &mut Tree, host: &DebianHost) -> io::Result<OwnerIds> {
    const SHADOW_GID: u32 = 42;
    let passwd = host.read("usr/share/base-passwd/passwd.master")?;
    let passwd = shadowed(&passwd) + "_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n";
    let group = shadowed(&host.read("usr/share/base-passwd/group.master")?);
    for (path, text, rest) in [("etc/shadow", &passwd, ":*::0:99999:7:::\n"), ("etc/gshadow", &group, ":*::\n")] {
        let names = text.lines().filter_map(|it| it.split(':').next());
        let bytes = names.map(|it| format!("{it}{rest}")).collect::<String>().into_bytes();
        tree.put(path, Node::File { mode: 0o640, gid: SHADOW_GID, bytes });
    }
    let ids = |text: &str| text.lines().filter_map(|it| it.split(':').nth(2)?.parse().ok()).collect();
    let owners = OwnerIds { uids: ids(&passwd), gids: ids(&group) };
    tree.put("etc/passwd", Node::text(passwd));
    tree.put("etc/group", Node::text(group));
    Ok(owners)
}

/// Returns the lines of a master, with `x` in place of the password, which refers to the shadow file.
fn shadowed(master: &str) -> String {
    let line = |it: &str| {
        let mut fields = it.splitn(3, ':');
        Some(format!("{}:x:{}\n", fields.next()?, fields.nth(1)?))
    };
    master.lines().filter_map(line).collect()
}

/// Adds the package database of the chosen packages, so that `apt-get install` works inside.
fn add_dpkg(tree: &mut Tree, host: &DebianHost, closure: &Closure<'_>) -> io::Result<()> {
    let dpkg = Path::new("var/lib/dpkg");
    let has = |name: &str| closure.packages.contains_key(name);
    let status: String = closure.packages.values().map(|it| format!("{}\n\n", it.stanza)).collect();
    tree.put(dpkg.join("status"), Node::text(status));
    tree.put(dpkg.join("available"), Node::text(""));
    tree.put(dpkg.join("statoverride"), Node::text(""));
    let mut diversions: Vec<_> = host.diversions.iter().filter(|(_, it)| has(&it.by)).collect();
    diversions.sort_unstable_by_key(|(from, _)| *from);
    let diversions = diversions.into_iter().map(|(from, it)| format!("{from}\n{}\n{}\n", it.to, it.by));
    tree.put(dpkg.join("diversions"), Node::text(diversions.collect::<String>()));
    for entry in fs::read_dir(host.root.join(dpkg).join("info"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "format" || info_package(&name).is_some_and(|it| belongs(closure, it)) {
            tree.put(dpkg.join("info").join(&name), Node::Host(entry.path()));
        }
    }
    for (name, text) in texts_in(&host.root.join(dpkg).join("triggers"))? {
        let triggers = triggers_of(&text, has);
        if !triggers.is_empty() {
            tree.put(dpkg.join("triggers").join(name), Node::text(triggers));
        }
    }
    // Empty and not missing: without this file dpkg assumes an old system, and runs all triggers.
    tree.put(dpkg.join("triggers/Unincorp"), Node::text(""));
    Ok(())
}

/// `libc6:amd64.list` is a file of `libc6:amd64`.
fn info_package(file: &str) -> Option<&str> {
    file.rsplit_once('.').map(|(package, _)| package)
}

fn belongs(closure: &Closure<'_>, package: &str) -> bool {
    let (name, arch) = package.split_once(':').map_or((package, None), |(name, arch)| (name, Some(arch)));
    closure.packages.get(name).is_some_and(|it| arch.is_none_or(|arch| arch == it.arch))
}

/// Selects lines `[path] package[:arch][/noawait]` whose package is packed.
fn triggers_of(text: &str, has: impl Fn(&str) -> bool) -> String {
    let package = |line: &'_ str| line.rsplit(' ').next().and_then(|it| it.split(['/', ':']).next()).is_some_and(&has);
    text.lines().filter(|it| package(it)).map(|it| format!("{it}\n")).collect()
}

/// Reads the text files of a directory, by name; none if it is missing.
fn texts_in(dir: &Path) -> io::Result<Vec<(String, String)>> {
    let entries = match fs::read_dir(dir) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut texts = Vec::new();
    for entry in entries {
        let entry = entry?;
        if let (Ok(name), Ok(text)) = (entry.file_name().into_string(), fs::read_to_string(entry.path())) {
            texts.push((name, text));
        }
    }
    texts.sort_unstable();
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_have_no_password() {
        assert_eq!(shadowed("root:*:0:0:root:/root:/bin/bash\nbad\n"), "root:x:0:0:root:/root:/bin/bash\n");
        assert_eq!(shadowed("shadow:*:42:\n"), "shadow:x:42:\n");
    }

    #[test]
    fn a_trigger_is_packed_with_its_package() {
        let text = "/usr/lib/x libc-bin/noawait\n/usr/share/y systemd\nlibc-bin\ndbus/noawait\nlibc-bin:amd64\n";
        let selected = triggers_of(text, |it| it == "libc-bin");
        assert_eq!(selected, "/usr/lib/x libc-bin/noawait\nlibc-bin\nlibc-bin:amd64\n");
    }

    #[test]
    fn a_dot_in_a_package_name_is_part_of_it() {
        assert_eq!(info_package("python3.11-minimal.postinst"), Some("python3.11-minimal"));
        assert_eq!(info_package("libc6:amd64.list"), Some("libc6:amd64"));
        assert_eq!(info_package("format"), None);
    }
}
