//! Names of packages for each package manager, and the commands that install them. Pure, except for finding the
//! manager.

use std::collections::BTreeSet;

use coracle_client::Link;
use coracle_protocol::{FileRef, UserSpec};
use coracle_types::{Error, InvalidName};
use serde::{Deserialize, Serialize};

/// Debian's name of a package, which is also the name elsewhere unless the table lists another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PackageName(String);

impl PackageName {
    /// Validates a text: it cannot be an option of a package manager.
    ///
    /// # Errors
    /// [`InvalidName`], with the grammar.
    pub fn parse(text: impl AsRef<str>) -> Result<Self, InvalidName> {
        let text = text.as_ref();
        let plain = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
        let begins = text.starts_with(plain);
        if begins && text.len() <= 64 && text.chars().all(|it| plain(it) || "+.:-".contains(it)) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidName {
            kind: "a package name",
            value: text.chars().take(200).collect(),
            grammar: "lower-case letters, digits, `+`, `.`, `:` and `-`, first a letter or digit, at most 64",
        })
    }
}

/// Parses package names separated by blanks.
pub(crate) fn listed(packages: &str) -> BTreeSet<PackageName> {
    packages.split_whitespace().filter_map(|it| PackageName::parse(it).ok()).collect()
}

checked_text!(PackageName);

/// A supported package manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// Debian's and Ubuntu's.
    Apt,
    /// Alpine's.
    Apk,
    /// Fedora's and its relatives'.
    Dnf,
    /// Fedora's, in small images.
    Microdnf,
}

/// The path of each manager. `dnf` is preferred to `microdnf`.
const PLACES: [(Manager, &str); 5] = [
    (Manager::Apt, "/usr/bin/apt-get"),
    (Manager::Apk, "/sbin/apk"),
    (Manager::Apk, "/usr/sbin/apk"),
    (Manager::Dnf, "/usr/bin/dnf"),
    (Manager::Microdnf, "/usr/bin/microdnf"),
];

/// Names at Debian, Alpine and Fedora. A package that is not listed has the same name everywhere, or does not exist.
const NAMES: &[(&str, &[&str], &[&str])] = &[
    ("build-essential", &["build-base"], &["gcc", "gcc-c++", "make"]),
    ("libssl-dev", &["openssl-dev"], &["openssl-devel"]),
    ("pkg-config", &["pkgconf"], &["pkgconf-pkg-config"]),
    ("vim-tiny", &["vim"], &["vim-minimal"]),
    ("python3-dev", &["python3-dev"], &["python3-devel"]),
    ("python3-pip", &["py3-pip"], &["python3-pip"]),
    ("python3-venv", &["python3"], &["python3"]),
    ("nodejs", &["nodejs"], &["nodejs"]),
    ("rustc", &["rust"], &["rust"]),
    ("golang", &["go"], &["golang"]),
    ("openssh-client", &["openssh-client"], &["openssh-clients"]),
    ("xz-utils", &["xz"], &["xz"]),
    ("procps", &["procps"], &["procps-ng"]),
    ("iproute2", &["iproute2"], &["iproute"]),
    ("zlib1g-dev", &["zlib-dev"], &["zlib-devel"]),
    ("libffi-dev", &["libffi-dev"], &["libffi-devel"]),
    ("libsqlite3-dev", &["sqlite-dev"], &["sqlite-devel"]),
    ("sqlite3", &["sqlite"], &["sqlite"]),
    ("libpq-dev", &["libpq-dev"], &["libpq-devel"]),
    ("dnsutils", &["bind-tools"], &["bind-utils"]),
    ("netcat-openbsd", &["netcat-openbsd"], &["nmap-ncat"]),
    ("fd-find", &["fd"], &["fd-find"]),
    ("default-jdk", &["openjdk17-jdk"], &["java-17-openjdk-devel"]),
];

/// The commands of a package, for the probe.
const COMMANDS: &[(&str, &[&str])] = &[
    ("git", &["git"]),
    ("curl", &["curl"]),
    ("wget", &["wget"]),
    ("jq", &["jq"]),
    ("tree", &["tree"]),
    ("less", &["less"]),
    ("make", &["make"]),
    ("build-essential", &["gcc", "make"]),
    ("python3", &["python3"]),
    ("python3-pip", &["pip3"]),
    ("nodejs", &["node"]),
    ("npm", &["npm"]),
    ("rustc", &["rustc"]),
    ("cargo", &["cargo"]),
    ("golang", &["go"]),
    ("ripgrep", &["rg"]),
    ("sqlite3", &["sqlite3"]),
    ("openssh-client", &["ssh"]),
];

/// Of documentation, only licences are installed.
const APT_OPTIONS: &[&str] = &[
    "--quiet",
    "--yes",
    "--no-install-recommends",
    "--option=Dpkg::Use-Pty=0",
    // The container is committed as a whole or removed, so single files need not be synced to disk.
    "--option=DPkg::Options::=--force-unsafe-io",
    "--option=DPkg::Options::=--force-confold",
    "--option=DPkg::Options::=--path-exclude=/usr/share/doc/*",
    "--option=DPkg::Options::=--path-exclude=/usr/share/man/*",
    "--option=DPkg::Options::=--path-include=/usr/share/doc/*/copyright",
];

impl Manager {
    /// Finds the manager of a container.
    ///
    /// # Errors
    /// Those of the link. `None` if there is no manager.
    pub async fn found(link: &Link) -> Result<Option<Self>, Error> {
        for (manager, path) in PLACES {
            let at = FileRef { user: UserSpec::Ids { uid: 0, gid: Some(0) }, path: path.to_owned(), follow: true };
            match link.stat(at).await {
                Ok(_) => return Ok(Some(manager)),
                Err(Error::Refused(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(None)
    }

    /// Returns the manager's names of these packages, without duplicates.
    #[must_use]
    pub fn names<'a>(self, packages: impl IntoIterator<Item = &'a PackageName>) -> Vec<&'a str> {
        let mut names = Vec::new();
        for package in packages {
            let known = NAMES.iter().find(|it| it.0 == package.as_str());
            let own = std::slice::from_ref(&package.0).iter().map(String::as_str);
            let here: Vec<_> = match (self, known) {
                (Self::Apk, Some((_, apk, _))) => apk.to_vec(),
                (Self::Dnf | Self::Microdnf, Some((_, _, dnf))) => dnf.to_vec(),
                _ => own.collect(),
            };
            names.extend(here);
        }
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|it| seen.insert(*it));
        names
    }

    /// Returns the command that updates the lists of packages, if that is a separate step.
    pub(crate) fn update(self) -> Option<Vec<String>> {
        matches!(self, Self::Apt).then(|| words(&["apt-get", "--quiet=2", "--option=Acquire::Retries=3", "update"]))
    }

    /// Returns the command that installs packages.
    pub(crate) fn install(self, names: &[&str]) -> Vec<String> {
        let dnf = ["install", "--assumeyes", "--nodocs", "--setopt=install_weak_deps=0"];
        let begin = match self {
            Self::Apt => [&["apt-get"][..], APT_OPTIONS, &["install", "--"]].concat(),
            Self::Apk => vec!["apk", "--no-progress", "--no-cache", "add", "--"],
            Self::Dnf => [&["dnf"], &dnf[..], &["--"]].concat(),
            // microdnf does not accept `--`; the name of a package cannot begin with a dash.
            Self::Microdnf => [&["microdnf"], &dnf[..]].concat(),
        };
        words(&[&begin[..], names].concat())
    }

    /// Returns the command that removes lists and downloaded packages.
    pub(crate) fn clean(self) -> Option<Vec<String>> {
        match self {
            Self::Apt => {
                Some(words(&["/bin/sh", "-c", "apt-get clean && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin"]))
            }
            Self::Apk => None,
            Self::Dnf => Some(words(&["dnf", "clean", "all"])),
            Self::Microdnf => Some(words(&["microdnf", "clean", "all"])),
        }
    }
}

/// Lists commands that exist once these packages are installed.
pub(crate) fn commands<'a>(packages: impl IntoIterator<Item = &'a PackageName>) -> Vec<&'static str> {
    let of = |it: &PackageName| COMMANDS.iter().find(|known| known.0 == it.as_str()).map_or(&[][..], |it| it.1);
    packages.into_iter().flat_map(|it| of(it).iter().copied()).collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|it| (*it).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(names: &str) -> Vec<PackageName> {
        names.split(' ').map(|it| PackageName::parse(it).unwrap()).collect()
    }

    #[test]
    fn a_package_has_the_managers_name() {
        let wanted = packages("git build-essential libssl-dev make python3 python3-venv");
        for (manager, expected) in [
            (Manager::Apt, "git build-essential libssl-dev make python3 python3-venv"),
            (Manager::Apk, "git build-base openssl-dev make python3"),
            (Manager::Dnf, "git gcc gcc-c++ make openssl-devel python3"),
            (Manager::Microdnf, "git gcc gcc-c++ make openssl-devel python3"),
        ] {
            assert_eq!(manager.names(&wanted).join(" "), expected, "{manager:?}");
        }
    }

    #[test]
    fn no_name_is_an_option_or_a_path() {
        for good in ["git", "g++", "libc6:amd64", "python3.12", "7zip"] {
            assert!(PackageName::parse(good).is_ok(), "{good}");
        }
        let long = "a".repeat(65);
        for bad in ["", "-y", "./x.deb", "a/b", "Git", "a b", "a=1", "a_b", "ä", &long] {
            assert!(PackageName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_come_last_and_after_the_end_of_options_where_there_is_one() {
        for manager in [Manager::Apt, Manager::Apk, Manager::Dnf, Manager::Microdnf] {
            let words = manager.install(&["git", "jq"]);
            assert_eq!(words[words.len() - 2..], ["git", "jq"]);
            assert_eq!(words.contains(&"--".to_owned()), manager != Manager::Microdnf, "{words:?}");
        }
    }
}
