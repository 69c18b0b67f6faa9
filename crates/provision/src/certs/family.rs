//! Where distributions of one family look for certificates.

/// Distributions that look in the same places.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// Its names in `ID` and `ID_LIKE` of `/etc/os-release`.
    words: &'static [&'static str],
    /// Where its tools look for added certificates.
    pub(super) anchors: &'static str,
    /// The bundle that its tools generate.
    pub(super) bundle: &'static str,
}

const FAMILIES: &[Family] = &[
    Family { words: &["debian", "ubuntu", "alpine"], anchors: ANCHORS[0], bundle: BUNDLES[0] },
    Family { words: &["rhel", "fedora", "centos"], anchors: ANCHORS[1], bundle: BUNDLES[1] },
    Family { words: &["suse", "opensuse"], anchors: ANCHORS[2], bundle: BUNDLES[3] },
    Family { words: &["arch"], anchors: ANCHORS[3], bundle: BUNDLES[0] },
];

/// Directories of added certificates.
pub(super) const ANCHORS: &[&str] = &[
    "/usr/local/share/ca-certificates",
    "/etc/pki/ca-trust/source/anchors",
    "/etc/pki/trust/anchors",
    "/etc/ca-certificates/trust-source/anchors",
];

/// Bundles in the order in which programs look for them. The variables name the first that exists.
pub(super) const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

impl Family {
    /// Finds the family of a distribution by its `os-release`.
    pub(super) fn from_os_release(release: &[u8]) -> Option<&'static Self> {
        let text = String::from_utf8_lossy(release);
        let value = |key: &str| text.lines().find_map(|it| it.strip_prefix(key)?.strip_prefix('='));
        let words = |it: &str| it.trim_matches(['"', '\'', ' ']).split_ascii_whitespace().map(str::to_owned).collect();
        let all: Vec<String> = ["ID", "ID_LIKE"].into_iter().filter_map(value).flat_map::<Vec<_>, _>(words).collect();
        all.iter().find_map(|word| FAMILIES.iter().find(|it| it.words.contains(&word.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_found_by_its_own_name_or_a_relatives() {
        for (release, anchors) in [
            ("PRETTY_NAME=\"Debian\"\nID=debian\n", Some(ANCHORS[0])),
            ("ID=alpine", Some(ANCHORS[0])),
            ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"", Some(ANCHORS[0])),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"", Some(ANCHORS[1])),
            ("ID=fedora", Some(ANCHORS[1])),
            ("ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"", Some(ANCHORS[2])),
            ("ID=arch", Some(ANCHORS[3])),
            ("VERSION_ID=debian\nID=gentoo", None),
            ("", None),
        ] {
            assert_eq!(Family::from_os_release(release.as_bytes()).map(|it| it.anchors), anchors, "{release}");
        }
    }
}
