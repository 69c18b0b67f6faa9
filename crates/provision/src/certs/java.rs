//! A trust store for Java, which reads no certificates in PEM.

use super::additions::{Certificate, certificates};

/// Begins each store of the type JKS.
const MAGIC: u32 = 0xfeed_feed;

const VERSION: u32 = 2;

/// The type of an entry that is a certificate without a key.
const TRUSTED: u32 = 1 << 1;

/// Renders the certificates of a bundle as a store of the type JKS, which each version of Java reads without a password.
pub(super) fn store(bundle: &[u8]) -> Vec<u8> {
    let all: Vec<Certificate> = certificates(bundle).collect();
    let mut store = Vec::with_capacity(bundle.len());
    for number in [MAGIC, VERSION, all.len() as u32] {
        store.extend(number.to_be_bytes());
    }
    for (number, certificate) in all.iter().enumerate() {
        store.extend(TRUSTED.to_be_bytes());
        text(&mut store, &format!("coracle-{number}"));
        // When it was added.
        store.extend(0_u64.to_be_bytes());
        text(&mut store, "X.509");
        store.extend((certificate.der().len() as u32).to_be_bytes());
        store.extend(certificate.der());
    }
    store
}

fn text(store: &mut Vec<u8>, text: &str) {
    store.extend((text.len() as u16).to_be_bytes());
    store.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::additions::tests::pem;
    use super::*;

    #[test]
    fn a_store_has_each_certificate_with_its_length() {
        let bundle = format!("# ours\n{}{}", pem(1), pem(2));
        let store = store(bundle.as_bytes());
        assert_eq!(store[..12], [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2]);
        let first = b"\0\0\0\x02\0\x09coracle-0\0\0\0\0\0\0\0\0\0\x05X.509\0\0\0\xca\x30\x01";
        assert_eq!(&store[12..12 + first.len()], first);
        assert_eq!(store.len(), 12 + 2 * (first.len() + 200));
    }
}
