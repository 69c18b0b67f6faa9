//! The certificate authority of one container.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use coracle_types::Secret;
use coracle_types::failure::Failure;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest as _, Sha256};

use crate::policy::shape;

/// Days by which clocks may differ.
const BEFORE: i64 = 1;

/// A container may live for years.
const AUTHORITY_DAYS: i64 = 3650;

/// Some clients refuse certificates of more than 398 days.
const CERTIFICATE_DAYS: i64 = 90;

/// Signs certificates that only one container trusts. Its key stays on the host.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates one with a new key, for the container of that name.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn generate(container: &str) -> Result<Self, Failure> {
        let key = KeyPair::generate().map_err(Failure::internal)?;
        let params = authority(container)?;
        let certificate = params.self_signed(&key).map_err(Failure::internal)?;
        Ok(Self { pem: certificate.pem(), certificate: certificate.der().clone(), issuer: Issuer::new(params, key) })
    }

    /// Reads that of the container of that name, as [`to_pem`](Self::to_pem) writes it.
    ///
    /// # Errors
    /// `internal` for anything else.
    pub fn from_pem(container: &str, pem: &Secret) -> Result<Self, Failure> {
        let read = || {
            let text = std::str::from_utf8(pem.reveal()).ok()?;
            let key = KeyPair::from_pem(text).ok()?;
            let certificate = CertificateDer::from_pem_slice(pem.reveal()).ok()?;
            let at = text.find("-----BEGIN CERTIFICATE")?;
            let issuer = Issuer::new(authority(container).ok()?, key);
            Some(Self { issuer, certificate, pem: text[at..].to_owned() })
        };
        read().ok_or_else(|| Failure::internal("the authority of a container's proxy is damaged"))
    }

    /// Renders key and certificate.
    #[must_use]
    pub fn to_pem(&self) -> Secret {
        Secret::from(self.issuer.key().serialize_pem() + &self.pem)
    }

    /// Returns the certificate that the container has to trust, as PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.pem
    }

    /// Returns the placeholder of a secret in the container: text of the shape of its values. Follows from the key of the
    /// authority, so that each process has the same, and no other container.
    #[must_use]
    pub fn placeholder(&self, name: &str) -> String {
        let (begins, length) = shape(name);
        let mut text = begins.to_owned();
        for block in 0_u8.. {
            let is_plain = |it: &char| it.is_ascii_alphanumeric();
            let hash = self.keyed_hash([b"placeholder", name.as_bytes(), &[block]]);
            text.extend(BASE64_URL_SAFE_NO_PAD.encode(hash).chars().filter(is_plain));
            if text.len() >= length {
                break;
            }
        }
        text.truncate(length);
        text
    }

    /// Returns a digest by which two processes compare a secret. It cannot be computed without the key of the authority.
    #[must_use]
    pub fn digest(&self, secret: &Secret) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.keyed_hash([b"digest", secret.reveal()]))
    }

    fn keyed_hash<const N: usize>(&self, parts: [&[u8]; N]) -> [u8; 32] {
        let (mut hash, key) = (Sha256::new(), self.issuer.key().serialize_der());
        for part in parts.into_iter().chain([&*key]) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// Signs a certificate for one name. Returns it with that of the authority, and its key.
    pub(super) fn certify(
        &self,
        name: &str,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Failure> {
        let key = KeyPair::generate().map_err(Failure::internal)?;
        let mut params = CertificateParams::new([name.to_owned()]).map_err(Failure::internal)?;
        params.distinguished_name = named(name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        valid_for(&mut params, CERTIFICATE_DAYS)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(Failure::internal)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok((vec![certificate.der().clone(), self.certificate.clone()], key))
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    // X.509 allows 64 characters.
    named.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    named
}

/// The parameters follow from the name, so that they need not be read from the certificate.
fn authority(container: &str) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::new(Vec::new()).map_err(Failure::internal)?;
    params.distinguished_name = named(&format!("Coracle proxy of {container}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    valid_for(&mut params, AUTHORITY_DAYS)?;
    Ok(params)
}

fn valid_for(params: &mut CertificateParams, days: i64) -> Result<(), Failure> {
    let today = jiff::Zoned::now().date();
    let at = |days: i64| {
        let date = today.checked_add(jiff::Span::new().days(days)).map_err(Failure::internal)?;
        let part = |it: i8| u8::try_from(it).unwrap_or(1);
        Ok::<_, Failure>(rcgen::date_time_ymd(date.year().into(), part(date.month()), part(date.day())))
    };
    (params.not_before, params.not_after) = (at(-BEFORE)?, at(days)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_that_was_written_signs_for_the_same_certificate() {
        let one = Authority::generate("box").unwrap();
        let again = Authority::from_pem("box", &one.to_pem()).unwrap();
        assert_eq!((again.certificate(), again.to_pem()), (one.certificate(), one.to_pem()));
        assert!(!one.certificate().contains("KEY"), "only the certificate goes inside");
        let digest = |authority: &Authority, text: &str| authority.digest(&Secret::from(text));
        assert_eq!(digest(&one, "a"), digest(&again, "a"));
        assert_ne!(digest(&one, "a"), digest(&one, "b"));
        assert_ne!(digest(&one, "a"), digest(&Authority::generate("box").unwrap(), "a"));
        let (chain, _) = again.certify("api.example.com").unwrap();
        assert_eq!(chain[1], one.certificate);
        for odd in ["", one.certificate(), "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"] {
            assert!(Authority::from_pem("box", &Secret::from(odd)).is_err(), "{odd}");
        }
    }
}
