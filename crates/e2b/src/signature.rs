//! Signatures of addresses of files, which let a client without the token read or write one file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ctutils::CtEq as _;
use hyper::Method;
use hyper::http::request::Parts;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::api::{query, value};

/// Whether two texts are the same. The time of the comparison depends only on their lengths.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let (one, other): ([u8; 32], [u8; 32]) = (Sha256::digest(one).into(), Sha256::digest(other).into());
    bool::from(one.ct_eq(&other))
}

/// The signature in the address of a request for a file.
pub(crate) struct FileSignature {
    given: String,
    /// The path, the operation and the user.
    signed: [String; 3],
    /// When it ends, in seconds since 1970.
    expiration: Option<String>,
}

impl FileSignature {
    pub(crate) fn of(head: &Parts) -> Option<Self> {
        let operation = match (&head.method, head.uri.path()) {
            (&Method::GET, "/files") => "read",
            (&Method::POST, "/files") => "write",
            _ => return None,
        };
        let pairs = query(head.uri.query());
        let text = |name: &str| value(&pairs, name).unwrap_or_default().to_owned();
        Some(Self {
            given: value(&pairs, "signature")?.to_owned(),
            signed: [text("path"), operation.to_owned(), text("username")],
            expiration: value(&pairs, "signature_expiration").map(str::to_owned),
        })
    }

    /// Whether the holder of the token has signed the path, the operation, the user and the end.
    pub(crate) fn is_by(&self, token: &str) -> bool {
        let words = self.signed.iter().map(String::as_str).chain([token]).chain(self.expiration.as_deref());
        let text = words.collect::<Vec<_>>().join(":");
        let signature = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)));
        is_same(self.given.as_bytes(), signature.as_bytes())
    }

    /// Whether its time is over.
    pub(crate) fn is_over(&self) -> bool {
        let end = self.expiration.as_ref().map(|it| it.parse::<i64>());
        end.is_some_and(|end| end.map_or(true, |end| end < Timestamp::now().as_second()))
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn signature(method: &str, uri: &str) -> Option<FileSignature> {
        FileSignature::of(&Request::builder().method(method).uri(uri).body(()).unwrap().into_parts().0)
    }

    /// Made by `get_signature` of E2B's SDK for Python 2.63.0.
    #[test]
    fn a_signature_of_the_sdk_holds_for_its_path_operation_user_and_token_only() {
        let given = "v1_9eiGIR7huZ%2FO459TVQ1FNtM8mf3nKVrTW%2ByUPP6hoM0";
        let read = |uri: &str| signature("GET", &format!("/files?{uri}&signature={given}")).unwrap();
        assert!(read("path=a%2Fb.txt&username=user").is_by("token"));
        assert!(!read("path=a%2Fb.txt&username=user").is_by("other"));
        assert!(!read("path=a%2Fc.txt&username=user").is_by("token"));
        assert!(!read("path=a%2Fb.txt&username=root").is_by("token"));
        assert!(!read("path=a%2Fb.txt&username=user&signature_expiration=1").is_by("token"));
        let write = signature("POST", &format!("/files?path=a%2Fb.txt&username=user&signature={given}")).unwrap();
        assert!(!write.is_by("token"));
        assert!(signature("GET", "/files?path=a").is_none() && signature("GET", "/other?signature=a").is_none());
    }

    #[test]
    fn a_signature_ends_at_its_time() {
        let over =
            |end: &str| signature("GET", &format!("/files?signature=a&signature_expiration={end}")).unwrap().is_over();
        assert!(over("1") && over("x") && !over("99999999999"));
    }
}
