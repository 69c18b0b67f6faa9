//! The variables that all commands of a container share, with their sources.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use coracle_client::Link;
use coracle_types::Secret;
use serde::Serialize;

use super::{Excess, SelectedEnv, token};
use crate::{ReportItem, Status, StepReport};

/// Maximum size of all variables together.
const MAX_ALL: usize = 1 << 20;

/// Parts of a name that mark the value as secret.
const SECRET_WORDS: &[&str] = &["KEY", "TOKEN", "SECRET", "PASS", "CRED", "AUTH"];

/// Shorter values occur in others by chance.
const MIN_SECRET: usize = 8;

/// The source of a variable; a later one overrides an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VariableSource {
    /// The path of the certificate bundle.
    CaCertificates,
    /// The proxy, and placeholders of secrets.
    Proxy,
    /// The profile.
    Profile,
    /// The host.
    Passthrough,
    /// GitHub's token.
    Gh,
    /// `env` of the call that created the container.
    Env,
}

impl VariableSource {
    /// The name of the source in the report.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::CaCertificates => "ca_certificates",
            Self::Proxy => "proxy",
            Self::Profile => "profile",
            Self::Passthrough => "passthrough",
            Self::Gh => "gh",
            Self::Env => "env",
        }
    }
}

/// The sources of a session; later ones override earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The variables of commands without a session, which `${NAME}` refers to: the image's variables and `HOME`. `PATH`
    /// is the image's, since the guest prepends `~/.local/bin` to the final value.
    pub before: BTreeMap<String, String>,
    /// The variables of the certificates.
    pub certificates: BTreeMap<String, String>,
    /// Those of the container's proxy. Variables of the host do not replace them.
    pub proxy: BTreeMap<String, String>,
    /// Those of the profile, before expansion.
    pub profile: BTreeMap<String, String>,
    /// Those of the host.
    pub passthrough: SelectedEnv,
    /// GitHub's token.
    pub token: Option<Secret>,
    /// `env` of the call.
    pub call: BTreeMap<String, String>,
}

/// The variables that all commands share.
#[derive(Clone, Debug, Default)]
pub struct SessionEnv {
    variables: BTreeMap<String, (VariableSource, Secret)>,
    missing: Vec<String>,
    left_out: Vec<(String, Excess)>,
    is_requested: bool,
}

impl SessionEnv {
    /// Combines the sources. Host variables that would exceed the total limit are left out.
    #[must_use]
    pub fn from_sources(sources: Sources) -> Self {
        let Sources { before, certificates, proxy, profile, mut passthrough, token, call } = sources;
        passthrough.values.retain(|name, _| !proxy.contains_key(name));
        let mut session = Self {
            is_requested: passthrough.is_requested || token.is_some() || !call.is_empty(),
            missing: passthrough.missing,
            left_out: passthrough.too_long.into_iter().map(|it| (it, Excess::Own)).collect(),
            ..Self::default()
        };
        let before: BTreeMap<String, String> = before.into_iter().chain(certificates.clone()).collect();
        let profile = profile.into_iter().map(|(name, value)| (name, expanded(&value, &before)));
        session.set(VariableSource::CaCertificates, plain(certificates));
        session.set(VariableSource::Proxy, plain(proxy));
        session.set(VariableSource::Profile, plain(profile));
        session.set(VariableSource::Gh, token.iter().flat_map(token::variables));
        session.set(VariableSource::Env, plain(call));
        session.add(passthrough.values);
        session
    }

    fn set(&mut self, source: VariableSource, variables: impl Iterator<Item = (String, Secret)>) {
        self.variables.extend(variables.map(|(name, value)| (name, (source, value))));
    }

    /// Adds variables as far as the total limit allows, below the others.
    fn add(&mut self, values: BTreeMap<String, Secret>) {
        let bytes = |name: &String, value: &Secret| name.len() + value.len() + 2;
        let mut all: usize = self.variables.iter().map(|(name, it)| bytes(name, &it.1)).sum();
        for (name, value) in values {
            let there = self.variables.get(&name);
            if there.is_some_and(|it| it.0 > VariableSource::Passthrough) {
                continue;
            }
            let after = all + bytes(&name, &value) - there.map_or(0, |it| bytes(&name, &it.1));
            if after > MAX_ALL {
                self.left_out.push((name, Excess::All));
            } else {
                all = after;
                self.variables.insert(name, (VariableSource::Passthrough, value));
            }
        }
    }

    /// Removes the values of these names, whatever their source.
    pub(super) fn forget(&mut self, names: &BTreeSet<String>) {
        self.variables.retain(|name, _| !names.contains(name));
    }

    /// Names and values, for [`Link::set_session`].
    #[must_use]
    pub fn variables(&self) -> Vec<(String, Secret)> {
        self.variables.iter().map(|(name, (_, value))| (name.clone(), value.clone())).collect()
    }

    /// Names, with the source of each value.
    pub fn names(&self) -> impl Iterator<Item = (&str, VariableSource)> {
        self.variables.iter().map(|(name, it)| (name.as_str(), it.0))
    }

    /// Values that are not secret, since they come from the certificates or the profile.
    #[must_use]
    pub fn plain(&self, source: VariableSource) -> BTreeMap<String, String> {
        let is_plain = matches!(source, VariableSource::CaCertificates | VariableSource::Profile);
        let of = self.variables.iter().filter(|(_, it)| is_plain && it.0 == source);
        of.map(|(name, it)| (name.clone(), String::from_utf8_lossy(it.1.reveal()).into_owned())).collect()
    }

    /// Values that came from the host and must not be visible.
    pub fn secrets(&self) -> impl Iterator<Item = (&str, &Secret)> {
        let secret = |it: &(&String, &(VariableSource, Secret))| {
            matches!(it.1.0, VariableSource::Passthrough | VariableSource::Gh)
        };
        self.variables.iter().filter(secret).map(|(name, it)| (name.as_str(), &it.1))
    }

    /// Sends them to the guest, and reports the result.
    pub async fn send(&self, link: &Link) -> StepReport {
        let begun = Instant::now();
        let variables = self.variables();
        if variables.is_empty() && !self.is_requested {
            return StepReport::skipped(STEP, "none were requested");
        }
        let given = link.set_session(&variables).await;
        self.step(given.err().map(|it| it.to_string())).with_duration(begun.elapsed())
    }

    fn step(&self, error: Option<String>) -> StepReport {
        if let Some(error) = error {
            return StepReport::flawed(STEP, Status::Failed, "commands have no variables beside the image's", error);
        }
        if !self.is_requested {
            return StepReport::skipped(STEP, format!("none were requested; set anyway: {}", self.counts()));
        }
        let given = self.names().map(|(name, source)| ReportItem::success(name).with("source", source.word()));
        let of_host = |item: ReportItem| item.with("source", VariableSource::Passthrough.word());
        let missing =
            self.missing.iter().map(|it| of_host(ReportItem::skipped(it)).with("why", "the host does not have it"));
        let left_out = self.left_out.iter().map(|(name, excess)| of_host(ReportItem::failed(name, excess.why())));
        let items = given.chain(missing).chain(left_out).collect();
        StepReport::of_items(STEP, self.counts(), "PID 1 took all of them, for every command from now on", items)
    }

    /// `5 variables: 4 passthrough, 1 env`
    fn counts(&self) -> String {
        let mut by_source = BTreeMap::<VariableSource, usize>::new();
        for (_, source) in self.names() {
            *by_source.entry(source).or_default() += 1;
        }
        let parts: Vec<_> = by_source.iter().map(|(source, n)| format!("{n} {}", source.word())).collect();
        match self.variables.len() {
            0 => "no variable of the host matches".to_owned(),
            1 => format!("1 variable: {}", parts.join(", ")),
            n => format!("{n} variables: {}", parts.join(", ")),
        }
    }
}

const STEP: &str = "env_passthrough";

fn plain(variables: impl IntoIterator<Item = (String, String)>) -> impl Iterator<Item = (String, Secret)> {
    variables.into_iter().map(|(name, value)| (name, Secret::new(value.into_bytes())))
}

/// Expands `${NAME}` once; an unset name expands to nothing. Any other `$` stays.
fn expanded(value: &str, before: &BTreeMap<String, String>) -> String {
    let mut parts = value.split("${");
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}').filter(|it| super::is_name(it.0)) {
            Some((name, rest)) => {
                all.push_str(before.get(name).map_or("", String::as_str));
                all.push_str(rest);
            }
            None => all.extend(["${", part]),
        }
    }
    all
}

/// Whether a value may be stored in a record: its name is not that of a secret, and it contains no secret of the
/// session.
#[must_use]
pub fn is_plain<'a>(name: &str, value: &str, mut secrets: impl Iterator<Item = &'a Secret>) -> bool {
    let upper = name.to_ascii_uppercase();
    let holds = |secret: &Secret| {
        let secret = secret.reveal();
        secret.len() >= MIN_SECRET && value.as_bytes().windows(secret.len()).any(|it| it == secret)
    };
    !SECRET_WORDS.iter().any(|it| upper.contains(it)) && !secrets.any(holds)
}

/// Finds values in a settings file whose names are those of secrets, line by line: `api_key: "…"`, `TOKEN=…`.
#[must_use]
pub fn secrets_in(settings: &Secret) -> Vec<Secret> {
    let text = String::from_utf8_lossy(settings.reveal());
    let lines = text.lines().filter_map(|it| it.split_once([':', '=']));
    let secret = lines.filter(|(name, _)| !is_plain(name, "", std::iter::empty()));
    let values = secret.map(|(_, value)| value.trim().trim_matches(['"', '\'', ',']));
    values.filter(|it| it.len() >= MIN_SECRET).map(Secret::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }

    fn selected(pairs: &[(&str, &str)]) -> SelectedEnv {
        let values = pairs.iter().map(|(name, value)| ((*name).to_owned(), secret(value))).collect();
        SelectedEnv { values, is_requested: true, ..SelectedEnv::default() }
    }

    fn shown(session: &SessionEnv) -> String {
        let line = |(name, (source, value)): (&String, &(VariableSource, Secret))| {
            format!("{name}={} ({})\n", String::from_utf8_lossy(value.reveal()), source.word())
        };
        session.variables.iter().map(line).collect()
    }

    #[test]
    fn later_sources_override_earlier_ones() {
        let session = SessionEnv::from_sources(Sources {
            before: map(&[("A", "image"), ("B", "image")]),
            proxy: map(&[("X_TOKEN", "placeholder")]),
            certificates: map(&[("PIP_CERT", "/bundle"), ("SSL_CERT_FILE", "/bundle")]),
            profile: map(&[("PIP_CERT", "profile"), ("P_TOKEN", "profile"), ("E_TOKEN", "profile")]),
            passthrough: selected(&[
                ("P_TOKEN", "host"),
                ("E_TOKEN", "host"),
                ("GH_TOKEN", "host"),
                ("X_TOKEN", "host"),
            ]),
            token: Some(secret("gho_1")),
            call: map(&[("E_TOKEN", "env"), ("GITHUB_TOKEN", "env")]),
        });
        insta::assert_snapshot!(shown(&session), @r"
        E_TOKEN=env (env)
        GH_TOKEN=gho_1 (gh)
        GITHUB_TOKEN=env (env)
        PIP_CERT=profile (profile)
        P_TOKEN=host (passthrough)
        SSL_CERT_FILE=/bundle (ca_certificates)
        X_TOKEN=placeholder (proxy)
        ");
        let counts = "7 variables: 1 ca_certificates, 1 proxy, 1 profile, 1 passthrough, 1 gh, 2 env";
        assert_eq!(session.step(None).detail, counts);
        assert_eq!(session.secrets().map(|it| it.0).collect::<Vec<_>>(), ["GH_TOKEN", "P_TOKEN"]);
    }

    #[test]
    fn a_profile_is_expanded_once_and_only_from_earlier_sources() {
        let before = map(&[("PATH", "/bin"), ("TWICE", "${PATH}"), ("EMPTY", "")]);
        for (value, result) in [
            ("/opt/bin:${PATH}", "/opt/bin:/bin"),
            ("${TWICE}", "${PATH}"),
            ("${PATH}${PATH}$", "/bin/bin$"),
            ("$PATH $${PATH}", "$PATH $/bin"),
            ("<${EMPTY}${NOT_SET}>", "<>"),
            ("${PATH", "${PATH"),
            ("${a b}${}", "${a b}${}"),
            ("${${PATH}}", "${/bin}"),
        ] {
            assert_eq!(expanded(value, &before), result, "{value}");
        }
        let session = SessionEnv::from_sources(Sources {
            before,
            certificates: map(&[("CA", "/ca")]),
            profile: map(&[("A", "${CA} ${B} ${H_TOKEN}"), ("B", "b")]),
            passthrough: selected(&[("H_TOKEN", "host")]),
            ..Sources::default()
        });
        assert!(shown(&session).contains("A=/ca   (profile)"), "{}", shown(&session));
    }

    #[test]
    fn the_report_lists_missing_and_left_out_names_and_no_value() {
        let big = "x".repeat(400 << 10);
        let mut passthrough =
            selected(&[("A_TOKEN", &big), ("B_TOKEN", &big), ("C_TOKEN", &big), ("D_TOKEN", "small")]);
        passthrough.missing = vec!["M_TOKEN".into()];
        passthrough.too_long = vec!["L_TOKEN".into()];
        let session = SessionEnv::from_sources(Sources { passthrough, ..Sources::default() });
        let step = session.step(None);
        let items: Vec<_> = step.items.iter().map(|it| format!("{} {:?}", it.name, it.status)).collect();
        let expected = [
            "A_TOKEN Success",
            "B_TOKEN Success",
            "D_TOKEN Success",
            "M_TOKEN Skipped",
            "L_TOKEN Failed",
            "C_TOKEN Failed",
        ];
        assert_eq!((items, step.status), (expected.map(str::to_owned).to_vec(), Status::Partial));
        let report = serde_json::to_string(&step).unwrap();
        assert!(!report.contains("small") && !report.contains("xxxx"), "{report}");
    }

    #[test]
    fn without_passthrough_and_env_the_step_is_skipped() {
        let certificates = map(&[("PIP_CERT", "/bundle")]);
        let step = SessionEnv::from_sources(Sources { certificates, ..Sources::default() }).step(None);
        assert_eq!((step.status, step.items.len()), (Status::Skipped, 0));
        let none = SessionEnv::from_sources(Sources { passthrough: selected(&[]), ..Sources::default() }).step(None);
        assert_eq!((none.status, none.detail.as_str()), (Status::Success, "no variable of the host matches"));
    }

    #[test]
    fn a_record_contains_no_secret() {
        let live = [secret("hunter2hunter2"), secret("short")];
        for (name, value, keep) in [
            ("EDITOR", "vi", true),
            ("A", "short", true),
            ("URL", "https://x:hunter2hunter2@y", false),
            ("DB_PASSWORD", "x", false),
            ("db_passwd", "x", false),
            ("MONKEY", "x", false),
            ("my_auth", "x", false),
            ("", "", true),
        ] {
            assert_eq!(is_plain(name, value, live.iter()), keep, "{name}={value}");
        }
    }

    #[test]
    fn secrets_in_settings_are_found_by_their_names() {
        let settings =
            "api_key: \"sk-0123456789\"\nmodel: something-plain\n  TOKEN=abcdefgh12\nshort_key: x\nno line\n";
        let found = secrets_in(&secret(settings));
        assert_eq!(found, [secret("sk-0123456789"), secret("abcdefgh12")]);
    }
}
