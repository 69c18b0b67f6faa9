//! `coracle doctor`: what preflight finds, and what mends it, which is done when the person agrees.
//!
//! **Invariant:** nothing is changed without a yes, or `--yes`.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use coracle::{CallInput, CallResponse, Failure, Host, Options, Process, operations, reply};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{admin, consent, exit, setup, startup};
use crate::render::{self, Layout};

/// The subcommand.
pub(super) fn command() -> Command {
    let yes = Arg::new("yes").long("yes").short('y').action(ArgAction::SetTrue).help("Do each fix without asking");
    let about = "Check this machine as `preflight` does, and offer to fix what it finds";
    Command::new("doctor").about(about).args([yes, admin::json()])
}

/// What this program can do about a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DoctorFix {
    /// Installs or prepares an engine.
    Setup,
    /// Removes what nothing needs any more.
    Prune,
}

impl DoctorFix {
    /// The fix of a check that is not well.
    fn for_check(check: &str, is_failure: bool) -> Option<Self> {
        match check {
            "runtime_installed" | "daemon_running" | "engine_version" if is_failure => Some(Self::Setup),
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

/// A check that is not well.
struct DoctorFinding {
    name: String,
    is_failure: bool,
    detail: String,
    guidance: String,
    fix: Option<DoctorFix>,
}

impl DoctorFinding {
    fn all(answer: &Map<String, Value>) -> Vec<Self> {
        let checks = answer.get("checks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        checks.iter().filter_map(Self::from_check).collect()
    }

    fn from_check(check: &Value) -> Option<Self> {
        let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
        let is_failure = match check["status"].as_str() {
            Some("fail") => true,
            Some("warn") => false,
            _ => return None,
        };
        let name = text("name");
        let fix = DoctorFix::for_check(&name, is_failure);
        // What only follows from another check has no fix of its own.
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

/// Looks, offers what can be done, and looks again when something was.
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

struct Doctor<'a> {
    process: &'a Process,
    yes: bool,
    json: bool,
}

impl Doctor<'_> {
    async fn examine(&self) -> Result<bool, Failure> {
        let found = self.call("preflight", json!({ "refresh": true })).await;
        self.show(&found);
        let problems = DoctorFinding::all(&found.json);
        let mut done = Vec::new();
        for fix in fixes(&problems) {
            if self.is_wanted(fix) && self.apply(fix).await? {
                done.push(fix);
            }
        }
        if done.is_empty() {
            return Ok(self.conclude(&found, &problems, &done));
        }
        let after = self.call("preflight", json!({ "refresh": true })).await;
        self.show(&after);
        Ok(self.conclude(&after, &DoctorFinding::all(&after.json), &done))
    }

    fn show(&self, found: &CallResponse) {
        let document = found.response.as_ref().map(|it| it.render(Timestamp::now()));
        if let Some(document) = document.filter(|_| !self.json) {
            let layout = Layout::of_stdout(self.process.context.host.stdout_is_terminal);
            render::print(&layout.document(&document, &[], std::time::Duration::ZERO));
        }
    }

    /// Whether a fix is done: asked of a person at a terminal.
    fn is_wanted(&self, fix: DoctorFix) -> bool {
        let host = &self.process.context.host;
        let asks = host.stdin_is_terminal && host.stderr_is_terminal && !self.json;
        let question = format!("Run `{}` now? [y/N] ", fix.command());
        self.yes || asks && consent::is_confirmed(&question)
    }

    /// Whether it was done.
    async fn apply(&self, fix: DoctorFix) -> Result<bool, Failure> {
        match fix {
            // It shows each step, and asks again unless all was agreed to.
            DoctorFix::Setup => {
                setup::run(self.yes, &self.process.context.host, &mut anstream::stderr()).await.map(|()| true)
            }
            DoctorFix::Prune => {
                let pruned = self.call("prune", json!({ "dry_run": false })).await;
                self.show(&pruned);
                if !pruned.is_success() && !self.json {
                    render::complain(&pruned.json);
                }
                Ok(pruned.is_success())
            }
        }
    }

    /// Says what is left, and whether containers can be made.
    fn conclude(&self, found: &CallResponse, problems: &[DoctorFinding], done: &[DoctorFix]) -> bool {
        let is_ready = found.json.get("ready") == Some(&Value::Bool(true));
        if self.json {
            let done: Vec<&str> = done.iter().map(|it| it.command()).collect();
            let problems: Vec<Value> = problems.iter().map(DoctorFinding::to_json).collect();
            let answer = json!({ "success": true, "ready": is_ready, "problems": problems, "fixed": done });
            render::print(&answer.to_string());
            return is_ready;
        }
        let left: Vec<DoctorFix> = fixes(problems).into_iter().filter(|it| !done.contains(it)).collect();
        for fix in left {
            render::note(&format!("fix: {}", fix.command()));
        }
        if problems.is_empty() {
            render::note("nothing to fix");
        }
        is_ready
    }

    async fn call(&self, operation: &str, fields: Value) -> CallResponse {
        let mut call = Map::from_iter([("operation".to_owned(), Value::from(operation))]);
        call.extend(fields.as_object().cloned().unwrap_or_default());
        Box::pin(reply(operations::ALL, self.process, CallInput::Object(call))).await
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
        DoctorFinding::all(json!({ "checks": checks }).as_object().unwrap())
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
