//! Names and keys in Kubernetes' grammars.

use sha2::{Digest, Sha256};

/// Name of the container in each Pod that the guest and all commands run in.
pub(crate) const MAIN: &str = "main";

/// Name of the init container that takes the guest.
pub(crate) const GUEST: &str = "guest";

/// The label that all objects of ours carry.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Its value.
pub(crate) const CORACLE: &str = "coracle";

/// Label: the first half of the container's id, since a value has at most 63 characters.
pub(crate) const ID_LABEL: &str = "coracle.dev/container";

/// Label: the network that a Pod is on.
pub(crate) const NETWORK_LABEL: &str = "coracle.dev/network";

/// Label of a Pod of a warm pool: the claim that it is bound to, whose name is that of a Pod of our own.
pub(crate) const CLAIM_LABEL: &str = "coracle.dev/claim";

/// Annotation of a Pod of our own: why it is none of the warm pool.
pub(crate) const NO_POOL: &str = "coracle.dev/not-from-warm-pool";

/// Annotation: the container's id.
pub(crate) const ID: &str = "coracle.dev/container-id";

/// Annotation: the name as it was given.
pub(crate) const NAME: &str = "coracle.dev/name";

/// Annotation: all labels, as JSON.
pub(crate) const LABELS: &str = "coracle.dev/labels";

/// Annotation: the id of the image.
pub(crate) const IMAGE_ID: &str = "coracle.dev/image-id";

/// Annotation: the environment of the image, as JSON.
pub(crate) const IMAGE_ENV: &str = "coracle.dev/image-env";

/// Annotation: limits that were asked for, as JSON.
pub(crate) const LIMITS: &str = "coracle.dev/limits";

/// Annotation: the time of the start.
pub(crate) const STARTED: &str = "coracle.dev/started";

/// Annotation: properties of a network, as JSON.
pub(crate) const NETWORK: &str = "coracle.dev/network-properties";

/// The longest name of an object that is a label of DNS, too.
const MAX_NAME: usize = 63;

/// Digits of a digest that keep two names apart which Kubernetes would write the same.
const DIGEST_DIGITS: usize = 8;

/// The name of an object for a name of ours. Two different names never share an object's name.
pub(crate) fn object_name(name: &str) -> String {
    if is_dns_label(name) {
        return name.to_owned();
    }
    let digest = hex::encode(Sha256::digest(name.as_bytes()));
    let kept: String =
        name.to_ascii_lowercase().chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect();
    let kept = &kept[..kept.len().min(MAX_NAME - DIGEST_DIGITS - 1)];
    format!("{}-{}", kept.trim_matches('-'), &digest[..DIGEST_DIGITS])
}

/// Letters, digits and `-`, with a letter first: also the grammar of a Service's name.
fn is_dns_label(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.starts_with(|it: char| it.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-')
}

/// Whether Kubernetes takes this as a label. A key with a prefix is left to the annotation: prefixes belong to others.
pub(crate) fn is_label(key: &str, value: &str) -> bool {
    is_word(key) && (value.is_empty() || is_word(value))
}

fn is_word(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len())
        && text.starts_with(|it: char| it.is_ascii_alphanumeric())
        && text.ends_with(|it: char| it.is_ascii_alphanumeric())
        && text.chars().all(|it| it.is_ascii_alphanumeric() || "-_.".contains(it))
}

/// The half of a container's id that is its label.
pub(crate) fn id_label(id: &str) -> &str {
    &id[..id.len().min(32)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_stay_different() {
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
