//! The base's sources of packages: the host's own, if they are Debian's and contain no secret.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::dpkg_status::{field, stanzas};
use super::host::{DebianHost, OsRelease};
use super::tree::{Node, Tree};

/// A source of packages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AptSource {
    pub(super) uri: String,
    suites: Vec<String>,
    components: Vec<String>,
    /// Paths of keyrings, or an inline key.
    signed_by: Option<String>,
    /// Signatures are not checked. The base never uses such a source.
    trusted: bool,
}

/// Returns the host's sources for its own release.
pub(super) fn host_sources(host: &DebianHost) -> Vec<AptSource> {
    let mut files = vec![host.root.join("etc/apt/sources.list")];
    let more = fs::read_dir(host.root.join("etc/apt/sources.list.d")).into_iter().flatten();
    files.extend(more.flatten().map(|it| it.path()));
    files.sort_unstable();
    let sources = files.iter().filter_map(|path| {
        let (text, kind) = (fs::read_to_string(path).ok()?, path.extension()?);
        Some(match kind.to_str()? {
            "list" => read_lines(&text),
            "sources" => read_stanzas(&text),
            _ => Vec::new(),
        })
    });
    let locked = hosts_with_logins(host);
    sources.flatten().filter_map(|it| fit_for_base(it, &host.os, &locked)).collect()
}

/// Writes sources into a base, with their keyrings. A source whose keyring is not a plain set of public keys is left
/// out: its signatures stay checked.
pub(super) fn add(tree: &mut Tree, host: &DebianHost) {
    let mut sources = host_sources(host);
    sources.retain(|it| it.keyrings().all(|path| add_keyring(tree, host, path)));
    if sources.is_empty() && host.os.id == "debian" {
        sources.push(AptSource::debian(&host.os.codename));
    }
    let text: Vec<String> = sources.iter().map(AptSource::stanza).collect();
    tree.put(format!("etc/apt/sources.list.d/{}.sources", host.os.id), Node::text(text.join("\n")));
}

pub(super) const DEBIAN: &str = "http://deb.debian.org/debian";

impl AptSource {
    fn debian(codename: &str) -> Self {
        let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg".to_owned();
        let suites = vec![codename.to_owned(), format!("{codename}-updates")];
        Self { uri: DEBIAN.into(), suites, components: vec!["main".into()], signed_by: Some(keyring), trusted: false }
    }

    /// Whether it contains the suite itself and not only its updates.
    pub(super) fn has_suite(&self, suite: &str) -> bool {
        self.suites.iter().any(|it| it == suite)
    }

    fn keyrings(&self) -> impl Iterator<Item = &str> {
        let named = self.signed_by.iter().filter(|it| it.starts_with('/'));
        named.flat_map(|it| it.split([',', ' ', '\n'])).filter(|it| !it.is_empty())
    }

    fn stanza(&self) -> String {
        // An inline key begins on a new line.
        let signed = self.signed_by.iter().map(|it| match it.starts_with('/') {
            true => format!("Signed-By: {it}\n"),
            false => format!("Signed-By:\n {it}\n"),
        });
        let signed: String = signed.collect();
        let (suites, components) = (self.suites.join(" "), self.components.join(" "));
        format!("Types: deb\nURIs: {}\nSuites: {suites}\nComponents: {components}\n{signed}", self.uri)
    }
}

/// Parses lines `deb [options] uri suite component…`.
fn read_lines(text: &str) -> Vec<AptSource> {
    text.lines().filter_map(|line| read_line(line.split('#').next().unwrap_or_default())).collect()
}

fn read_line(line: &str) -> Option<AptSource> {
    let rest = line.trim().strip_prefix("deb")?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let option = |key: &str| options.split_whitespace().find_map(|it| it.strip_prefix(key)?.strip_prefix('='));
    let mut words = rest.split_whitespace().map(str::to_owned);
    Some(AptSource {
        uri: words.next()?,
        suites: vec![words.next()?],
        components: words.collect(),
        signed_by: option("signed-by").map(str::to_owned),
        trusted: option("trusted").is_some() || option("allow-insecure").is_some(),
    })
}

/// Parses the newer format: a stanza per source, with several URIs and suites.
fn read_stanzas(text: &str) -> Vec<AptSource> {
    let without_comments: Vec<&str> = text.lines().filter(|it| !it.starts_with('#')).map(str::trim_end).collect();
    let without_comments = without_comments.join("\n");
    stanzas(&without_comments).flat_map(read_stanza).collect()
}

fn read_stanza(stanza: &str) -> Vec<AptSource> {
    let words =
        |name| field(stanza, name).unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let disabled = field(stanza, "Enabled").is_some_and(|it| it.eq_ignore_ascii_case("no"));
    if disabled || !words("Types").iter().any(|it| it == "deb") {
        return Vec::new();
    }
    let source = |uri| AptSource {
        uri,
        suites: words("Suites"),
        components: words("Components"),
        signed_by: field(stanza, "Signed-By").map(str::to_owned),
        trusted: field(stanza, "Trusted").is_some() || field(stanza, "Allow-Insecure").is_some(),
    };
    words("URIs").into_iter().map(source).collect()
}

/// Accepts only sources of the host's own release: packages of another release or a third party would mix with it.
/// Sources with a login, in the URL or stored separately, are refused.
fn fit_for_base(mut source: AptSource, os: &OsRelease, locked: &BTreeSet<String>) -> Option<AptSource> {
    let code = &os.codename;
    let own = ["", "-updates", "-security", "-backports", "/updates"].map(|it| format!("{code}{it}"));
    source.suites.retain(|it| own.contains(it));
    let host = uri_host(&source.uri)?;
    let fit = !source.suites.is_empty()
        && source.components.iter().any(|it| it == "main")
        && !source.trusted
        && !locked.contains(host);
    fit.then_some(source)
}

/// The host of a plain `http` or `https` URL; `None` for one with a user part, a query, or another scheme.
fn uri_host(uri: &str) -> Option<&str> {
    let rest = uri.strip_prefix("http://").or_else(|| uri.strip_prefix("https://"))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/:+".contains(c);
    let host = rest.split(['/', ':']).next().filter(|it| !it.is_empty())?;
    rest.chars().all(plain).then_some(host)
}

/// Lists the hosts that apt has logins for.
fn hosts_with_logins(host: &DebianHost) -> BTreeSet<String> {
    let mut files = vec![host.root.join("etc/apt/auth.conf")];
    let more = fs::read_dir(host.root.join("etc/apt/auth.conf.d")).into_iter().flatten();
    files.extend(more.flatten().map(|it| it.path()));
    files.iter().filter_map(|it| fs::read_to_string(it).ok()).flat_map(|it| machines(&it)).collect()
}

/// Parses only the hosts of `machine HOST[:port][/path] login … password …`.
fn machines(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let named = words.windows(2).filter(|it| it[0] == "machine").map(|it| it[1]);
    let bare = |it: &str| it.split("://").last()?.split(['/', ':']).next().map(str::to_owned);
    named.filter_map(bare).collect()
}

fn add_keyring(tree: &mut Tree, host: &DebianHost, path: &str) -> bool {
    const PLACES: [&str; 3] = ["/usr/share/keyrings", "/etc/apt/keyrings", "/etc/apt/trusted.gpg.d"];
    if tree.has(path) {
        return true;
    }
    let in_place = Path::new(path).parent().is_some_and(|it| PLACES.iter().any(|place| it == Path::new(place)));
    let bytes = fs::read(host.root.join(path.trim_start_matches('/'))).unwrap_or_default();
    let fit = in_place && is_public_keyring(&bytes);
    if fit {
        tree.put(path, Node::text(bytes));
    }
    fit
}

/// Whether these are OpenPGP keys, armoured or as packets, of which the first is public.
fn is_public_keyring(bytes: &[u8]) -> bool {
    const PUBLIC_KEY_PACKETS: [u8; 4] = [0x98, 0x99, 0x9a, 0xc6];
    let armoured = bytes.starts_with(b"-----BEGIN PGP PUBLIC KEY BLOCK-----");
    let private = bytes.windows(7).any(|it| it == b"PRIVATE");
    !private && (armoured || bytes.first().is_some_and(|it| PUBLIC_KEY_PACKETS.contains(it)))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn accepted(sources: Vec<AptSource>, locked: &[&str]) -> String {
        let os = OsRelease { codename: "bookworm".into(), ..OsRelease::default() };
        let locked = locked.iter().map(|it| (*it).to_owned()).collect();
        let fit = sources.into_iter().filter_map(|it| fit_for_base(it, &os, &locked));
        fit.map(|it| it.stanza()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn both_formats_give_the_sources_of_the_release() {
        let lines = "# deb http://old/debian bookworm main\ndeb http://a/debian bookworm main contrib # x\n\
                     deb [arch=amd64 signed-by=/usr/share/keyrings/k.gpg] https://b/sec bookworm-security main\n\
                     deb-src http://a/debian bookworm main\ndebby http://a/ bookworm main\n";
        assert_snapshot!(accepted(read_lines(lines), &[]), @r"
        Types: deb
        URIs: http://a/debian
        Suites: bookworm
        Components: main contrib

        Types: deb
        URIs: https://b/sec
        Suites: bookworm-security
        Components: main
        Signed-By: /usr/share/keyrings/k.gpg
        ");
        let stanzas = "Types: deb deb-src\n# Suites: sid\nURIs: http://a/debian http://b/debian\n\
                       Suites: bookworm trixie bookworm-updates\nComponents: main\nSigned-By:\n -----BEGIN\n .\n abc\n\n\
                       Enabled: no\nTypes: deb\nURIs: http://c\nSuites: bookworm\nComponents: main\n";
        assert_snapshot!(accepted(read_stanzas(stanzas), &[]), @r"
        Types: deb
        URIs: http://a/debian
        Suites: bookworm bookworm-updates
        Components: main
        Signed-By:
         -----BEGIN
         .
         abc

        Types: deb
        URIs: http://b/debian
        Suites: bookworm bookworm-updates
        Components: main
        Signed-By:
         -----BEGIN
         .
         abc
        ");
    }

    #[test]
    fn sources_with_a_login_of_third_parties_or_unchecked_are_refused() {
        for line in [
            "deb https://me:secret@a/debian bookworm main",
            "deb https://me@a/debian bookworm main",
            "deb https://a/debian?token=secret bookworm main",
            "deb https://locked:8443/debian bookworm main",
            "deb mirror+file:/etc/mirrors bookworm main",
            "deb cdrom:[Debian]/ bookworm main",
            "deb http://a/debian trixie main",
            "deb http://a/ubuntu bookworm-pgdg main",
            "deb http://a/docker bookworm stable",
            "deb [trusted=yes] http://a/debian bookworm main",
        ] {
            assert_eq!(accepted(read_lines(line), &["locked"]), "", "{line}");
        }
        assert_ne!(accepted(read_lines("deb https://a:8443/debian bookworm main"), &["locked"]), "");
    }

    #[test]
    fn only_the_hosts_of_logins_are_read() {
        let text = "machine a.example/path login me password x\nmachine https://b.example:80 login machine\n";
        assert_eq!(machines(text), ["a.example", "b.example"]);
    }

    #[test]
    fn a_secret_keyring_is_no_public_one() {
        for (bytes, expected) in [
            (&b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n"[..], true),
            (b"\x99\x02\x0d", true),
            (b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n", false),
            (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n-----BEGIN PGP PRIVATE KEY", false),
            (b"\x95\x05", false),
            (b"\xc5\x05", false),
            (b"", false),
            (b"root:x", false),
        ] {
            assert_eq!(is_public_keyring(bytes), expected, "{bytes:?}");
        }
    }
}
