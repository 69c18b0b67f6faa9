//! The binary encoding of heads, requests, replies and events.
//!
//! It is [postcard](https://docs.rs/postcard): serde types without field names, integers of variable length, raw bytes. Of
//! the binary formats for serde it adds the least code to a program that is in every container, its encoding has been
//! stable since version 1.0 (2022), and it is released regularly (1.2 in 2026). MessagePack and CBOR are self-describing,
//! which costs bytes and code, and this protocol compares versions first; bincode is no longer maintained.
//!
//! So types on the wire have no optional fields, and new variants are added at the end. A changed request gets a new name:
//! guests of earlier versions still run in containers, and a test compares the types that they know.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A body that is not of the expected type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot be decoded: {0}")]
pub struct DecodeError(String);

/// Encodes a body.
///
/// # Panics
/// For a type whose length is not known before it is encoded, of which there is none on the wire.
#[must_use]
pub fn encode<T: Serialize>(body: &T) -> Vec<u8> {
    postcard::to_allocvec(body).expect("types on the wire know their length")
}

/// Appends a body to bytes.
pub(crate) fn encode_to<T: Serialize>(body: &T, bytes: Vec<u8>) -> Vec<u8> {
    postcard::to_extend(body, bytes).expect("types on the wire know their length")
}

/// How many bytes a body has.
#[must_use]
pub fn encoded_len<T: Serialize>(body: &T) -> usize {
    postcard::experimental::serialized_size(body).expect("types on the wire know their length")
}

/// Decodes a complete body.
///
/// # Errors
/// [`DecodeError`] for another type, and if bytes are left.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    match postcard::take_from_bytes(bytes) {
        Ok((body, [])) => Ok(body),
        Ok((_, rest)) => Err(DecodeError(format!("{} bytes are left", rest.len()))),
        Err(err) => Err(DecodeError(err.to_string())),
    }
}

/// Bytes of a request or a reply. Their value is not printed, since it may be secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes(#[serde(with = "serde_bytes")] pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl<T: Into<Vec<u8>>> From<T> for Bytes {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    #[test]
    fn only_a_complete_body_is_decoded() {
        let body = (Bytes::from(*b"\0\xff"), "text".to_owned(), Some(7u64));
        let bytes = encode(&body);
        assert_eq!(bytes.len(), encoded_len(&body));
        assert_eq!(decode(&bytes), Ok(body));
        for cut in 0..bytes.len() {
            assert!(decode::<(Bytes, String, Option<u64>)>(&bytes[..cut]).is_err(), "{cut}");
        }
        let more = [&bytes[..], b"x"].concat();
        assert_eq!(
            decode::<(Bytes, String, Option<u64>)>(&more).unwrap_err().to_string(),
            "cannot be decoded: 1 bytes are left"
        );
    }

    #[test]
    fn an_unknown_error_code_is_decoded_as_other() {
        assert_eq!(decode(&encode(&200u32)), Ok(ErrorCode::Other));
        assert_eq!(decode(&encode(&ErrorCode::Busy)), Ok(ErrorCode::Busy));
    }

    #[test]
    fn a_value_is_not_printed() {
        assert_eq!(format!("{:?}", Bytes::from(*b"canary")), "6 bytes");
    }
}
