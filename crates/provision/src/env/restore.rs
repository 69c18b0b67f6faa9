//! Stores a session's variables in a record, and restores them after a restart of the container.

use std::collections::{BTreeMap, BTreeSet};

use coracle_types::Secret;
use serde::{Deserialize, Serialize};

use super::session::is_plain;
use super::{EnvRules, SelectedEnv, SessionEnv, Sources, VariableSource, token};

/// The stored form of a session: names, and the values that are not secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionEnvRecord {
    /// Names that came from the host.
    pub passthrough: BTreeSet<String>,
    /// GitHub's token was set.
    pub token: bool,
    /// Values of `env` that are not secret.
    pub plain: BTreeMap<String, String>,
    /// Names of `env` whose values are not stored.
    pub hidden: BTreeSet<String>,
    /// The variables of the certificates and of the proxy.
    pub certificates: BTreeMap<String, String>,
}

/// The result of a restore.
#[derive(Clone, Debug)]
pub struct RestoredEnv {
    /// The restored session.
    pub session: SessionEnv,
    /// Names that had a value and could not be restored.
    pub missing: Vec<String>,
}

impl SessionEnvRecord {
    /// Builds the record of a session from its sources.
    #[must_use]
    pub fn from_session(session: &SessionEnv, sources: &Sources) -> Self {
        let plain = |it: &(&String, &String)| is_plain(it.0, it.1, session.secrets().map(|it| it.1));
        let plain_values: BTreeMap<String, String> =
            sources.call.iter().filter(plain).map(|(name, value)| (name.clone(), value.clone())).collect();
        let of_host = session.names().filter(|it| it.1 == VariableSource::Passthrough);
        Self {
            passthrough: of_host.map(|it| it.0.to_owned()).collect(),
            token: sources.token.is_some(),
            hidden: sources.call.keys().filter(|it| !plain_values.contains_key(*it)).cloned().collect(),
            plain: plain_values,
            certificates: sources.certificates.clone().into_iter().chain(sources.proxy.clone()).collect(),
        }
    }

    /// Names whose values came from the host, or may be secrets of the caller.
    #[must_use]
    pub fn secret_names(&self) -> Vec<String> {
        let tokens = token::NAMES.iter().filter(|_| self.token).map(|it| (*it).to_owned());
        let all: BTreeSet<String> = self.passthrough.iter().chain(&self.hidden).cloned().chain(tokens).collect();
        all.into_iter().collect()
    }

    /// Restores the session: names from the host with their current values, the token from its source, `env` as far
    /// as it is stored.
    ///
    /// `before` and `profile` are those of [`Sources`].
    #[must_use]
    pub fn again(&self, host: &BTreeMap<String, Secret>, rules: &EnvRules, more: Sources) -> RestoredEnv {
        let value = |name: &String| Some((name.clone(), host.get(name)?.clone()));
        let may = |name: &&String| rules.may_leave(name);
        let values: BTreeMap<String, Secret> = self.passthrough.iter().filter(may).filter_map(value).collect();
        let token = more.token.filter(|_| self.token);
        let mut session = SessionEnv::from_sources(Sources {
            certificates: self.certificates.clone(),
            passthrough: SelectedEnv { values, is_requested: !self.passthrough.is_empty(), ..SelectedEnv::default() },
            token,
            call: self.plain.clone(),
            ..more
        });
        // The host's variable of that name is not what the caller had set.
        session.forget(&self.hidden);
        let tokens = token::NAMES.iter().filter(|_| self.token).map(|it| (*it).to_owned());
        let had: BTreeSet<String> = self.passthrough.iter().chain(&self.hidden).cloned().chain(tokens).collect();
        let has: BTreeSet<&str> = session.names().map(|it| it.0).collect();
        let missing = had.into_iter().filter(|it| !has.contains(it.as_str())).collect();
        RestoredEnv { session, missing }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EnvRequest, select};
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }

    fn rules(never: &[&str]) -> EnvRules {
        let never: Vec<String> = never.iter().map(|it| (*it).to_owned()).collect();
        EnvRules::new(&["*_TOKEN".into()], &[], &never, false).unwrap()
    }

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn shown(session: &SessionEnv) -> String {
        let one = |(name, value): (String, Secret)| format!("{name}={}", String::from_utf8_lossy(value.reveal()));
        session.variables().into_iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn values_come_from_the_current_host_and_from_the_record() {
        let mut host: BTreeMap<String, Secret> =
            ["A_TOKEN", "B_TOKEN", "C_TOKEN", "D_TOKEN"].map(|it| (it.to_owned(), secret("first-value"))).into();
        let sources = Sources {
            passthrough: select(&host, &EnvRequest::Auto, &rules(&[])).unwrap(),
            token: Some(secret("gho_12345")),
            call: variables(&[
                ("DB_PASSWORD", "x"),
                ("D_TOKEN", "mine"),
                ("EDITOR", "vi"),
                ("SAME", "first-value"),
                ("GH_TOKEN", "mine"),
            ]),
            ..Sources::default()
        };
        let stored = SessionEnvRecord::from_session(&SessionEnv::from_sources(sources.clone()), &sources);
        let record = serde_json::to_string(&stored).unwrap();
        assert!(!record.contains("first-value") && !record.contains("gho_") && !record.contains("mine"), "{record}");

        host.insert("A_TOKEN".into(), secret("second"));
        host.insert("E_TOKEN".into(), secret("new"));
        host.remove("B_TOKEN");
        let stored: SessionEnvRecord = serde_json::from_str(&record).unwrap();
        let again = stored.again(&host, &rules(&["C_*"]), Sources::default());
        assert_eq!(shown(&again.session), "A_TOKEN=second EDITOR=vi");
        let missing = ["B_TOKEN", "C_TOKEN", "DB_PASSWORD", "D_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "SAME"];
        assert_eq!(again.missing, missing);

        let token = Sources { token: Some(secret("gho_67890")), ..Sources::default() };
        let again = stored.again(&host, &rules(&[]), token);
        assert_eq!(shown(&again.session), "A_TOKEN=second C_TOKEN=first-value EDITOR=vi GITHUB_TOKEN=gho_67890");
        assert_eq!(again.missing, ["B_TOKEN", "DB_PASSWORD", "D_TOKEN", "GH_TOKEN", "SAME"]);
    }

    #[test]
    fn a_token_that_was_not_set_is_not_restored() {
        let again = SessionEnvRecord::default().again(
            &BTreeMap::from([("A_TOKEN".to_owned(), secret("x"))]),
            &rules(&[]),
            Sources { token: Some(secret("gho_1")), ..Sources::default() },
        );
        assert_eq!((shown(&again.session).as_str(), again.missing.len()), ("", 0));
    }
}
