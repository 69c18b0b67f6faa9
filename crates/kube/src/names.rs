//! Names and keys in Kubernetes' grammars.

use sha2::{Digest, Sha256};

/// Name of the container in each Pod that the guest and all commands run in.
pub(crate) const MAIN: &str = "main";

/// Name of the init container that receives the guest.
pub(crate) const GUEST: &str = "guest";

/// The label of all objects of Coracle.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Its value.
pub(crate) const CORACLE: &str = "coracle";

/// Label: the first half of the container's id, since a value has at most 63 characters.
pub(crate) const ID_LABEL: &str = "coracle.dev/container";

/// Label: the network that a Pod is on.
pub(crate) const NETWORK_LABEL: &str = "coracle.dev/network";

/// Label of a Pod of a warm pool: the claim that it is bound to, whose name is that of the container's own Pod.
pub(crate) const CLAIM_LABEL: &str = "coracle.dev/claim";

/// Annotation of a container's own Pod: why it does not come from the warm pool.
pub(crate) const NO_POOL: &str = "coracle.dev/not-from-warm-pool";

/// Annotation: the container's id.
pub(crate) const ID: &str = "coracle.dev/container-id";

/// Annotation: the given name.
pub(crate) const NAME: &str = "coracle.dev/name";

/// Annotation: all labels, as JSON.
pub(crate) const LABELS: &str = "coracle.dev/labels";

/// Annotation: the id of the image.
pub(crate) const IMAGE_ID: &str = "coracle.dev/image-id";

/// Annotation: the environment of the image, as JSON.
pub(crate) const IMAGE_ENV: &str = "coracle.dev/image-env";

/// Annotation: the requested limits, as JSON.
pub(crate) const LIMITS: &str = "coracle.dev/limits";

/// Annotation: the time of the start.
pub(crate) const STARTED: &str = "coracle.dev/started";

/// Annotation: properties of a network, as JSON.
pub(crate) const NETWORK: &str = "coracle.dev/network-properties";

/// Maximum length of the name of an object that is also a DNS label.
const MAX_NAME: usize = 63;

/// Number of digits of a digest that distinguish two names with the same letters.
const DIGEST_DIGITS: usize = 8;

/// Returns the name of an object for a name. Two different names never share an object's name.
pub(crate) fn object_name(name: &str) -> String {
    if is_dns_label(name) {
        return name.to_owned();
    }
    let digest = hex::encode(Sha256::digest(name.as_bytes()));
    let letters: String =
        name.to_ascii_lowercase().chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect();
    let letters = &letters[..letters.len().min(MAX_NAME - DIGEST_DIGITS - 1)];
    format!("{}-{}", letters.trim_matches('-'), &digest[..DIGEST_DIGITS])
}

/// Whether a name has only letters, digits and `-`, and begins with a letter: also the grammar of a Service's name.
fn is_dns_label(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.starts_with(|it: char| it.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-')
}

/// Whether this is a valid label in Kubernetes. Keys with a prefix are only in the annotation, since prefixes belong to
/// others.
pub(crate) fn is_label(key: &str, value: &str) -> bool {
    is_word(key) && (value.is_empty() || is_word(value))
}

fn is_word(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len())
        && text.starts_with(|it: char| it.is_ascii_alphanumeric())
        && text.ends_with(|it: char| it.is_ascii_alphanumeric())
        && text.chars().all(|it| it.is_ascii_alphanumeric() || "-_.".contains(it))
}

/// Returns the half of a container's id that is its label.
pub(crate) fn id_label(id: &str) -> &str {
    &id[..id.len().min(32)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_names_stay_different() {
        assert_eq!(object_name("coracle-a1"), "coracle-a1");
        let others = ["a.b", "a_b", "A-b", "1st", "a-b-"].map(object_name);
        for object in &others {
            assert!(is_dns_label(object) || object.starts_with('1'), "{object}");
        }
        assert_eq!(others.iter().collect::<std::collections::BTreeSet<_>>().len(), others.len());
        let long = "x".repeat(63) + "y";
        assert!(object_name(&long).len() <= 63);
        assert_ne!(object_name(&long), object_name(&"x".repeat(64)));
    }

    #[test]
    fn a_value_that_kubernetes_refuses_is_no_label() {
        assert!(is_label("coracle.managed", "true") && is_label("coracle.purpose", ""));
        for (key, value) in [
            ("coracle.created", "2026-11-26T18:00:00Z"),
            ("coracle.sig", &*"a".repeat(64)),
            ("example.com/key", "x"),
            ("key", "-x"),
            ("", "x"),
        ] {
            assert!(!is_label(key, value), "{key} {value}");
        }
    }
}
