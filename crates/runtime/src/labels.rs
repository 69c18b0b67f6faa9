//! Labels that prove that an object is Coracle's.

use std::collections::BTreeMap;

use coracle_types::{EngineKind, LabelNamespace, Secret};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The value of the label `<ns>.kind` for the image of a snapshot.
pub const SNAPSHOT: &str = "snapshot";

/// The label with the snapshot's name, behind the namespace.
pub const SNAPSHOT_NAME: &str = "snapshot.name";

/// Labels that must all be there. A `None` value asks for the key alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelFilter(pub Vec<(String, Option<String>)>);

impl LabelFilter {
    /// Whether labels have all that it asks for.
    #[must_use]
    pub fn admits(&self, labels: &BTreeMap<String, String>) -> bool {
        let has = |(key, value): &(String, Option<String>)| {
            labels.get(key).is_some_and(|it| value.as_ref().is_none_or(|wanted| wanted == it))
        };
        self.0.iter().all(has)
    }
}

/// Signs and checks labels under the key of one state directory.
#[derive(Clone, Debug)]
pub struct Signer {
    namespace: LabelNamespace,
    key: Secret,
    uid: u32,
}

impl Signer {
    /// A signer for labels that begin with `namespace`, made by the user with that user id.
    #[must_use]
    pub fn new(namespace: LabelNamespace, key: Secret, uid: u32) -> Self {
        Self { namespace, key, uid }
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &LabelNamespace {
        &self.namespace
    }

    /// A label key of Coracle's.
    #[must_use]
    pub fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.namespace)
    }

    /// Eight digits that identify this key without revealing it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.reveal()).expect("HMAC takes keys of any length");
        mac.update(b"fingerprint");
        hex::encode(&mac.finalize().into_bytes()[..4])
    }

    /// A digest of bytes, in hex; without the key it cannot be compared with guesses.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.reveal()).expect("HMAC takes keys of any length");
        mac.update(b"digest\0");
        mac.update(bytes);
        hex::encode(mac.finalize().into_bytes())
    }

    /// Adds `<ns>.sig` to labels.
    pub fn sign(&self, engine: EngineKind, labels: &mut BTreeMap<String, String>) {
        let signature = hex::encode(self.mac(engine, labels).finalize().into_bytes());
        labels.insert(self.key("sig"), signature);
    }

    /// Whether `<ns>.sig` matches all other labels of Coracle's. Compares in constant time.
    #[must_use]
    pub fn verify(&self, engine: EngineKind, labels: &BTreeMap<String, String>) -> bool {
        let Some(Ok(signature)) = labels.get(&self.key("sig")).map(hex::decode) else { return false };
        self.mac(engine, labels).verify_slice(&signature).is_ok()
    }

    /// Whether labels have the form that every signer gives them. It proves nothing.
    #[must_use]
    pub fn has_signature(&self, labels: &BTreeMap<String, String>) -> bool {
        labels.get(&self.key("sig")).is_some_and(|it| it.len() == 64 && hex::decode(it).is_ok())
    }

    /// Over the canonical JSON of our labels, the engine and the user. A JSON object of a sorted map is canonical:
    /// keys in order, no blanks.
    fn mac(&self, engine: EngineKind, labels: &BTreeMap<String, String>) -> Hmac<Sha256> {
        let (prefix, sig) = (self.key(""), self.key("sig"));
        let ours: BTreeMap<_, _> = labels.iter().filter(|(key, _)| key.starts_with(&prefix) && **key != sig).collect();
        let signed = serde_json::json!({ "engine": engine, "labels": ours, "uid": self.uid });
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.reveal()).expect("HMAC takes keys of any length");
        mac.update(signed.to_string().as_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(key: u8) -> Signer {
        Signer::new(LabelNamespace::parse("coracle").unwrap(), Secret::new(vec![key; 32]), 1000)
    }

    fn signed() -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([("coracle.exec_user".to_owned(), "1000:1000".to_owned())]);
        signer(1).sign(EngineKind::Docker, &mut labels);
        labels
    }

    #[test]
    fn a_signature_holds_for_its_labels_engine_and_key_only() {
        let labels = signed();
        assert!(signer(1).verify(EngineKind::Docker, &labels));
        assert!(!signer(2).verify(EngineKind::Docker, &labels));
        assert!(!signer(1).verify(EngineKind::Podman, &labels));
        assert!(!signer(1).verify(EngineKind::Docker, &BTreeMap::new()));
    }

    #[test]
    fn a_changed_or_added_label_of_ours_breaks_it_and_a_callers_does_not() {
        let mut labels = signed();
        labels.insert("team".into(), "blue".into());
        assert!(signer(1).verify(EngineKind::Docker, &labels));
        labels.insert("coracle.extra".into(), "1".into());
        assert!(!signer(1).verify(EngineKind::Docker, &labels));
        let mut labels = signed();
        labels.insert("coracle.exec_user".into(), "0:0".into());
        assert!(!signer(1).verify(EngineKind::Docker, &labels));
    }
}
