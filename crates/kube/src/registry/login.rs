//! The user's login of a registry, for the registry client.
//!
//! **Invariant:** a login is sent only over TLS, or to this host.

use std::net::IpAddr;

use coracle_host::registry_login::{CredentialKind, HUB, HUB_ALIASES, LoginFiles, RegistryPath};
use coracle_types::Secret;
use oci_client::Reference;
use oci_client::secrets::RegistryAuth;

/// A login, or none.
pub(super) struct ImageLogin {
    pub(super) auth: RegistryAuth,
    /// Its source, or why there is none.
    pub(super) origin: String,
}

impl ImageLogin {
    fn none(origin: String) -> Self {
        Self { auth: RegistryAuth::Anonymous, origin }
    }
}

/// Returns the login for a repository.
///
/// # Errors
/// If a file or a helper fails, or has a login that this client cannot use: no request is sent without the user's
/// login.
pub(super) async fn login(
    files: &LoginFiles,
    insecure: &[String],
    reference: &Reference,
) -> Result<ImageLogin, String> {
    let registry = reference.registry();
    let key = if HUB_ALIASES.contains(&registry) { HUB } else { registry };
    let path = RegistryPath { registry: key, repository: reference.repository() };
    let Some(found) = files.find(path).await.map_err(|err| err.to_string())? else {
        return Ok(ImageLogin::none(format!("there is no login: `docker login {registry}` adds one")));
    };
    if insecure.iter().any(|it| it == registry) && !is_local(registry) {
        let why = format!("the login of {} is not sent: `{registry}` is reached by plain http", found.origin);
        return Ok(ImageLogin::none(why));
    }
    let text = |secret: &Secret| String::from_utf8_lossy(secret.reveal()).into_owned();
    let auth = match &found.kind {
        CredentialKind::Password { user, password } => RegistryAuth::Basic(user.clone(), text(password)),
        CredentialKind::RegistryToken(token) => RegistryAuth::Bearer(text(token)),
        CredentialKind::IdentityToken(_) => {
            let origin = found.origin;
            return Err(format!("the login of {origin} is an identity token, and a cluster's images need a password"));
        }
    };
    Ok(ImageLogin { auth, origin: format!("with the login of {}", found.origin) })
}

/// Whether a registry is on this host, by its name.
fn is_local(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |it| it.0);
    host == "localhost" || host.parse().is_ok_and(|it: IpAddr| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use coracle_host::registry_login::LoginOptions;

    use super::*;

    async fn of(config: &str, registry: &str, insecure: &[&str]) -> Result<ImageLogin, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".docker")).unwrap();
        std::fs::write(dir.path().join(".docker/config.json"), config).unwrap();
        let files = LoginFiles::new(dir.path(), LoginOptions::default());
        let insecure: Vec<_> = insecure.iter().map(|it| (*it).to_owned()).collect();
        login(&files, &insecure, &format!("{registry}/a/b:1").parse().unwrap()).await
    }

    #[tokio::test]
    async fn a_login_is_the_users_and_is_sent_only_over_tls_or_to_this_host() {
        // me:pass
        let config = r#"{"auths":{"r.example:5000":{"auth":"bWU6cGFzcw=="},"127.0.0.1:5000":{"auth":"bWU6cGFzcw=="}}}"#;
        let basic = RegistryAuth::Basic("me".into(), "pass".into());
        assert!(of(config, "r.example:5000", &[]).await.unwrap().auth == basic);
        assert!(of(config, "127.0.0.1:5000", &["127.0.0.1:5000"]).await.unwrap().auth == basic);
        let plain = of(config, "r.example:5000", &["r.example:5000"]).await.unwrap();
        assert!(plain.auth == RegistryAuth::Anonymous && plain.origin.contains("plain http"));
        let other = of(config, "other.example", &[]).await.unwrap();
        assert!(other.auth == RegistryAuth::Anonymous && other.origin.contains("docker login other.example"));
    }

    #[tokio::test]
    async fn an_unusable_login_is_not_ignored_silently() {
        let token = r#"{"auths":{"r.example":{"identitytoken":"abc-secret"}}}"#;
        let refused = of(token, "r.example", &[]).await.err().unwrap();
        assert!(refused.contains("identity token") && !refused.contains("secret"), "{refused}");
        assert!(of("{", "r.example", &[]).await.err().unwrap().contains("config.json"));
    }
}
