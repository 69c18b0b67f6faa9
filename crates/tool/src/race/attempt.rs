//! An attempt: a copy of the container, the command in it, and the test.

use std::time::{Duration, Instant};

use coracle_context::arg_types::{Script, Seconds};
use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_lifecycle::{Error, ManagedContainer, find_network};
use coracle_prepare::requests::Create;
use coracle_provision::UserRequest;
use coracle_provision::env::SessionEnvRecord;
use coracle_types::{ContainerName, Handle, NetworkName};
use serde_json::{Value, json};

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
    pub(super) timeout: Option<Seconds>,
    pub(super) attempts: u32,
    /// The checkpoint with the files that each copy has.
    pub(super) checkpoint: Option<u64>,
    /// The beginning of the copies' names.
    pub(super) name: String,
    /// The request for each copy, as JSON.
    pub(super) create: Value,
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
    /// Makes a copy and runs the commands in it.
    pub(super) async fn attempt(&self, cx: &Context, number: u32) -> Attempt {
        let begun = Instant::now();
        let (has_won, has_passed) = (false, false);
        let mut attempt = Attempt {
            number,
            container: None,
            exit_code: None,
            test_exit_code: None,
            output: String::new(),
            duration: Duration::ZERO,
            has_won,
            has_passed,
            failure: None,
        };
        if let Err(failure) = self.run(cx, &mut attempt).await {
            if failure.code != Code::Cancelled {
                attempt.output.clone_from(&failure.message);
            }
            attempt.failure = Some(failure);
        }
        attempt.duration = begun.elapsed();
        attempt
    }

    async fn run(&self, cx: &Context, attempt: &mut Attempt) -> Result<(), Failure> {
        let name = Box::pin(self.copy(cx, attempt.number)).await?;
        attempt.container = Some(name.clone());
        let ran = self.command(cx, &name, &self.command, attempt).await?;
        attempt.exit_code = ran.exit_code;
        attempt.has_passed = ran.exit_code == Some(0);
        if let Some(test) = &self.test {
            let tested = self.command(cx, &name, test, attempt).await?;
            attempt.test_exit_code = tested.exit_code;
            attempt.has_passed = tested.exit_code == Some(0);
        }
        Ok(())
    }

    async fn copy(&self, cx: &Context, number: u32) -> Result<ContainerName, Failure> {
        let mut create: Create = serde_json::from_value(self.create.clone()).map_err(Failure::internal)?;
        create.name = Some(ContainerName::parse(format!("{}-{number}", self.name)).map_err(Failure::internal)?);
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
        let exec = Exec { request, timeout: self.timeout, on_timeout, max_output, encoding, rest };
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

/// The request for a copy: the limits, the network and the variables of the container, and nothing of the user that it does not
/// have.
pub(super) async fn create(cx: &Context, parent: &ManagedContainer) -> Result<Value, Failure> {
    let record = &parent.record;
    let container = parent.present()?;
    let session: SessionEnvRecord = serde_json::from_value(record.held.session.clone()).unwrap_or_default();
    let network = network(cx, parent).await?;
    let create = Create {
        mount_cwd: Some(false),
        env: Some(record.env_plain.iter().map(|(name, value)| (name.clone(), json!(value))).collect()),
        forward_git: Some(false),
        forward_gh: Some(session.token),
        forward_ssh: Some(record.held.ssh),
        dotfiles_skip: Some(true),
        user: record.exec_user.map(UserRequest::Ids),
        memory_limit: container.limits.memory,
        cpu_limit: container.limits.cpus,
        pids_limit: container.limits.pids,
        network: Some(network),
        ..Create::default()
    };
    let mut create = serde_json::to_value(create).map_err(Failure::internal)?;
    create["env_passthrough"] = json!(session.passthrough);
    Ok(create)
}

/// The container's network, as `create` names it.
async fn network(cx: &Context, parent: &ManagedContainer) -> Result<String, Failure> {
    let networks = &parent.present()?.networks;
    if parent.record.proxied || networks.is_empty() {
        return Ok(network_name(parent.record.proxied, networks));
    }
    let store = cx.store()?;
    for name in networks {
        let Ok(parsed) = NetworkName::parse(name) else { continue };
        match find_network(&*parent.runtime, &store, &parsed).await {
            Ok(Some(_)) => return Ok(name.clone()),
            // Of the engine, or one that Coracle creates for a single container or a stack.
            Ok(None) | Err(Error::Belongs { .. } | Error::NotManaged { .. }) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok("bridge".to_owned())
}
