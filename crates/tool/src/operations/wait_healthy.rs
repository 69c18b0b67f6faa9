//! `wait_healthy`: until what runs in a container is ready.

use std::time::Duration;

use coracle_context::arg_types::{Name, Script, Seconds};
use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText};
use coracle_context::failure::{Code, Failure};
use coracle_context::humanize::{count, duration, millis};
use coracle_lifecycle::{Check, Error, HealthReport, Probe, ProbeOutcome, RetryPolicy};
use coracle_types::{Command, Handle, PortTarget};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::commands::{PortRequest, lost_with_container};
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::target::{CommandTarget, reach_inside, reach_running};

/// Wait until a container is ready: a command in it ends with 0, a port takes connections, or the image's own health check
/// passes. One that does not become ready is a failed call, `unhealthy`, with the output of the last attempt.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WaitHealthy {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// Command that has to end with 0: a text for `/bin/sh -c`, or a list of words that runs as it stands.
    health_command: Option<Script>,
    /// Port inside that has to take connections: a number on the loopback, or `address:port`.
    port: Option<PortRequest>,
    /// Ask for health as well; of `wait_healthy`, wait for the health check that the image brings.
    #[schemars(extend("default" = false))]
    health_check: Option<bool>,
    /// Seconds between two attempts, at most 60.
    #[schemars(extend("default" = 2))]
    interval: Option<Seconds>,
    /// Attempts, at most 1000; all together never take more than an hour.
    #[schemars(extend("default" = 15))]
    retries: Option<u32>,
    /// Seconds before an attempt is ended with all that it started, 0.1 to 300. Without it `interval` and 5 more.
    attempt_timeout: Option<Seconds>,
    /// Run as root inside.
    #[schemars(extend("default" = false))]
    as_root: Option<bool>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct WaitHealthyResponse {
    healthy: bool,
    container: String,
    attempts: u32,
    detail: String,
    duration_ms: u64,
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requested {
    Command(Command),
    Port(PortTarget),
    Image,
}

impl Operation for WaitHealthy {
    const NAME: &'static str = "wait_healthy";
    const EFFECT: Effect = Effect::Mutating;
    const RESULT: fn() -> Value = result_schema::<WaitHealthyResponse>;
    type Response = WaitHealthyResponse;

    async fn run(self, cx: &Context) -> Result<WaitHealthyResponse, Failure> {
        let (wanted, patience) = self.resolve()?;
        // A failure from here on never reports a healthy container.
        Box::pin(self.wait(wanted, &patience, cx)).await.map_err(|failure| failure.known("healthy", false))
    }
}

fn response(waited: HealthReport, container: String, most: u32) -> Result<WaitHealthyResponse, Failure> {
    let HealthReport { last, attempts, took } = waited;
    let (error, exit_code) = match last {
        ProbeOutcome::Cancelled => return Err(Failure::cancelled().known("container", container)),
        ProbeOutcome::Passed => {
            let detail = format!("Health check passed on attempt {attempts}/{most}");
            return Ok(WaitHealthyResponse { healthy: true, container, attempts, detail, duration_ms: millis(took) });
        }
        ProbeOutcome::Failed { error, exit_code } => (error, exit_code),
    };
    let detail = format!("Health check failed {attempts} times in {} s", took.as_secs());
    Err(Failure::new(Code::Unhealthy, format!("`{container}` did not become healthy in {attempts} attempts"))
        .hint("`last_error` is the output of the last attempt; look with `exec`, or give more `retries`")
        .known("container", container)
        .known("attempts", attempts)
        .known("detail", detail)
        .known("last_error", error)
        .known("last_exit_code", exit_code)
        .known("duration_ms", millis(took)))
}

impl WaitHealthy {
    async fn wait(
        &self,
        wanted: Requested,
        patience: &RetryPolicy,
        cx: &Context,
    ) -> Result<WaitHealthyResponse, Failure> {
        let CommandTarget { record, inside, session } =
            reach_inside(cx, &self.container, self.as_root.unwrap_or(false)).await?;
        let check = match wanted {
            Requested::Command(command) => Check::Command(command),
            Requested::Port(at) => Check::Port(at),
            Requested::Image => {
                let found = reach_running(cx, &self.container).await?;
                Check::Image(found.runtime.clone(), found.present()?.id.clone())
            }
        };
        let probe = Probe { inside, session, check, cancel: cx.call.cancel.clone() };
        let name = record.name.to_string();
        cx.call
            .progress
            .message(format!("waiting until {name} is healthy, for at most {} attempts", patience.attempts))
            .await;
        match coracle_lifecycle::wait_healthy(&probe, patience).await {
            Ok(waited) => response(waited, name, patience.attempts),
            Err(Error::Runtime(err)) => {
                let failure = Failure::from(lost_with_container(cx, &self.container, err).await);
                Err(failure.known("container", name))
            }
            Err(err) => Err(Failure::from(err).known("container", name)),
        }
    }

    /// What is waited for and how long, every default decided.
    fn resolve(&self) -> Result<(Requested, RetryPolicy), Failure> {
        let command = self.health_command.as_ref().map(|it| Requested::Command(it.0.clone()));
        let port = self.port.map(|it| Requested::Port(it.0));
        let image = self.health_check.unwrap_or(false).then_some(Requested::Image);
        let mut given = [("health_command", command), ("port", port), ("health_check", image)];
        let named: Vec<_> = given.iter().filter(|it| it.1.is_some()).map(|it| it.0).collect();
        let wanted = match named.len() {
            0 => {
                let message = "required: one of `health_command`, `port`, `health_check`";
                let fields = ["health_command", "port", "health_check"];
                return Err(Failure::new(Code::MissingField, message)
                    .detail("fields", fields)
                    .hint("say what being ready means: a command that ends with 0, or a port that takes connections"));
            }
            1 => given.iter_mut().find_map(|it| it.1.take()).unwrap_or(Requested::Image),
            _ => return Err(Failure::conflicting(&named, "only one thing can be waited for")),
        };
        Ok((wanted, self.patience()?))
    }

    fn patience(&self) -> Result<RetryPolicy, Failure> {
        let every = self.interval.map_or(Duration::from_secs(2), |it| it.0);
        if every > Duration::from_secs(60) {
            return Err(Failure::invalid("interval", "from 0 to 60 s"));
        }
        let attempts = self.retries.unwrap_or(15);
        if !(1..=1000).contains(&attempts) {
            return Err(Failure::invalid("retries", "from 1 to 1000"));
        }
        let each = self.attempt_timeout.map_or(every + Duration::from_secs(5), |it| it.0);
        if !(Duration::from_millis(100)..=Duration::from_secs(300)).contains(&each) {
            return Err(Failure::invalid("attempt_timeout", "from 0.1 to 300 s"));
        }
        Ok(RetryPolicy { every, attempts, each })
    }
}

impl Render for WaitHealthyResponse {
    fn render(&self, _: Timestamp) -> Document {
        let attempts = count(u64::from(self.attempts), "attempt", "attempts");
        let duration = duration(self.duration_ms);
        let outcome = format!(" is healthy, after {attempts} in {duration}");
        Document::line(StyledText::new().name(&self.container).plain(outcome))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::WaitHealthy;

    fn check(more: Value) -> Result<String, String> {
        let mut call = json!({ "container": "web" });
        let Value::Object(more) = more else { panic!("no object") };
        call.as_object_mut().unwrap().extend(more);
        let call: WaitHealthy = serde_json::from_value(call).unwrap();
        let resolved = call.resolve().map_err(|failure| format!("{}: {}", failure.code.word(), failure.message));
        resolved.map(|(wanted, it)| format!("{wanted:?} {:?} {} {:?}", it.every, it.attempts, it.each))
    }

    #[test]
    fn one_thing_is_waited_for_with_the_usual_patience() {
        assert_eq!(check(json!({ "port": 80 })).unwrap(), "Port(PortTarget { address: None, port: 80 }) 2s 15 7s");
        assert_eq!(check(json!({ "health_check": true, "interval": 0 })).unwrap(), "Image 0ns 15 5s");
        let call = json!({ "health_command": "x", "health_check": false, "retries": 1, "attempt_timeout": "1m" });
        assert_eq!(check(call).unwrap(), "Command(Shell(\"x\")) 2s 1 60s");
    }

    #[test]
    fn no_or_two_conditions_are_refused_and_limits_enforced() {
        assert!(check(json!({})).unwrap_err().starts_with("missing_field: required: one of"));
        assert!(check(json!({ "port": 1, "health_command": "x" })).unwrap_err().starts_with("conflicting_fields"));
        for more in [json!({ "interval": 61 }), json!({ "retries": 0 }), json!({ "attempt_timeout": 0.05 })] {
            let call = json!({ "port": 1 }).as_object().cloned().unwrap();
            let call: Value = call.into_iter().chain(more.as_object().cloned().unwrap()).collect();
            assert!(check(call).unwrap_err().starts_with("invalid_input"), "{more}");
        }
    }
}
