//! `secrets.*`: secrets that containers with a proxy can use and cannot read (`docs/proxy.md#secrets`).

use std::path::PathBuf;

use coracle_provision::env::is_name;
use coracle_proxy::policy::{KnownSecret, SecretPlace, is_secret_host};

use super::macros::table;

table! {
    /// `secrets.NAME.*`
    SecretSource {
        /// hosts that may get [the secret](proxy.md#secrets): `api.example.com`, `*.example.com`, `example.com:8443`
        hosts: Vec<String> => "those of a well-known `NAME`",
        /// its places in a request, with commas: `bearer`, `basic`, `header:NAME`, `query:NAME`
        r#as: Option<String> => "those of a well-known `NAME`, else `bearer`",
        /// host variable with the secret; set at most one of the `key_…` keys
        key_env: Option<String> => "`NAME`",
        /// file with the secret
        key_file: Option<PathBuf>,
        /// program (absolute path) and arguments that print the secret; the output is reused for a minute
        key_command: Option<Vec<String>>,
    }
}

impl SecretSource {
    /// Returns the hosts of the secret of that name.
    #[must_use]
    pub fn hosts(&self, name: &str) -> Vec<String> {
        match KnownSecret::find(name) {
            Some(known) if self.hosts.is_empty() => known.hosts.iter().map(|it| (*it).to_owned()).collect(),
            _ => self.hosts.clone(),
        }
    }

    /// Returns its places in a request.
    ///
    /// # Errors
    /// What is invalid.
    pub fn places(&self, name: &str) -> Result<Vec<SecretPlace>, String> {
        let known = KnownSecret::find(name).map(|it| it.place);
        SecretPlace::parse_list(self.r#as.as_deref().or(known).unwrap_or("bearer")).map_err(|err| err.message.clone())
    }

    /// Returns what is invalid.
    pub(super) fn fault(&self, name: &str) -> Option<String> {
        let sources = [self.key_env.is_some(), self.key_file.is_some(), self.key_command.is_some()];
        let hosts = self.hosts(name);
        match () {
            () if !is_name(name) => Some(format!("`{name}` is no name of a variable")),
            () if hosts.is_empty() => Some(format!("`{name}` needs `hosts`")),
            () if sources.iter().filter(|it| **it).count() > 1 => {
                Some(format!("`{name}` has one of `key_env`, `key_file` and `key_command`"))
            }
            () => match hosts.iter().find(|it| !is_secret_host(it)) {
                Some(host) => Some(format!("`{name}`: `{host}` is no host, such as `api.example.com`")),
                None => self.places(name).err().map(|why| format!("`{name}`: {why}")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_secret_needs_a_name_hosts_places_and_one_source() {
        let read = |text: &str| Config::read(text, false).map_err(|err| err.into_inner().message);
        let config = read("[secrets.GITHUB_TOKEN]\n[secrets.MINE]\nhosts = [\"*.example.com:8443\"]\n").unwrap();
        let (known, own) = (&config.secrets["GITHUB_TOKEN"], &config.secrets["MINE"]);
        assert!(known.hosts("GITHUB_TOKEN").contains(&"api.github.com".to_owned()));
        assert_eq!((known.places("GITHUB_TOKEN").unwrap().len(), own.places("MINE").unwrap().len()), (2, 1));
        for (text, expected) in [
            ("[secrets.MINE]\n", "`MINE` needs `hosts`"),
            ("[secrets.\"a b\"]\nhosts = [\"a.com\"]\n", "`a b` is no name of a variable"),
            ("[secrets.MINE]\nhosts = [\"https://a.com\"]\n", "`https://a.com` is no host"),
            ("[secrets.MINE]\nhosts = [\"ip:10.0.0.1\"]\n", "`ip:10.0.0.1` is no host"),
            ("[secrets.MINE]\nhosts = [\"a.com\"]\nas = \"body\"\n", "`as` is a list of"),
            ("[secrets.MINE]\nhosts = [\"a.com\"]\nkey_env = \"A\"\nkey_file = \"/b\"\n", "`MINE` has one of"),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.contains(expected), "{fault}");
        }
    }
}
