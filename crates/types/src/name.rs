//! Validated names. Every input (JSON, files, the command line) is parsed to these types.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A text that does not follow the grammar of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not {kind}: {grammar}", value.escape_debug())]
pub struct InvalidName {
    /// The expected kind of name.
    pub kind: &'static str,
    /// The given text, at most 200 characters.
    pub value: String,
    /// The grammar of valid names.
    pub grammar: &'static str,
}

impl InvalidName {
    pub(crate) fn new(kind: &'static str, value: &str, grammar: &'static str) -> Self {
        Self { kind, value: value.chars().take(200).collect(), grammar }
    }
}

/// Declares a checked text: the doc comment, the type, its kind, its grammar in words, and the check.
macro_rules! checked {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $grammar:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks a text.
            ///
            /// # Errors
            /// [`InvalidName`], with the grammar.
            pub fn parse(text: impl AsRef<str>) -> Result<Self, InvalidName> {
                let text = text.as_ref();
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.to_owned())) } else { Err(InvalidName::new($kind, text, $grammar)) }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;
            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(it: $name) -> Self {
                it.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

checked! {
    /// A container's name: the one grammar that every engine accepts.
    ContainerName,
    "a container name",
    "letters, digits, `_`, `.` and `-`, first a letter or digit, at most 63, and not 12 or more hex digits",
    is_name
}
checked! {
    /// A network's name, of the same grammar as a container's.
    NetworkName,
    "a network name",
    "letters, digits, `_`, `.` and `-`, first a letter or digit, at most 63, and not 12 or more hex digits",
    is_name
}
checked! {
    /// A volume's name, of the same grammar as a container's.
    VolumeName,
    "a volume name",
    "letters, digits, `_`, `.` and `-`, first a letter or digit, at most 63, and not 12 or more hex digits",
    is_name
}
checked! {
    /// A snapshot's name, of the same grammar as a container's.
    SnapshotName,
    "a snapshot name",
    "letters, digits, `_`, `.` and `-`, first a letter or digit, at most 63, and not 12 or more hex digits",
    is_name
}
checked! {
    /// The name of a stack of services: Compose's own grammar.
    ProjectName,
    "a project name",
    "lower-case letters, digits, `_` and `-`, first a letter or digit, at most 63",
    |it| it.len() <= 63
        && it.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && it.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c))
}
checked! {
    /// An engine's full id of a container. For Apple's engine it is the container's name.
    ContainerId,
    "a container id",
    "64 lower-case hex digits, or a container name",
    |it| is_digest(it) || is_name(it)
}
checked! {
    /// An engine's id of an image.
    ImageId,
    "an image id",
    "`sha256:` and 64 lower-case hex digits",
    |it| it.strip_prefix("sha256:").is_some_and(is_digest)
}
checked! {
    /// Coracle's own id of a container: 32 random hex digits, the label `<ns>.id`.
    RecordId,
    "a record id",
    "32 lower-case hex digits",
    |it| it.len() == 32 && is_hex(it)
}
checked! {
    /// The id of a command in the guest.
    JobId,
    "a job id",
    "8 lower-case hex digits, or `main`",
    |it| it == MAIN || (it.len() == 8 && is_hex(it))
}
checked! {
    /// Prefix of labels and names, `coracle` unless configured.
    LabelNamespace,
    "a label namespace",
    "a lower-case letter, then lower-case letters, digits and `-`, at most 32",
    |it| it.len() <= 32
        && it.starts_with(|c: char| c.is_ascii_lowercase())
        && it.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}
checked! {
    /// The name of an image: `[registry[:port]/]path[:tag][@sha256:digest]`, or an image id.
    ImageRef,
    "an image reference",
    "`[registry/]name[:tag][@sha256:digest]` in lower case, first a letter or digit, at most 255",
    is_image_ref
}

impl ContainerId {
    /// The first twelve digits, as engines print them; the whole id if it is a name.
    #[must_use]
    pub fn short(&self) -> &str {
        if self.is_digits() { &self.0[..12] } else { &self.0 }
    }

    /// Whether the engine generated it; otherwise it is a name.
    #[must_use]
    pub fn is_digits(&self) -> bool {
        is_digest(&self.0)
    }
}

impl RecordId {
    /// Generates an id.
    #[must_use]
    pub fn random() -> Self {
        Self(random_hex::<16>())
    }
}

/// The id of the job of a container's main program.
const MAIN: &str = "main";

impl JobId {
    /// Generates an id.
    #[must_use]
    pub fn random() -> Self {
        Self(random_hex::<4>())
    }

    /// The id of a container's main program.
    #[must_use]
    pub fn main() -> Self {
        Self(MAIN.to_owned())
    }
}

impl From<ImageId> for ImageRef {
    fn from(id: ImageId) -> Self {
        Self(id.0)
    }
}

impl ImageRef {
    /// The registry, if the first part names one, else `None`: Docker Hub.
    #[must_use]
    pub fn registry(&self) -> Option<&str> {
        let (first, _) = self.0.split_once('/')?;
        (first.contains('.') || first.contains(':') || first == "localhost").then_some(first)
    }

    /// Completes the reference with the default registry and tag.
    #[must_use]
    pub fn completed(&self) -> Self {
        if self.0.starts_with("sha256:") {
            return self.clone();
        }
        let named = match (self.registry(), self.0.contains('/')) {
            (Some(_), _) => self.0.clone(),
            (None, true) => format!("docker.io/{}", self.0),
            (None, false) => format!("docker.io/library/{}", self.0),
        };
        let last = named.rsplit('/').next().unwrap_or_default();
        Self(if last.contains(':') || last.contains('@') { named } else { format!("{named}:latest") })
    }
}

/// A caller's reference to a container: a name, or an id of at least 12 digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Handle {
    /// A name.
    Name(ContainerName),
    /// An id, or its first digits.
    IdPrefix(String),
}

impl Handle {
    /// Checks a text.
    ///
    /// # Errors
    /// [`InvalidName`] for what is neither.
    pub fn parse(text: impl AsRef<str>) -> Result<Self, InvalidName> {
        let text = text.as_ref();
        if (12..=64).contains(&text.len()) && is_hex(text) {
            return Ok(Self::IdPrefix(text.to_owned()));
        }
        ContainerName::parse(text).map(Self::Name)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Name(name) => name.as_str(),
            Self::IdPrefix(digits) => digits,
        }
    }
}

impl From<ContainerId> for Handle {
    fn from(id: ContainerId) -> Self {
        if id.is_digits() { Self::IdPrefix(id.0) } else { Self::Name(ContainerName(id.0)) }
    }
}

impl From<&ContainerId> for Handle {
    fn from(id: &ContainerId) -> Self {
        id.clone().into()
    }
}

impl TryFrom<String> for Handle {
    type Error = InvalidName;
    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::parse(text)
    }
}

impl From<Handle> for String {
    fn from(it: Handle) -> Self {
        it.as_str().to_owned()
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `N` bytes from the system's generator, as hex.
#[must_use]
pub fn random_hex<const N: usize>() -> String {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system's random generator answers");
    hex::encode(bytes)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Whether it is an engine's id: a SHA-256.
fn is_digest(text: &str) -> bool {
    text.len() == 64 && is_hex(text)
}

fn is_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
        && !(text.len() >= 12 && is_hex(text))
}

fn is_image_ref(text: &str) -> bool {
    if let Some(digits) = text.strip_prefix("sha256:") {
        return digits.len() == 64 && is_hex(digits);
    }
    let (named, digest) = match text.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (text, None),
    };
    let last_slash = named.rfind('/').map_or(0, |at| at + 1);
    let (path, tag) = match named[last_slash..].find(':') {
        Some(at) => (&named[..last_slash + at], Some(&named[last_slash + at + 1..])),
        None => (named, None),
    };
    text.len() <= 255
        && path.split('/').enumerate().all(|(at, part)| is_image_part(part, at == 0 && path.contains('/')))
        && tag.is_none_or(is_tag)
        && digest.is_none_or(|digest| digest.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && is_hex(hex)))
}

/// A part of an image's path. The first of several may be a host with a port.
fn is_image_part(part: &str, may_be_host: bool) -> bool {
    let (name, port) = match part.split_once(':') {
        Some((name, port)) if may_be_host => (name, Some(port)),
        _ => (part, None),
    };
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(edge)
        && name.ends_with(edge)
        && name.chars().all(inner)
        && !name.contains("..")
        && port.is_none_or(|it| it.parse::<u16>().is_ok())
}

fn is_tag(tag: &str) -> bool {
    (1..=128).contains(&tag.len())
        && tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && tag.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::{ContainerId, ContainerName, Handle, ImageRef, LabelNamespace};

    #[test]
    fn names_follow_the_grammar() {
        let (long, longer) = ("a".repeat(63), "z".repeat(64));
        for good in ["a", "web-1", "A_b.c", "0", "abcdef", &long[..11], "abcdef12345g"] {
            assert!(ContainerName::parse(good).is_ok(), "{good}");
        }
        for bad in
            ["", "-x", ".x", "..", "a/b", "/tmp/d", "x;id", "a b", "ä", "a\n", "0123456789ab", &longer, "../../x"]
        {
            assert!(ContainerName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_handle_of_twelve_hex_digits_is_an_id() {
        assert!(matches!(Handle::parse("0123456789ab"), Ok(Handle::IdPrefix(_))));
        assert!(matches!(Handle::parse("0123456789a"), Ok(Handle::Name(_))));
        assert!(Handle::parse("0".repeat(65)).is_err());
    }

    #[test]
    fn an_id_that_is_a_name_is_a_handle_by_name_and_has_no_short_form() {
        let id = ContainerId::parse("coracle-ws-0123456789abcdef").unwrap();
        assert_eq!((id.short(), id.is_digits()), (id.as_str(), false));
        assert!(matches!(Handle::from(&id), Handle::Name(_)));
        let digits = ContainerId::parse("a".repeat(64)).unwrap();
        assert_eq!((digits.short(), digits.is_digits()), (&digits.as_str()[..12], true));
        assert!(matches!(Handle::from(&digits), Handle::IdPrefix(_)));
        assert!(ContainerId::parse("a".repeat(63)).is_err() && ContainerId::parse("-x").is_err());
    }

    #[test]
    fn images_follow_the_grammar_and_never_begin_with_a_dash() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let pinned = format!("localhost:5000/a/b:t@{digest}");
        for good in
            ["ubuntu", "ubuntu:24.04", "docker.io/library/x", "localhost:5000/x:Tag_1", &pinned, &digest, "a__b/c"]
        {
            assert!(ImageRef::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-x",
            "--privileged",
            "x:-y",
            "X",
            "a//b",
            "/a",
            "a/",
            "a:b:c",
            "x@sha256:1",
            "a b",
            "h:99999/x",
            "a\0",
        ] {
            assert!(ImageRef::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn short_image_names_are_completed() {
        let completed = |it| ImageRef::parse(it).unwrap().completed().to_string();
        assert_eq!(completed("ubuntu"), "docker.io/library/ubuntu:latest");
        assert_eq!(completed("oven/bun:1"), "docker.io/oven/bun:1");
        assert_eq!(completed("localhost/x"), "localhost/x:latest");
        assert_eq!(completed("h:5000/x:1"), "h:5000/x:1");
    }

    #[test]
    fn an_error_repeats_the_value_without_control_characters() {
        let err = LabelNamespace::parse("A\n").unwrap_err();
        assert!(err.to_string().starts_with("`A\\n` is not a label namespace"), "{err}");
    }
}
