//! What a container is made to run, as its job `main`.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_context::session_env::start_main;
use coracle_jobs::{JobState, Wait, WaitFor, WaitOutcome, WaitResult};
use coracle_lifecycle::{Creation, MainProgram, ManagedContainer};
use coracle_prepare::resolve::MainRequest;
use coracle_provision::{Accounts, Status, StepReport, UserRequest, accounts};
use coracle_runtime::Image;
use coracle_types::{ContainerPath, Ids, JobId, PortTarget};

use super::provision::{PATH, ProvisionRun};

/// A program that did not end by then has started.
const STARTS_WITHIN: Duration = Duration::from_millis(300);

/// A server that takes no connection by then is reported.
const SERVES_WITHIN: Duration = Duration::from_secs(60);

/// Bytes of a server's password.
const PASSWORD_BYTES: u64 = 64;

/// Lines of one that did end.
const REPORTED_LINES: u32 = 20;

/// What the image itself starts may be root's, and then root has to be granted.
pub(super) fn allowed(cx: &Context, requested: Option<&MainRequest>, image: &Image) -> Result<(), Failure> {
    let root = || matches!(UserRequest::parse(user_of(image).0), Ok(UserRequest::Ids(ids)) if ids.is_root());
    if matches!(requested, Some(MainRequest::Image)) && root() {
        granted(cx)?;
    }
    Ok(())
}

fn granted(cx: &Context) -> Result<(), Failure> {
    let message = "the image starts its program as root, and that is not granted";
    if cx.config.security.allow_root {
        Ok(())
    } else {
        Err(coracle_context::failure::root_refused("root.exec", message))
    }
}

/// The user and the group that an image names.
fn user_of(image: &Image) -> (&str, Option<&str>) {
    match image.config.user.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None if image.config.user.is_empty() => ("root", None),
        None => (&image.config.user, None),
    }
}

impl ProvisionRun<'_> {
    /// Starts it; whether it did. A program that cannot be started is for the report.
    pub(super) async fn main(&mut self, making: &mut Creation<'_>) -> bool {
        let Some(requested) = &self.request.main else { return false };
        self.cx.call.progress.message("starting the main program").await;
        let (started, step) = match self.started(requested, making).await {
            Ok(step) => (true, step),
            Err(failure) => {
                let step = StepReport::flawed("main", Status::Failed, "it did not start", &failure.message);
                (false, if failure.code == Code::PolicyDenied { step.code("policy_denied") } else { step })
            }
        };
        self.reporting.add(step).await;
        started
    }

    /// The password that the server of the profile asks for, which it wrote into a file.
    pub(super) async fn password(&self) -> Result<Option<String>, Failure> {
        let Some(file) = self.request.server.as_ref().and_then(|it| it.password.as_ref()) else { return Ok(None) };
        let at = self.place.at(&self.place.home.join(file)?);
        Ok(match self.place.link.get(at, 0, PASSWORD_BYTES).await {
            Ok((_, bytes)) => String::from_utf8(bytes).ok(),
            Err(err) => {
                tracing::warn!(%err, "the password of the server cannot be read");
                None
            }
        })
    }

    async fn started(&self, requested: &MainRequest, making: &mut Creation<'_>) -> Result<StepReport, Failure> {
        let program = match requested {
            MainRequest::Image => of_image(self.cx, &self.found, &self.imaged.image).await?,
            MainRequest::Words(words) => MainProgram {
                words: words.clone(),
                user: self.place.user,
                workdir: self.place.workdir.clone(),
                env: environment(&self.imaged.image).chain(self.place.user_env.clone()).collect(),
            },
        };
        let given = &self.request.env;
        let env = program.env.into_iter().chain(given.clone()).collect();
        let program = MainProgram { env, ..program };
        start_main(&self.place.link, &program).await?;
        making.set_main_run(self.place.link.run_id().await?);
        let secret = |text: &str| self.reporting.keeps_out(text);
        let again = remembered(&program, given, &making.record().env_plain, secret);
        let runs_again = again.is_some();
        again.into_iter().for_each(|it| making.set_main_program(it));
        let port = self.request.server.as_ref().map(|it| it.port.get());
        let wait = Wait {
            job: JobId::main(),
            events: port
                .map(|it| PortTarget::parse(&it.to_string()).map(WaitFor::Port))
                .transpose()
                .map_err(Failure::internal)?
                .into_iter()
                .collect(),
            limit: if port.is_some() { SERVES_WITHIN } else { STARTS_WITHIN },
            lines: REPORTED_LINES,
        };
        let mut step = outcome_step(&coracle_jobs::wait(&self.place.link, wait).await?, &program, port);
        if !runs_again {
            step.detail.push_str("; a secret is in its words, so it does not run again after a restart");
        }
        Ok(step)
    }
}

/// What may be remembered of it: of what the call gave, values that the record has in any case. Nothing of one with a
/// secret in its words: with other words it would be another program.
fn remembered(
    program: &MainProgram,
    given: &BTreeMap<String, String>,
    plain: &BTreeMap<String, String>,
    secret: impl Fn(&str) -> bool,
) -> Option<MainProgram> {
    if program.words.iter().any(|it| secret(it)) {
        return None;
    }
    let mut remembered_program = program.clone();
    remembered_program
        .env
        .retain(|name, value| !given.contains_key(name) || plain.get(name) == Some(value) && !secret(value));
    Some(remembered_program)
}

fn outcome_step(
    WaitResult { reason, job, tail, .. }: &WaitResult,
    program: &MainProgram,
    port: Option<u16>,
) -> StepReport {
    let what = format!("`{}` as {}", program.words.join(" "), program.user);
    match (job.state, job.exit_code) {
        (JobState::Running, _) if let Some(port) = port => match reason {
            WaitOutcome::Port => StepReport::success(
                "main",
                format!("{what} runs as job `main` and serves port {port}"),
                "the port takes connections",
            ),
            _ => {
                let error = format!("port {port} takes no connections after {} s", SERVES_WITHIN.as_secs());
                StepReport::flawed("main", Status::Failed, format!("{what} runs as job `main`"), error)
            }
        },
        (JobState::Running, _) => {
            StepReport::success("main", format!("{what} runs as job `main`"), "the job has not ended")
        }
        (_, Some(0)) => StepReport::success("main", format!("{what} was the job `main`"), "it ended with 0"),
        (_, code) => {
            let code = code.map_or_else(String::new, |it| format!(" with {it}"));
            let output = String::from_utf8_lossy(&tail.bytes);
            let error = format!("it ended{code}: {}", output.trim());
            StepReport::flawed("main", Status::Failed, format!("{what} was the job `main`"), error)
        }
    }
}

/// Entry point and command of the image, as its user, in its directory.
async fn of_image(cx: &Context, found: &ManagedContainer, image: &Image) -> Result<MainProgram, Failure> {
    let words = [image.config.entrypoint.as_slice(), &image.config.cmd].concat();
    if words.is_empty() {
        return Err(Failure::invalid("main", "the image names no program to start")
            .hint("give the words of one, or an image of a service"));
    }
    let (name, group) = user_of(image);
    let user_request = UserRequest::parse(name)?;
    let known = match user_request {
        UserRequest::Ids(_) => Accounts::default(),
        _ => accounts(&*found.runtime, &found.present()?.id).await?,
    };
    let mut user = known.resolve(&user_request)?;
    if let Some(gid) = group.and_then(|it| it.parse().ok()) {
        user = Ids { gid, ..user };
    }
    if user.is_root() {
        granted(cx)?;
    }
    let home = known.home(user.uid).unwrap_or(if user.is_root() { "/root" } else { "/" });
    let env = [("HOME".to_owned(), home.to_owned())].into_iter().chain(environment(image)).collect();
    let workdir = match image.config.workdir.as_str() {
        "" => ContainerPath::root(),
        workdir => ContainerPath::parse(workdir)?,
    };
    Ok(MainProgram { words, user, workdir, env })
}

/// The image's own variables.
fn environment(image: &Image) -> impl Iterator<Item = (String, String)> {
    let own = image.env.iter().filter_map(|it| it.split_once('='));
    [("PATH", PATH)].into_iter().chain(own).map(|(name, value)| (name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use coracle_prepare::process::Process;
    use coracle_runtime::fake::LOCAL_IMAGE;
    use serde_json::{Value, json};

    use super::*;
    use crate::dispatch::{CallInput, execute};

    #[test]
    fn no_secret_of_a_main_program_is_remembered() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let given = map(&[("MODE", "fast"), ("TOKEN", "a-live-one"), ("URL", "x?a-live-one"), ("UNKNOWN", "x")]);
        let plain = map(&[("MODE", "fast"), ("URL", "x?a-live-one")]);
        let program = |words: &[&str]| MainProgram {
            words: words.iter().map(|it| (*it).to_owned()).collect(),
            user: Ids::ROOT,
            workdir: ContainerPath::root(),
            env: map(&[("PATH", "/bin")]).into_iter().chain(given.clone()).collect(),
        };
        let secret = |text: &str| text.contains("a-live-one");
        let remembered_program = remembered(&program(&["serve"]), &given, &plain, secret).unwrap();
        assert_eq!(
            remembered_program,
            MainProgram { env: map(&[("MODE", "fast"), ("PATH", "/bin")]), ..program(&["serve"]) }
        );
        assert_eq!(remembered(&program(&["serve", "--token=a-live-one"]), &given, &plain, secret), None);
    }

    #[tokio::test]
    async fn a_main_program_is_recorded_as_it_was_created_without_its_variables() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(dir.path());
        let call = async |call: Value| {
            let Value::Object(call) = call else { panic!("a call is an object") };
            Value::Object(
                execute(crate::operations::ALL, &Process::new(cx.clone()), CallInput::Object(call)).await.json,
            )
        };
        let begun = std::time::Instant::now();
        let made = call(json!({ "operation": "create", "name": "web", "image": LOCAL_IMAGE, "mount_cwd": false,
            "main": ["serve"], "env": { "MODE": "a-canary" } }));
        assert_eq!(made.await["success"], true);
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(8), "it waited for a lock of its own: {waited:?}");
        let record = cx.store().unwrap().records().unwrap().remove(0);
        assert_eq!(record.jobs.iter().map(|it| it.job.clone()).collect::<Vec<_>>(), [JobId::main()]);
        assert_eq!(record.main.as_ref().unwrap().env["MODE"], "a-canary");
        let status = call(json!({ "operation": "status", "container": "web" })).await;
        assert_eq!(status["metadata"]["main"]["words"], json!(["serve"]), "{status:#}");
        assert!(!status.to_string().contains("a-canary"), "{status:#}");
    }
}
