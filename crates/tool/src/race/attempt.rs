//! An attempt: a copy of the container, the command in it, and the test.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use coracle_context::arg_types::{Passthrough, Script, Seconds};
use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_context::session_env::rules;
use coracle_lifecycle::{Error, ManagedContainer, Record, find_network};
use coracle_prepare::requests::Create;
use coracle_provision::UserRequest;
use coracle_provision::env::{EnvRequest, SessionEnvRecord, select};
use coracle_runtime::Limits;
use coracle_types::{ContainerName, Handle, Ids, NetworkName};
use serde_json::json;

use crate::commands::{CommandRequest, Exec, ExecResponse, RestCall};
use crate::dispatch::Operation as _;
use crate::fork::Fork;
use crate::target::network_name;

/// Maximum number of characters of an attempt's output in the answer.
const MAX_OUTPUT: usize = 2000;

/// What all attempts of a race have in common.
pub(super) struct Course {
    /// The container that is copied.
    pub(super) container: Handle,
    pub(super) command: Script,
    pub(super) test: Option<Script>,
    pub(super) timeout: Seconds,
    pub(super) attempts: u32,
    /// The checkpoint with the files that each copy has.
    pub(super) checkpoint: Option<u64>,
    /// The beginning of the copies' names.
    pub(super) name: String,
    /// Names of variables of the host that the container has.
    pub(super) passthrough: Vec<String>,
    pub(super) network: String,
    pub(super) limits: Limits,
    /// Variables of the container that are not secret.
    pub(super) variables: BTreeMap<String, String>,
    pub(super) user: Option<Ids>,
}

/// An attempt that has ended.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) number: u32,
    /// Its copy, if there was one. It may have been removed since.
    pub(super) container: Option<ContainerName>,
    pub(super) exit_code: Option<u8>,
    pub(super) test_exit_code: Option<u8>,
    /// The end of the output of its last command.
    pub(super) output: String,
    pub(super) duration: Duration,
    pub(super) has_won: bool,
    has_passed: bool,
    failure: Option<Failure>,
}

/// What has become of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was the first one that passed.
    Won,
    /// It passed after another one.
    Passed,
    Failed,
    /// It was ended because another one had won.
    Ended,
    /// Its commands could not be run.
    Error,
}

impl Outcome {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Won => "won",
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Ended => "ended",
            Self::Error => "error",
        }
    }
}

impl Attempt {
    pub(super) fn outcome(&self) -> Outcome {
        match &self.failure {
            Some(failure) if failure.code == Code::Cancelled => Outcome::Ended,
            Some(_) => Outcome::Error,
            None if self.has_won => Outcome::Won,
            None if self.has_passed => Outcome::Passed,
            None => Outcome::Failed,
        }
    }

    /// Why it has no copy. A race without all of its attempts is none.
    pub(super) fn not_begun(&self) -> Option<&Failure> {
        self.failure.as_ref().filter(|it| self.container.is_none() && it.code != Code::Cancelled)
    }
}

impl Course {
    /// Makes the copy of an attempt.
    pub(super) async fn begin(&self, cx: &Context, number: u32) -> Attempt {
        let begun = Instant::now();
        let (container, failure) = match Box::pin(self.copy(cx, number)).await {
            Ok(container) => (Some(container), None),
            Err(failure) => (None, Some(failure)),
        };
        Attempt {
            number,
            container,
            exit_code: None,
            test_exit_code: None,
            output: String::new(),
            duration: begun.elapsed(),
            has_won: false,
            has_passed: false,
            failure,
        }
    }

    /// Runs the commands of an attempt.
    pub(super) async fn run(&self, cx: &Context, mut attempt: Attempt) -> Attempt {
        let begun = Instant::now();
        if let Some(container) = attempt.container.clone()
            && let Err(failure) = self.commands(cx, &container, &mut attempt).await
        {
            if failure.code != Code::Cancelled {
                attempt.output.clone_from(&failure.message);
            }
            attempt.failure = Some(failure);
        }
        attempt.duration = begun.elapsed();
        attempt
    }

    async fn commands(&self, cx: &Context, name: &ContainerName, attempt: &mut Attempt) -> Result<(), Failure> {
        let ran = self.command(cx, name, &self.command, attempt).await?;
        attempt.exit_code = ran.exit_code;
        attempt.has_passed = ran.exit_code == Some(0);
        if let Some(test) = &self.test {
            let tested = self.command(cx, name, test, attempt).await?;
            attempt.test_exit_code = tested.exit_code;
            attempt.has_passed = tested.exit_code == Some(0);
        }
        Ok(())
    }

    /// Makes a copy with the limits, the network and the variables of the container. Of the user it gets nothing that the
    /// container does not have, and no keys: the files of git are in the copy already.
    async fn copy(&self, cx: &Context, number: u32) -> Result<ContainerName, Failure> {
        let name = ContainerName::parse(format!("{}-{number}", self.name)).map_err(Failure::internal)?;
        let create = Create {
            name: Some(name),
            mount_cwd: Some(false),
            env: Some(self.variables.iter().map(|(name, value)| (name.clone(), json!(value))).collect()),
            env_passthrough: Some(Passthrough::Names(self.passthrough.clone())),
            forward_git: Some(false),
            forward_gh: Some(false),
            forward_ssh: Some(false),
            dotfiles_skip: Some(true),
            user: self.user.map(UserRequest::Ids),
            memory_limit: self.limits.memory,
            cpu_limit: self.limits.cpus,
            pids_limit: self.limits.pids,
            network: Some(self.network.clone()),
            ..Create::default()
        };
        let fork = Fork { container: self.container.clone(), checkpoint: self.checkpoint, create };
        Ok(fork.run(cx).await?.container)
    }

    async fn command(
        &self,
        cx: &Context,
        container: &ContainerName,
        command: &Script,
        attempt: &mut Attempt,
    ) -> Result<ExecResponse, Failure> {
        let env = [("ATTEMPT", attempt.number), ("ATTEMPTS", self.attempts)];
        let request = CommandRequest {
            container: Handle::Name(container.clone()),
            command: command.clone(),
            silence_timeout: None,
            workdir: None,
            env: Some(env.map(|(name, value)| (name.to_owned(), json!(value.to_string()))).into()),
            stdin: None,
            stdin_base64: None,
            as_root: None,
        };
        let (max_output, encoding, on_timeout) = Default::default();
        let rest = RestCall::default();
        let exec = Exec { request, timeout: Some(self.timeout), on_timeout, max_output, encoding, rest };
        let ran = Box::pin(exec.run(cx)).await?;
        attempt.output = last(&[ran.stdout.as_str(), ran.stderr.as_str()].concat());
        Ok(ran)
    }
}

fn last(text: &str) -> String {
    let text = text.trim_end();
    let skipped = text.chars().count().saturating_sub(MAX_OUTPUT);
    text.chars().skip(skipped).collect()
}

/// The names of variables of the host that the container has, and that may still go in.
pub(super) fn passthrough(cx: &Context, record: &Record) -> Result<Vec<String>, Failure> {
    let session: SessionEnvRecord = serde_json::from_value(record.held.session.clone()).unwrap_or_default();
    let rules = rules(cx)?;
    let may_go_in = |name: &String| select(&cx.host.env, &EnvRequest::Names(vec![name.clone()]), &rules).is_ok();
    Ok(session.passthrough.into_iter().filter(may_go_in).collect())
}

/// Names by which engines list a network of their own with a way out.
const OPEN: [&str; 6] = ["bridge", "default", "outgoing", "pasta", "podman", "slirp4netns"];

/// The container's network, as `create` names it.
pub(super) async fn network(cx: &Context, parent: &ManagedContainer) -> Result<String, Failure> {
    let networks = &parent.present()?.networks;
    if parent.record.proxied || networks.is_empty() {
        return Ok(network_name(parent.record.proxied, networks));
    }
    let (store, mut is_open) = (cx.store()?, false);
    for name in networks {
        let found = match NetworkName::parse(name) {
            Ok(parsed) => find_network(&*parent.runtime, &store, &parsed).await,
            Err(_) => Ok(None),
        };
        match found {
            Ok(Some(_)) => return Ok(name.clone()),
            // Coracle has created it for this container, or for all that are on no other.
            Err(Error::Belongs { .. }) => is_open = true,
            Ok(None) | Err(Error::NotManaged { .. }) if name == "none" || name == "host" => return Ok(name.clone()),
            Ok(None) | Err(Error::NotManaged { .. }) if OPEN.contains(&name.as_str()) => is_open = true,
            Ok(None) | Err(Error::NotManaged { .. }) => {}
            Err(err) => return Err(err.into()),
        }
    }
    let unknown = || {
        let message = format!("copies of `{}` cannot be on its network `{}`", parent.record.name, networks.join(", "));
        let hint = "race in a container on `bridge`, `proxy`, `none` or a network made with `create_network`";
        Failure::new(Code::Unsupported, message).detail("capability", "race").hint(hint)
    };
    is_open.then(|| "bridge".to_owned()).ok_or_else(unknown)
}
