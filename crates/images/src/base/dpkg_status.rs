//! Parses dpkg's formats: stanzas, dependency fields, conffiles. Pure.

/// An installed package, as its stanza in `status` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Package<'a> {
    pub(super) name: &'a str,
    pub(super) arch: &'a str,
    pub(super) version: &'a str,
    /// `Essential: yes` or `Priority: required`, which Debian calls a minimal system.
    pub(super) minimal: bool,
    /// `Pre-Depends` and `Depends`: each inner list is satisfied by any of its names.
    pub(super) needs: Vec<Vec<&'a str>>,
    pub(super) provides: Vec<&'a str>,
    pub(super) conffiles: Vec<Conffile<'a>>,
    /// The stanza itself, without the empty line behind it.
    pub(super) stanza: &'a str,
}

/// A configuration file and the MD5 sum it was packaged with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conffile<'a> {
    pub(super) path: &'a str,
    pub(super) md5: &'a str,
}

/// Parses the fully installed packages of a `status` file. Ignores others (removed with configuration left, half
/// installed) and stanzas without the fields that every package has.
pub(super) fn installed(status: &str) -> Vec<Package<'_>> {
    stanzas(status).filter_map(package).collect()
}

/// The stanzas of a control file, without the empty lines between them.
pub(super) fn stanzas(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n\n").map(|it| it.trim_matches('\n')).filter(|it| !it.is_empty())
}

/// A field's value with its continuation lines, or nothing.
pub(super) fn field<'a>(stanza: &'a str, name: &str) -> Option<&'a str> {
    let mut at = 0;
    for line in stanza.split_inclusive('\n') {
        at += line.len();
        let Some((key, value)) = line.split_once(':') else { continue };
        if key.eq_ignore_ascii_case(name) {
            let rest = &stanza[at..];
            let more: usize =
                rest.split_inclusive('\n').take_while(|it| it.starts_with([' ', '\t'])).map(str::len).sum();
            return Some(stanza[at - value.len()..at + more].trim());
        }
    }
    None
}

fn package(stanza: &str) -> Option<Package<'_>> {
    let mut status = field(stanza, "Status")?.split(' ').skip(1);
    if (status.next(), status.next()) != (Some("ok"), Some("installed")) {
        return None;
    }
    let needs = ["Pre-Depends", "Depends"].iter().filter_map(|it| field(stanza, it)).flat_map(relations).collect();
    Some(Package {
        name: field(stanza, "Package")?,
        arch: field(stanza, "Architecture")?,
        version: field(stanza, "Version")?,
        minimal: field(stanza, "Essential") == Some("yes") || field(stanza, "Priority") == Some("required"),
        needs,
        provides: field(stanza, "Provides").map(|it| relations(it).concat()).unwrap_or_default(),
        conffiles: field(stanza, "Conffiles").map(|it| it.lines().filter_map(conffile).collect()).unwrap_or_default(),
        stanza,
    })
}

/// Parses the names of `a (>= 1) | b:any, c`. Versions are ignored, since installed packages satisfy each other.
fn relations(value: &str) -> Vec<Vec<&str>> {
    let groups = value.split(',').map(|group| group.split('|').filter_map(bare_name).collect::<Vec<_>>());
    groups.filter(|it| !it.is_empty()).collect()
}

fn bare_name(relation: &str) -> Option<&str> {
    relation.trim().split([' ', '\t', '\n', '(', ':', '[']).next().filter(|it| !it.is_empty())
}

/// Parses ` /etc/x d41d8… obsolete`. An obsolete file is no longer part of the package.
fn conffile(line: &str) -> Option<Conffile<'_>> {
    let mut words = line.split_whitespace();
    let (path, md5) = (words.next()?, words.next()?);
    words.next().is_none().then_some(Conffile { path, md5 })
}

#[cfg(test)]
mod tests {
    use insta::assert_debug_snapshot;

    use super::*;

    const STATUS: &str = "\
Package: tool
Essential: yes
Status: install ok installed
Architecture: amd64
Version: 1:2.0-1+b1
Pre-Depends: libc6 (>= 2.34)
Depends: awk | mawk (>= 1),
 python3:any (<< 4), liba
Provides: tool-api (= 2), other
Conffiles:
 /etc/tool.conf 0123456789abcdef0123456789abcdef
 /etc/old.conf 0123456789abcdef0123456789abcdef obsolete
Description: text with a colon: Depends
 .
 Depends: not a field

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: half
Status: install reinstreq half-installed
Architecture: amd64
Version: 1

Package: held
Priority: required
Status: hold ok installed
Architecture: all
Version: 3
";

    #[test]
    fn only_fully_installed_packages_are_parsed() {
        let [tool, held] = &installed(STATUS)[..] else { panic!("{:?}", installed(STATUS)) };
        assert_eq!((held.name, held.arch, held.minimal), ("held", "all", true));
        assert_eq!((tool.version, tool.minimal), ("1:2.0-1+b1", true));
        assert!(tool.stanza.ends_with("Depends: not a field"));
        assert_debug_snapshot!((&tool.needs, &tool.provides, &tool.conffiles), @r#"
        (
            [
                [
                    "libc6",
                ],
                [
                    "awk",
                    "mawk",
                ],
                [
                    "python3",
                ],
                [
                    "liba",
                ],
            ],
            [
                "tool-api",
                "other",
            ],
            [
                Conffile {
                    path: "/etc/tool.conf",
                    md5: "0123456789abcdef0123456789abcdef",
                },
            ],
        )
        "#);
    }

    #[test]
    fn a_field_ends_where_the_next_begins() {
        for (stanza, name, expected) in [
            ("A: 1\nB: 2", "B", Some("2")),
            ("A: 1\n more\n\tand more\nB: 2", "A", Some("1\n more\n\tand more")),
            ("A: 1\n B: 2", "B", None),
            ("a-b: x", "A-B", Some("x")),
            ("A:", "A", Some("")),
            ("", "A", None),
        ] {
            assert_eq!(field(stanza, name), expected, "{stanza:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "(Package|Status|Depends|Conffiles|: |\\||,|install ok installed|\n| |x){0,40}") {
            installed(&text);
        }
    }
}
