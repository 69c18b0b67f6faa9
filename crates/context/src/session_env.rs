//! The variables in a guest: what is recorded of them, and how a restarted guest gets them again.

use std::collections::BTreeMap;
use std::time::Instant;

use coracle_client::Link;
use coracle_lifecycle::{MainProgram, Record, SecretState, Store, guided_session};
use coracle_protocol::{EnsureUser, ErrorCode};
use coracle_provision::env::{EnvRules, SessionEnv, SessionEnvRecord, Sources, VariableSource};
use coracle_provision::git::{self, GitConfig, Settings};
use coracle_provision::{StepContext, amplifier, env, ssh};
use coracle_types::{Command, ContainerPath, Error, Exec, JobId, Redactor, Secret};

use crate::context::Context;
use crate::failure::Failure;
use crate::host_identity::{HostIdentity, IdentityRequest};
use crate::requested::Requested;
use crate::warning::Warning;

/// The recorded part: all names, the values that are not secret, and what only the guest has.
pub(crate) type RecordedEnv = (Vec<String>, BTreeMap<String, String>, SecretState);

/// Returns what to record of a session that was sent to a guest.
pub fn to_record(
    session: &SessionEnv,
    sources: &Sources,
    run: String,
    person: &HostIdentity,
) -> Result<RecordedEnv, Failure> {
    let mut remembered = SessionEnvRecord::from_session(session, sources);
    let keys = session.names().map(|it| it.0.to_owned()).collect();
    let mut plain = std::mem::take(&mut remembered.plain);
    // The profile may have changed by the time of a restart; its values are not secret.
    let of_profile = session.plain(VariableSource::Profile).into_iter();
    plain.extend(of_profile.filter(|(name, value)| env::is_plain(name, value, session.secrets().map(|it| it.1))));
    let held = SecretState {
        run: Some(run),
        session: serde_json::to_value(&remembered).map_err(Failure::internal)?,
        ssh: matches!(&person.keys, Requested::Yes(keys) if !keys.is_empty()),
        settings: !person.settings.is_empty(),
        missing: Vec::new(),
    };
    Ok((keys, plain, held))
}

/// Returns the rules for variables of the host.
pub fn rules(cx: &Context) -> Result<EnvRules, Failure> {
    let auto = &cx.config.auto_passthrough;
    EnvRules::new(&auto.env_patterns, &auto.env_allow, &auto.never, cx.config.security.allow_env_all)
        .map_err(|err| Failure::config(err.key, None, err.to_string()))
}

/// Ensures that the guest has the session: a restarted guest has none. Warns of lost values.
pub async fn ensure(cx: &Context, store: &Store, record: &mut Record, link: &Link) -> Result<(), Failure> {
    let run = link.run_id().await?;
    if record.held.run.as_ref() == Some(&run) || record.held.run.is_none() {
        return Ok(());
    }
    let missing = give_again(cx, record, link).await?;
    if let Some(main) = &record.main {
        match start_main(link, main).await {
            Ok(()) => record.main_began(run.clone()),
            Err(failure) => {
                tracing::warn!(container = %record.name, "its main program did not start again: {}", failure.message);
            }
        }
    }
    record.held.run = Some(run);
    record.held.missing = missing;
    store.update(record)?;
    cx.warn(warnings(record));
    Ok(())
}

fn warnings(record: &Record) -> Vec<Warning> {
    let missing = &record.held.missing;
    let variables = (!missing.is_empty()).then(|| {
        let message = format!("the container was restarted, and these variables are lost: {}", missing.join(", "));
        Warning::new("env_missing", message)
    });
    let files = in_memory(record).then(|| {
        let message = "the container was restarted, and its home and /tmp, which are in memory, are empty except for \
        the identity for git";
        Warning::new("home_emptied", message)
    });
    variables.into_iter().chain(files).collect()
}

/// Whether home and `/tmp` are in memory: of a container of `strict`, only the volume outlives a stop.
fn in_memory(record: &Record) -> bool {
    record.volume.is_some()
}

/// Whether it was created with the user's identity for git.
fn had_identity(record: &Record) -> bool {
    let steps = record.provisioning_report.as_array().map(Vec::as_slice).unwrap_or_default();
    steps.iter().any(|it| it["name"] == "forward_git" && it["status"] == "success")
}

async fn give_again(cx: &Context, record: &Record, link: &Link) -> Result<Vec<String>, Failure> {
    let mut remembered: SessionEnvRecord = serde_json::from_value(record.held.session.clone()).unwrap_or_default();
    remembered.plain = record.env_plain.clone();
    let wanted = |is: bool| if is { Requested::Yes(()) } else { Requested::No(String::new()) };
    let (git, gh, ssh) =
        (wanted(in_memory(record) && had_identity(record)), wanted(remembered.token), wanted(record.held.ssh));
    let request = IdentityRequest { git: &git, gh: &gh, ssh: &ssh, settings: record.held.settings };
    let person = HostIdentity::read(cx, request).await;
    let token = match &person.token {
        Requested::Yes(token) => Some(token.clone()),
        Requested::No(_) => None,
    };
    let again = remembered.again(&cx.host.env, &rules(cx)?, Sources { token, ..Sources::default() });
    let place = place(cx, record, link)?;
    // A new guest knows no user yet, and its shells need one.
    let (uid, gid) = (place.user.uid, place.user.gid);
    let bound = record.mounts.iter().map(|it| it.container.to_string()).collect();
    link.ensure_user(EnsureUser { uid, gid, workdir: place.workdir.to_string(), bound }).await?;
    link.set_session(&again.session.variables()).await?;
    if let Requested::Yes(printed) = &person.git {
        let settings = Some(Settings::read(printed, &cx.config.auto_passthrough.git_keys));
        let config = GitConfig { settings, safe: vec![place.workdir.clone()], ..GitConfig::default() };
        git::forward(&place, &config, git::GitSkipReason::NoConfig).await;
    }
    if let Requested::Yes(keys) = &person.keys {
        ssh::forward(&place, keys, &person.known_hosts).await;
    }
    if record.held.settings {
        amplifier::forward(&place, &person.settings).await;
    }
    Ok(again.missing)
}

/// Starts the main program in a guest without such a job.
pub async fn start_main(link: &Link, program: &MainProgram) -> Result<(), Failure> {
    let MainProgram { words, user, workdir, env } = program.clone();
    let mut exec = Exec::new(Command::Argv(words), user, workdir);
    (exec.job, exec.bare, exec.env) = (Some(JobId::main()), true, env);
    match link.start(exec, None).await {
        // Another process has started it.
        Err(Error::Refused(fault)) if fault.code == ErrorCode::JobTaken => Ok(()),
        started => Ok(started.map(drop)?),
    }
}

/// Returns the context of steps in the container of a record.
pub fn place(cx: &Context, record: &Record, link: &Link) -> Result<StepContext, Failure> {
    let (user, root) = (guided_session(record, false)?, guided_session(record, true)?);
    Ok(StepContext {
        link: link.clone(),
        user: user.user,
        home: record.home.clone().unwrap_or_else(ContainerPath::root),
        bound: record.mounts.iter().any(|it| it.container == user.workdir),
        rootless: record.guest.as_ref().is_some_and(|it| it.own.is_some()),
        workdir: user.workdir,
        user_env: user.env,
        root_env: root.env,
        clone_timeout: cx.config.setup.clone_timeout.0,
        timeout: cx.config.setup.timeout.0,
        deadline: Instant::now() + cx.config.setup.total.0,
        grace: cx.config.exec.grace.0,
        cancel: cx.call.cancel.clone(),
    })
}

/// Live secrets of a container, which must not be stored.
#[derive(Debug)]
pub struct LiveSecrets {
    /// Names of the session's variables whose values only the guest has.
    pub variables: Vec<String>,
    /// Secrets in files on the tmpfs.
    pub values: Vec<Secret>,
}

/// Returns the live secrets of the container of a record.
pub async fn live(cx: &Context, record: &Record) -> LiveSecrets {
    let remembered: SessionEnvRecord = serde_json::from_value(record.held.session.clone()).unwrap_or_default();
    let no = Requested::No(String::new());
    let ssh = if record.held.ssh { Requested::Yes(()) } else { no.clone() };
    let person =
        HostIdentity::read(cx, IdentityRequest { git: &no, gh: &no, ssh: &ssh, settings: record.held.settings }).await;
    // Public keys and the configuration may be stored anywhere.
    let is_key = |name: &str| name != "config" && !name.ends_with(".pub");
    let keys = match &person.keys {
        Requested::Yes(keys) => {
            keys.files.iter().filter(|it| is_key(&it.0)).flat_map(|it| ssh::key_lines(&it.1)).collect()
        }
        Requested::No(_) => Vec::new(),
    };
    let settings = person.settings.files.iter().flat_map(|it| env::secrets_in(&it.1));
    LiveSecrets { variables: remembered.secret_names(), values: keys.into_iter().chain(settings).collect() }
}

/// Returns a redactor for texts that commands of a container may print and other readers may not see.
pub fn redactor(session: &SessionEnv, env: &BTreeMap<String, String>, person: &HostIdentity) -> Redactor {
    let live = session.secrets().map(|(name, value)| (name.to_owned(), value.clone()));
    let secret = |name: &&String| !env::is_plain(name, "", std::iter::empty());
    let given = env.keys().filter(secret).map(|name| (name.clone(), Secret::from(env[name].clone())));
    let files = match &person.keys {
        Requested::Yes(keys) => keys.files.clone(),
        Requested::No(_) => Vec::new(),
    };
    Redactor::new(live.chain(given).chain(files).chain(person.settings.files.clone()).collect())
}
