//! Selects from the user's known hosts the keys of those that a call connects to.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coracle_runtime::PatternSet;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

/// Renders the lines of a `known_hosts` file for some hosts: each as ssh looks it up, `github.com`, or
/// `[git.example]:2222` if its port is not 22. A line contains only the name of the requested host, even if the host's
/// file hashed it or listed other names with it: the user's other hosts stay private.
#[must_use]
pub fn known_hosts(text: &[u8], hosts: &[String]) -> Vec<u8> {
    let mut lines = Vec::new();
    for line in String::from_utf8_lossy(text).lines() {
        for host in hosts.iter().map(|it| it.to_ascii_lowercase()) {
            if let Some(line) = line_for(line, &host).filter(|it| !lines.contains(it)) {
                lines.push(line);
            }
        }
    }
    lines.into_iter().flat_map(|it| [it, "\n".to_owned()]).collect::<String>().into_bytes()
}

/// Returns the file with missing lines added; none if none is missing.
pub(super) fn with(file: &[u8], lines: &[u8]) -> Option<Vec<u8>> {
    let there: Vec<&[u8]> = file.split(|it| *it == b'\n').collect();
    let mut new = file.to_vec();
    for line in lines.split(|it| *it == b'\n').filter(|it| !it.is_empty() && !there.contains(it)) {
        if new.last().is_some_and(|it| *it != b'\n') {
            new.push(b'\n');
        }
        new.extend(line);
    }
    if new.len() == file.len() {
        return None;
    }
    new.push(b'\n');
    Some(new)
}

/// `[@marker] names type key [comment]`
fn line_for(line: &str, host: &str) -> Option<String> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (marker, words) = match words.as_slice() {
        [marker @ ("@cert-authority" | "@revoked"), rest @ ..] => (Some(*marker), rest),
        [first, ..] if first.starts_with(['#', '@']) => return None,
        all => (None, all),
    };
    let [names, kind, key, ..] = words else { return None };
    let plain = |it: &str| it.chars().all(|c| c.is_ascii_graphic());
    let fits = plain(kind) && plain(key) && plain(host) && matches(names, host);
    fits.then(|| marker.into_iter().chain([host, kind, key]).collect::<Vec<_>>().join(" "))
}

fn matches(names: &str, host: &str) -> bool {
    if let Some(hashed) = names.strip_prefix("|1|") {
        return is_hash_of(hashed, host).unwrap_or(false);
    }
    let (not, are): (Vec<&str>, Vec<&str>) = names.split(',').partition(|it| it.starts_with('!'));
    are.iter().any(|it| is_named(it, host)) && !not.iter().any(|it| is_named(&it[1..], host))
}

/// Brackets enclose an address with a port here, not a set of characters.
fn is_named(pattern: &str, host: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    if !pattern.contains(['*', '?']) {
        return pattern == host;
    }
    let escape = |c: char| if "[]{}\\".contains(c) { vec!['\\', c] } else { vec![c] };
    let pattern: String = pattern.chars().flat_map(escape).collect();
    PatternSet::new(&[pattern]).is_ok_and(|it| it.matches(host))
}

/// Parses `salt|hash`, where the hash is an HMAC of the name with SHA-1.
fn is_hash_of(hashed: &str, host: &str) -> Option<bool> {
    let (salt, hash) = hashed.split_once('|')?;
    let decode = |it| BASE64_STANDARD.decode(it).ok();
    let mut mac = Hmac::<Sha1>::new_from_slice(&decode(salt)?).ok()?;
    mac.update(host.as_bytes());
    Some(mac.verify_slice(&decode(hash)?).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = "\
# github.com ssh-rsa no
github.com,140.82.112.3 ssh-ed25519 A1 a comment
gitlab.com ssh-ed25519 B1
*.corp.example,!bad.corp.example ssh-rsa C1
[git.example]:2222 ssh-rsa D1
[*.wild.example]:2222 ssh-rsa E1
@cert-authority *.corp.example ssh-rsa F1
@revoked github.com ssh-rsa G1
@other github.com ssh-rsa H1
short github.com
";

    fn lines(text: &str, hosts: &[&str]) -> String {
        let hosts: Vec<String> = hosts.iter().map(|it| (*it).to_owned()).collect();
        String::from_utf8(known_hosts(text.as_bytes(), &hosts)).unwrap()
    }

    /// A name and one with a port, as `ssh-keygen -H` hashes them.
    const HASHED: &str = "\
|1|dJaSJnnynGsYVkYQjoH4lA5HPII=|0H2l9ki58cAkPfppuJ7vZfKmqu0= ssh-ed25519 A1
|1|pbeYXaaXwNLaw4rV9eOzPYuhnFQ=|2jT/JboZp4S+UX+0YyJrZe4sdhg= ssh-ed25519 B1
|1|pbeYXaaXwNLaw4rV9eOzPYuhnFQ=|!! ssh-ed25519 C1
|1|pbeYXaaXwNLaw4rV9eOzPYuhnFQ= ssh-ed25519 D1
";

    #[test]
    fn a_hashed_name_is_found_and_no_other_is_revealed() {
        assert_eq!(lines(HASHED, &["github.com"]), "github.com ssh-ed25519 A1\n");
        assert_eq!(lines(HASHED, &["[git.example]:2222"]), "[git.example]:2222 ssh-ed25519 B1\n");
        assert_eq!(lines(HASHED, &["git.example", "gitlab.com"]), "");
    }

    #[test]
    fn a_file_gets_its_missing_lines() {
        for (file, lines, expected) in [
            ("", "a\nb\n", Some("a\nb\n")),
            ("a", "a\nb\n", Some("a\nb\n")),
            ("a\n", "b\n", Some("a\nb\n")),
            ("b\na\n", "a\nb\n", None),
            ("a\n", "\n", None),
        ] {
            let new = with(file.as_bytes(), lines.as_bytes());
            assert_eq!(new.as_deref(), expected.map(str::as_bytes), "{file:?} {lines:?}");
        }
    }

    #[test]
    fn lines_of_other_hosts_are_not_forwarded() {
        let github = "github.com ssh-ed25519 A1\n@revoked github.com ssh-rsa G1\n";
        for (hosts, expected) in [
            (&["github.com"][..], github),
            (&["GitHub.com", "github.com"], github),
            (&["140.82.112.3"], "140.82.112.3 ssh-ed25519 A1\n"),
            (&["a.corp.example"], "a.corp.example ssh-rsa C1\n@cert-authority a.corp.example ssh-rsa F1\n"),
            (&["bad.corp.example"], "@cert-authority bad.corp.example ssh-rsa F1\n"),
            (&["git.example"], ""),
            (&["[git.example]:2222"], "[git.example]:2222 ssh-rsa D1\n"),
            (&["[x.wild.example]:2222"], "[x.wild.example]:2222 ssh-rsa E1\n"),
            (&["corp.example", "*", "hub.com", ""], ""),
            (&[], ""),
        ] {
            assert_eq!(lines(KNOWN, hosts), expected, "{hosts:?}");
        }
    }
}
