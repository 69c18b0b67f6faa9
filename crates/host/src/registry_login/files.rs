//! Files with logins in Docker's format.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coracle_types::Secret;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

use super::name::{RegistryPath, normal_key};
use super::{CredentialKind, LoginError, LoginOptions, RegistryLogin, credential_helper};
use crate::find_program::search_path;

/// Maximum size of a file with credentials.
const MAX_FILE: u64 = 1 << 20;

/// Variables of helpers that are set by the program which starts them, or that it must not have.
const OF_THE_PROGRAM: [&str; 2] = ["DOCKER_CONFIG", "DOCKER_HOST"];

/// Where logins are searched: nowhere by default.
#[derive(Clone, Debug, Default)]
pub struct LoginFiles {
    /// In the order of the search.
    files: Vec<PathBuf>,
    options: LoginOptions,
}

/// The part of such a file that concerns logins.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfigFile {
    #[serde(default)]
    auths: BTreeMap<String, AuthEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creds_store: Option<String>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct AuthEntry {
    #[serde(deserialize_with = "deserialize_secret", serialize_with = "serialize_secret")]
    #[serde(skip_serializing_if = "Option::is_none")]
    auth: Option<Secret>,
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(deserialize_with = "deserialize_secret", serialize_with = "serialize_secret")]
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<Secret>,
    #[serde(deserialize_with = "deserialize_secret", serialize_with = "serialize_secret")]
    #[serde(skip_serializing_if = "Option::is_none")]
    identitytoken: Option<Secret>,
    #[serde(deserialize_with = "deserialize_secret", serialize_with = "serialize_secret")]
    #[serde(skip_serializing_if = "Option::is_none")]
    registrytoken: Option<Secret>,
}

/// Deserialises a secret. `None` for an empty one.
///
/// # Errors
/// If it is not a text.
pub fn deserialize_secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Secret>, D::Error> {
    let text = String::deserialize(from)?;
    Ok((!text.is_empty()).then(|| text.into()))
}

/// Serialises a secret, for a file that only the user can read.
fn serialize_secret<S: Serializer>(secret: &Option<Secret>, into: S) -> Result<S::Ok, S::Error> {
    let text = secret.as_ref().map(|it| std::str::from_utf8(it.reveal())).transpose();
    text.map_err(<S::Error as serde::ser::Error>::custom)?.serialize(into)
}

impl LoginFiles {
    /// The files of a user with that home directory.
    #[must_use]
    pub fn new(home: &Path, options: LoginOptions) -> Self {
        let docker = options.docker_config.clone().unwrap_or_else(|| home.join(".docker"));
        let mut files = vec![docker.join("config.json")];
        files.extend(options.auth_files.iter().cloned());
        files.push(home.join(".config/containers/auth.json"));
        Self { files, options }
    }

    /// Finds the login for a repository in the first file that has one.
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

    /// Renders the logins and the names of helpers in Docker's `config.json` as such a file. `None` if it has neither.
    ///
    /// # Errors
    /// [`LoginError`] for a file that cannot be read.
    pub fn docker_config(&self) -> Result<Option<Zeroizing<Vec<u8>>>, LoginError> {
        let Some(file) = self.files.first() else { return Ok(None) };
        let failed = |why: String| LoginError { origin: format!("`{}`", file.display()), why };
        let config = read_config(file).map_err(failed)?.filter(|it| !it.is_empty());
        let text = config.map(|it| serde_json::to_vec(&it)).transpose();
        // An error may quote a value.
        Ok(text.map_err(|_| failed("it cannot be rewritten".into()))?.map(Zeroizing::new))
    }

    /// The environment of a program that starts helpers: it finds the same ones as [`find`](Self::find).
    #[must_use]
    pub fn helper_env(&self) -> BTreeMap<String, OsString> {
        let mut env = self.options.program_env.clone();
        env.retain(|name, _| !OF_THE_PROGRAM.contains(&name.as_str()));
        env.insert("PATH".into(), search_path(&self.options.program_dirs));
        env
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
    fn is_empty(&self) -> bool {
        self.auths.is_empty() && self.cred_helpers.is_empty() && self.creds_store.is_none()
    }

    /// The helper of a registry, or the default one.
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

/// Decodes `user:password` in base64.
fn decode(auth: &Secret) -> Result<CredentialKind, String> {
    let wrong_format = "its `auth` is not `user:password` in base64";
    let bytes = Zeroizing::new(BASE64_STANDARD.decode(auth.reveal().trim_ascii()).map_err(|_| wrong_format)?);
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong_format)?.trim_end_matches('\0');
    let (user, password) = text.split_once(':').ok_or(wrong_format)?;
    Ok(CredentialKind::of_user(user, password.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_the_logins_of_docker_and_no_other_setting() {
        let home = tempfile::tempdir().unwrap();
        let options = || LoginOptions { docker_config: Some(home.path().to_owned()), ..LoginOptions::default() };
        let written = |text: &str| {
            std::fs::write(home.path().join("config.json"), text).unwrap();
            let config = LoginFiles::new("/h".as_ref(), options()).docker_config().map_err(|err| err.to_string());
            config.map(|file| file.map(|it| String::from_utf8(it.to_vec()).unwrap()))
        };
        let given = r#"{
            "auths": {"ghcr.io": {"auth": "dTpw", "email": "me"}, "quay.io": {}},
            "credHelpers": {"gcr.io": "gcloud"}, "credsStore": "pass",
            "proxies": {"default": {"httpProxy": "http://u:p@proxy"}}, "cliPluginsExtraDirs": ["/p"], "HttpHeaders": {"X": "y"}
        }"#;
        let expected = r#"{"auths":{"ghcr.io":{"auth":"dTpw"},"quay.io":{}},"credsStore":"pass","credHelpers":{"gcr.io":"gcloud"}}"#;
        assert_eq!(written(given).unwrap().as_deref(), Some(expected));
        for none in ["", "{}", r#"{"proxies": {"default": {}}}"#] {
            assert_eq!(written(none), Ok(None), "{none}");
        }
        let wrong = written(r#"{"auths": {"ghcr.io": {"auth": 7777}}}"#).unwrap_err();
        assert!(!wrong.contains("7777"), "{wrong}");
        assert!(LoginFiles::default().docker_config().unwrap().is_none());
    }

    #[test]
    fn helpers_get_the_users_variables_and_a_path_of_safe_directories() {
        let env = [
            ("PATH", "/own"),
            ("DOCKER_HOST", "unix:///s"),
            ("DOCKER_CONFIG", "/c"),
            ("DBUS_SESSION_BUS_ADDRESS", "b"),
        ];
        let program_env = env.map(|(name, value)| (name.to_owned(), OsString::from(value))).into();
        let options = LoginOptions { program_env, program_dirs: vec!["/first".into()], ..LoginOptions::default() };
        let env = LoginFiles::new("/h".as_ref(), options).helper_env();
        assert_eq!(env.keys().collect::<Vec<_>>(), ["DBUS_SESSION_BUS_ADDRESS", "PATH"]);
        assert!(env["PATH"].to_str().unwrap().starts_with("/first:/usr/bin:"), "{env:?}");
    }
}
