//! A proxy that hands each connection to a server with TLS.

use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::front::{Front, read_head};

/// A proxy for `CONNECT`, with one server behind it.
pub(crate) struct TlsProxy {
    pub(crate) port: u16,
    /// PEM of the certificate that has signed the server's.
    pub(crate) authority: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl TlsProxy {
    /// A proxy to the server of that name, whose requests are answered by `front`.
    pub(crate) async fn start(name: &str, front: Front, registry: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (authority, config) = certificates(name);
        let (heads, acceptor) = (Arc::new(Mutex::new(Vec::new())), TlsAcceptor::from(Arc::new(config)));
        let noted = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (acceptor, front, noted) = (acceptor.clone(), front.clone(), Arc::clone(&noted));
                tokio::spawn(async move {
                    let Some(head) = read_head(&mut stream).await else { return };
                    noted.lock().unwrap().push(head.to_ascii_lowercase());
                    stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await.unwrap();
                    if let Ok(stream) = acceptor.accept(stream).await {
                        front.serve(stream, Some(registry)).await;
                    }
                });
            }
        });
        Self { port, authority, heads }
    }

    /// The request that it received, in lower case.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn certificates(name: &str) -> (String, ServerConfig) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::from_params(&params, &authority_key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![own.der().clone()], key).unwrap();
    (authority.pem(), config)
}
