//! TLS on both sides of the proxy: as the server for the container, and as the client of the real one.

mod authority;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use coracle_types::failure::Failure;
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::CertificateDer;
use rustls_platform_verifier::Verifier;

pub use self::authority::Authority;

/// Both protocols, in the order of preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Maximum number of names whose certificates are stored. A wildcard rule has no bound of its own.
const MAX_NAMES: usize = 256;

/// The TLS settings of one proxy.
pub(crate) struct Tls {
    provider: Arc<CryptoProvider>,
    authority: Arc<Authority>,
    servers: Mutex<HashMap<String, Arc<ServerConfig>>>,
    clients: [Arc<ClientConfig>; 2],
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Tls {
    /// Verifies servers by the host's roots and `roots`.
    ///
    /// # Errors
    /// If the host has no root certificates.
    pub(crate) fn new(authority: Arc<Authority>, roots: &[CertificateDer<'static>]) -> Result<Self, Failure> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier::new_with_extra_roots(roots.iter().cloned(), provider.clone());
        let verifier = Arc::new(verifier.map_err(Failure::internal)?);
        let client = |protocols: &[&[u8]]| {
            let config = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
            let config =
                config.map_err(Failure::internal)?.dangerous().with_custom_certificate_verifier(verifier.clone());
            let mut config = config.with_no_client_auth();
            config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
            Ok::<_, Failure>(Arc::new(config))
        };
        let clients = [client(&PROTOCOLS[1..])?, client(&PROTOCOLS)?];
        Ok(Self { provider, authority, servers: Mutex::default(), clients })
    }

    /// Returns the settings with which the proxy is the server of that name.
    ///
    /// # Errors
    /// If no certificate can have that name.
    pub(crate) fn server(&self, name: &str) -> Result<Arc<ServerConfig>, Failure> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = servers.get(name) {
            return Ok(known.clone());
        }
        if servers.len() >= MAX_NAMES {
            servers.clear();
        }
        let (chain, key) = self.authority.certify(name)?;
        let config = ServerConfig::builder_with_provider(self.provider.clone()).with_safe_default_protocol_versions();
        let config = config.map_err(Failure::internal)?.with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.map_err(Failure::internal)?;
        config.alpn_protocols = PROTOCOLS.iter().map(|it| it.to_vec()).collect();
        Ok(servers.entry(name.to_owned()).or_insert(Arc::new(config)).clone())
    }

    /// Returns the settings for a real server. A client that speaks HTTP/1.1 may change the protocol, which HTTP/2 cannot.
    pub(crate) fn client(&self, http2: bool) -> Arc<ClientConfig> {
        self.clients[usize::from(http2)].clone()
    }
}
