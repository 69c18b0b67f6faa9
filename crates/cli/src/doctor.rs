//! `coracle doctor`: shows the problems that preflight finds, and runs their fixes if the user agrees.
//!
//! **Invariant:** nothing is changed without a yes, or `--yes`.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use coracle::{CallInput, CallResponse, execute, operations};
use coracle_context::config::{Config, Engine};
use coracle_context::{Failure, Host, Options};
use coracle_prepare::Process;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{admin, cli_messages, consent, exit, setup, startup};
use crate::render::{self, Layout};

/// The subcommand.
pub(super) fn command() -> Command {
    let yes = Arg::new("yes").long("yes").short('y').action(ArgAction::SetTrue).help("Do each fix without asking");
    let about = "Check this machine as `preflight` does, and offer to fix what it finds";
    Command::new("doctor").about(about).args([yes, admin::json()])
}

/// A fix that this program can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DoctorFix {
    /// Installs or prepares an engine.
    Setup,
    /// Removes unused resources.
    Prune,
}

impl DoctorFix {
    /// The fix of a check with a problem.
    fn for_check(check: &str, is_failure: bool, config: &Config) -> Option<Self> {
        match check {
            "runtime_installed" | "daemon_running" | "engine_version" if is_failure && can_set_up(config) => {
                Some(Self::Setup)
            }
            "disk_space" => Some(Self::Prune),
            _ => None,
        }
    }

    fn command(self) -> &'static str {
        match self {
            Self::Setup => "coracle setup",
            Self::Prune => "coracle prune --dry-run=false",
        }
    }
}

/// Whether `setup` can fix the configured engine: it installs Podman on this machine.
fn can_set_up(config: &Config) -> bool {
    matches!(config.engine, Engine::Auto | Engine::Podman) && config.engine_host.is_none()
}

/// A check with a problem.
struct DoctorFinding {
    name: String,
    is_failure: bool,
    detail: String,
    guidance: String,
    fix: Option<DoctorFix>,
}

impl DoctorFinding {
    fn all(answer: &Map<String, Value>, config: &Config) -> Vec<Self> {
        let checks = answer.get("checks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        checks.iter().filter_map(|it| Self::from_check(it, config)).collect()
    }

    fn from_check(check: &Value, config: &Config) -> Option<Self> {
        let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
        let is_failure = match check["status"].as_str() {
            Some("fail") => true,
            Some("warn") => false,
            _ => return None,
        };
        let name = text("name");
        let fix = DoctorFix::for_check(&name, is_failure, config);
        // A consequence of another check has no fix of its own.
        let is_cause = !text("detail").starts_with("skipped:");
        is_cause.then(|| Self { is_failure, detail: text("detail"), guidance: text("guidance"), fix, name })
    }

    fn to_json(&self) -> Value {
        json!({
            "check": self.name,
            "status": if self.is_failure { "fail" } else { "warn" },
            "detail": self.detail,
            "guidance": self.guidance,
            "fix": self.fix.map(DoctorFix::command),
        })
    }
}

/// Runs preflight, offers fixes, and runs preflight again after a fix.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let (yes, json) = (matches.get_flag("yes"), matches.get_flag("json"));
    let examined = async {
        let process = startup::open(host, options)?;
        Doctor { process: &process, yes, json }.examine().await
    };
    match Box::pin(examined).await {
        Ok(is_ready) => ExitCode::from(u8::from(!is_ready)),
        Err(failure) if json => exit::finish(&failure.answer(Some("doctor"))),
        Err(failure) => exit::failed(&failure),
    }
}

/// The fixes that were run.
#[derive(Default)]
struct DoctorAttempts {
    done: Vec<DoctorFix>,
    failed: Vec<FailedFix>,
}

/// A fix that the user declined at one of its steps, or that failed.
struct FailedFix {
    fix: DoctorFix,
    /// With `code`, `message` and `hint`.
    answer: Map<String, Value>,
}

impl FailedFix {
    fn to_json(&self) -> Value {
        let part = |key: &str| self.answer.get(key).cloned().unwrap_or_default();
        json!({ "fix": self.fix.command(), "code": part("code"), "message": part("message"), "hint": part("hint") })
    }
}

struct Doctor<'a> {
    process: &'a Process,
    yes: bool,
    json: bool,
}

impl Doctor<'_> {
    async fn examine(&self) -> Result<bool, Failure> {
        let found = self.call("preflight", json!({ "refresh": true })).await;
        self.show(&found);
        let mut attempts = DoctorAttempts::default();
        for fix in fixes(&self.problems(&found)) {
            if self.is_wanted(fix) {
                self.attempt(fix, &mut attempts).await?;
            }
        }
        if attempts.done.is_empty() && attempts.failed.is_empty() {
            return Ok(self.conclude(&found, &attempts));
        }
        let after = self.call("preflight", json!({ "refresh": true })).await;
        self.show(&after);
        Ok(self.conclude(&after, &attempts))
    }

    fn problems(&self, found: &CallResponse) -> Vec<DoctorFinding> {
        DoctorFinding::all(&found.json, &self.process.context.config)
    }

    /// Runs a fix. If it fails, that is reported and the others follow, unless the user cancels.
    async fn attempt(&self, fix: DoctorFix, attempts: &mut DoctorAttempts) -> Result<(), Failure> {
        let outcome = self.apply(fix).await;
        if self.process.context.call.cancel.is_cancelled() {
            return Err(Failure::cancelled());
        }
        match outcome {
            Ok(()) => attempts.done.push(fix),
            Err(answer) => {
                if !self.json {
                    render::complain(&answer);
                }
                attempts.failed.push(FailedFix { fix, answer });
            }
        }
        Ok(())
    }

    fn show(&self, found: &CallResponse) {
        let document = found.response.as_ref().map(|it| it.render(Timestamp::now()));
        if let Some(document) = document.filter(|_| !self.json) {
            let layout = Layout::of_stdout(self.process.context.host.stdout_is_terminal);
            render::print(&layout.document(&document, &[], std::time::Duration::ZERO));
        }
    }

    /// Whether to run a fix; asks the user at a terminal.
    fn is_wanted(&self, fix: DoctorFix) -> bool {
        let host = &self.process.context.host;
        let asks = host.stdin_is_terminal && host.stderr_is_terminal && !self.json;
        let question = format!("Run `{}` now? [y/N] ", fix.command());
        self.yes || asks && consent::is_confirmed(&question)
    }

    /// A failed fix returns its error.
    async fn apply(&self, fix: DoctorFix) -> Result<(), Map<String, Value>> {
        match fix {
            // It shows each step, and asks again unless `--yes` was given.
            DoctorFix::Setup => {
                let done = setup::run(self.yes, &self.process.context.host, &mut anstream::stderr()).await;
                done.map_err(|failure| cli_messages::to_person(failure).answer(None))
            }
            DoctorFix::Prune => {
                let pruned = self.call("prune", json!({ "dry_run": false })).await;
                self.show(&pruned);
                if pruned.is_success() { Ok(()) } else { Err(pruned.json) }
            }
        }
    }

    /// Prints the remaining problems, and whether containers can be created.
    fn conclude(&self, found: &CallResponse, attempts: &DoctorAttempts) -> bool {
        let problems = self.problems(found);
        let is_ready = found.json.get("ready") == Some(&Value::Bool(true));
        if self.json {
            let done: Vec<&str> = attempts.done.iter().map(|it| it.command()).collect();
            let failed: Vec<Value> = attempts.failed.iter().map(FailedFix::to_json).collect();
            let problems: Vec<Value> = problems.iter().map(DoctorFinding::to_json).collect();
            let answer =
                json!({ "success": true, "ready": is_ready, "problems": problems, "fixed": done, "failed": failed });
            render::print(&answer.to_string());
            return is_ready;
        }
        for fix in fixes(&problems) {
            let was_done = if attempts.done.contains(&fix) { " (done, and not enough)" } else { "" };
            render::note(&format!("fix: {}{was_done}", fix.command()));
        }
        if problems.is_empty() {
            render::note("nothing to fix");
        }
        is_ready
    }

    async fn call(&self, operation: &str, fields: Value) -> CallResponse {
        let mut call = Map::from_iter([("operation".to_owned(), Value::from(operation))]);
        call.extend(fields.as_object().cloned().unwrap_or_default());
        Box::pin(execute(operations::ALL, self.process, CallInput::Object(call))).await
    }
}

/// Each fix once, in the order of the checks.
fn fixes(problems: &[DoctorFinding]) -> Vec<DoctorFix> {
    let mut all: Vec<DoctorFix> = Vec::new();
    for fix in problems.iter().filter_map(|it| it.fix) {
        if !all.contains(&fix) {
            all.push(fix);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(checks: &Value) -> Vec<DoctorFinding> {
        DoctorFinding::all(json!({ "checks": checks }).as_object().unwrap(), &Config::default())
    }

    #[test]
    fn setup_is_offered_only_for_an_engine_that_it_installs() {
        let answer = json!({ "checks": [{ "name": "daemon_running", "status": "fail", "detail": "no answer" }] });
        let offered = |config: &Config| fixes(&DoctorFinding::all(answer.as_object().unwrap(), config));
        for engine in [Engine::Auto, Engine::Podman] {
            assert_eq!(offered(&Config { engine, ..Config::default() }), [DoctorFix::Setup]);
        }
        for engine in [Engine::Docker, Engine::Kubernetes, Engine::Embedded] {
            assert_eq!(offered(&Config { engine, ..Config::default() }), []);
        }
        let remote = Config { engine_host: Some("ssh://me@there".into()), ..Config::default() };
        assert_eq!(offered(&remote), []);
    }

    #[test]
    fn each_problem_has_its_fix_once_and_what_is_well_has_none() {
        let found = problems(&json!([
            { "name": "configuration", "status": "pass", "detail": "fine", "guidance": null },
            { "name": "daemon_running", "status": "fail", "detail": "no answer", "guidance": "start it" },
            { "name": "engine_version", "status": "fail", "detail": "skipped: daemon_running failed", "guidance": null },
            { "name": "runtime_installed", "status": "fail", "detail": "none", "guidance": null },
            { "name": "disk_space", "status": "warn", "detail": "2 GiB", "guidance": "remove" },
            { "name": "guest", "status": "warn", "detail": "none", "guidance": null },
            { "name": "gh", "status": "info", "detail": "no", "guidance": null },
        ]));
        let names: Vec<&str> = found.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["daemon_running", "runtime_installed", "disk_space", "guest"]);
        assert_eq!(fixes(&found), [DoctorFix::Setup, DoctorFix::Prune]);
        assert_eq!(found[0].to_json()["fix"], "coracle setup");
        assert_eq!(found[3].to_json()["fix"], Value::Null);
    }

    #[test]
    fn an_old_engine_that_works_is_left_alone() {
        let old =
            problems(&json!([{ "name": "engine_version", "status": "warn", "detail": "20.10", "guidance": "x" }]));
        assert_eq!(fixes(&old), []);
    }
}
