//! Files of logins in Docker's format.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coracle_types::Secret;
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use super::name::{RegistryPath, normal_key};
use super::{CredentialKind, LoginError, LoginOptions, RegistryLogin, credential_helper};

/// Bytes of a file of credentials.
const MAX_FILE: u64 = 1 << 20;

/// Where logins are looked for: nowhere by default.
#[derive(Clone, Debug, Default)]
pub struct LoginFiles {
    /// In the order of the search.
    files: Vec<PathBuf>,
    options: LoginOptions,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigFile {
    #[serde(default)]
    auths: BTreeMap<String, AuthEntry>,
    creds_store: Option<String>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthEntry {
    #[serde(deserialize_with = "deserialize_secret")]
    auth: Option<Secret>,
    username: String,
    #[serde(deserialize_with = "deserialize_secret")]
    password: Option<Secret>,
    #[serde(deserialize_with = "deserialize_secret")]
    identitytoken: Option<Secret>,
    #[serde(deserialize_with = "deserialize_secret")]
    registrytoken: Option<Secret>,
}

/// A secret of a JSON document. `None` for an empty one.
///
/// # Errors
/// When it is no text.
pub fn deserialize_secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Secret>, D::Error> {
    let text = String::deserialize(from)?;
    Ok((!text.is_empty()).then(|| text.into()))
}

impl LoginFiles {
    /// The files of a person with that home.
    #[must_use]
    pub fn new(home: &Path, options: LoginOptions) -> Self {
        let docker = options.docker_config.clone().unwrap_or_else(|| home.join(".docker"));
        let mut files = vec![docker.join("config.json")];
        files.extend(options.auth_files.iter().cloned());
        files.push(home.join(".config/containers/auth.json"));
        Self { files, options }
    }

    /// The login for a repository: of the first file that has one.
    ///
    /// # Errors
    /// [`LoginError`] for a file that cannot be read, or a helper that fails.
    pub async fn find(&self, name: RegistryPath<'_>) -> Result<Option<RegistryLogin>, LoginError> {
        for file in &self.files {
            let origin = format!("`{}`", file.display());
            let failed = |why: String| LoginError { origin: origin.clone(), why };
            let Some(config) = read_config(file).map_err(failed)? else { continue };
            if let Some(helper) = config.helper(name)
                && let Some(kind) = credential_helper::get(&helper, name, &self.options).await?
            {
                return Ok(Some(RegistryLogin { kind, origin: format!("`docker-credential-{helper}`") }));
            }
            if let Some(kind) = config.entry(name).map_err(failed)? {
                return Ok(Some(RegistryLogin { kind, origin }));
            }
        }
        Ok(None)
    }
}

fn read_config(path: &Path) -> Result<Option<ConfigFile>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(err) if matches!(err.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(err) => return Err(err.to_string()),
    };
    let mut text = Zeroizing::new(Vec::new());
    file.take(MAX_FILE + 1).read_to_end(&mut text).map_err(|err| err.to_string())?;
    if text.len() as u64 > MAX_FILE {
        return Err(format!("it is larger than {MAX_FILE} bytes"));
    }
    if text.trim_ascii().is_empty() {
        return Ok(None);
    }
    // An error of the parser may quote a value.
    let wrong = |err: serde_json::Error| format!("its line {} is not what it should be", err.line());
    serde_json::from_slice(&text).map(Some).map_err(wrong)
}

impl ConfigFile {
    /// The helper for a registry: its own, or the one for all.
    fn helper(&self, name: RegistryPath<'_>) -> Option<String> {
        let own = self.cred_helpers.iter().find(|it| normal_key(it.0) == name.registry).map(|it| it.1);
        own.or(self.creds_store.as_ref()).filter(|it| !it.is_empty()).cloned()
    }

    fn entry(&self, name: RegistryPath<'_>) -> Result<Option<CredentialKind>, String> {
        for key in name.keys() {
            let entry = self.auths.iter().find(|it| normal_key(it.0) == key).map(|it| it.1);
            if let Some(kind) = entry.map(AuthEntry::kind).transpose()?.flatten() {
                return Ok(Some(kind));
            }
        }
        Ok(None)
    }
}

impl AuthEntry {
    fn kind(&self) -> Result<Option<CredentialKind>, String> {
        let Self { auth, username, password, identitytoken, registrytoken } = self;
        if let Some(token) = registrytoken {
            return Ok(Some(CredentialKind::RegistryToken(token.clone())));
        }
        if let Some(token) = identitytoken {
            return Ok(Some(CredentialKind::IdentityToken(token.clone())));
        }
        if let Some(auth) = auth {
            return decode(auth).map(Some);
        }
        let password = password.clone().filter(|_| !username.is_empty());
        Ok(password.map(|password| CredentialKind::Password { user: username.clone(), password }))
    }
}

/// `user:password` in base64.
fn decode(auth: &Secret) -> Result<CredentialKind, String> {
    let odd = "its `auth` is not `user:password` in base64";
    let bytes = Zeroizing::new(BASE64_STANDARD.decode(auth.reveal().trim_ascii()).map_err(|_| odd)?);
    let text = std::str::from_utf8(&bytes).map_err(|_| odd)?.trim_end_matches('\0');
    let (user, password) = text.split_once(':').ok_or(odd)?;
    Ok(CredentialKind::of_user(user, password.into()))
}
