//! `audit`: what was done, and whether the log of it is whole.

use std::path::PathBuf;

use coracle_audit::history::{AuditedAct, AuditedActs, LogFilter};
use coracle_audit::{ChainBreak, VerifyReport, verify};
use coracle_context::context::Context;
use coracle_context::document::{Column, Document, Render, optional};
use coracle_context::failure::{Code, Failure};
use coracle_context::humanize::{count, duration, to_second};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dispatch::{Effect, Operation};

/// Acts that are shown without `newest`.
const NEWEST: u32 = 50;

/// Show what was done: when, by whom, to what, and how it went.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ReadAuditLog {
    /// Only what this session did.
    session_name: Option<String>,
    /// From then on: `90s`, `1h`, `7d` ago, `yesterday`, a day such as 2026-11-24 (in UTC), or a time such as
    /// 2026-11-24T06:00:00Z.
    #[schemars(with = "Option<String>")]
    since: Option<Timestamp>,
    /// Only this operation, such as `exec` or `copy_in`.
    act: Option<String>,
    /// Only what was done to this container.
    container: Option<String>,
    /// The newest ones, that many [default: 50].
    newest: Option<u32>,
}

#[derive(Debug, Serialize)]
pub(super) struct ReadAuditLogResponse {
    count: usize,
    older: usize,
    acts: Vec<AuditedAct>,
}

impl Operation for ReadAuditLog {
    const NAME: &'static str = "audit log";
    const EFFECT: Effect = Effect::ReadOnly;
    const DIAGNOSES: bool = true;
    type Response = ReadAuditLogResponse;

    async fn run(self, cx: &Context) -> Result<ReadAuditLogResponse, Failure> {
        let filter = LogFilter {
            since: self.since,
            // As a person types it.
            operation: self.act.map(|it| it.replace('-', "_")),
            container: self.container,
            session: self.session_name,
            newest: usize::try_from(self.newest.unwrap_or(NEWEST)).unwrap_or(usize::MAX),
        };
        let AuditedActs { acts, older } = read(cx, filter).await?;
        Ok(ReadAuditLogResponse { count: acts.len(), older, acts })
    }
}

/// The acts of the trail that fit.
pub(super) async fn read(cx: &Context, filter: LogFilter) -> Result<AuditedActs, Failure> {
    let dir = cx.state()?.audit();
    let read = tokio::task::spawn_blocking(move || AuditedActs::read(&dir, &filter)).await;
    read.map_err(Failure::internal)?.map_err(|err| unreadable(&err))
}

const COLUMNS: [Column; 6] = [
    Column::fixed("TIME (UTC)"),
    Column::flexible("WHO").or_left_out(2),
    Column::flexible("OPERATION"),
    Column::flexible("CONTAINER"),
    Column::flexible("OUTCOME"),
    Column::fixed("TOOK").or_left_out(1),
];

impl Render for ReadAuditLogResponse {
    fn render(&self, _: Timestamp) -> Document {
        let row = |it: &AuditedAct| {
            let who = format!("{}/{}", optional(it.by.as_ref()), optional(it.session.as_ref()));
            let took = it.duration_ms.map(duration).unwrap_or_default();
            let (time, container) = (seconds(it.time.as_deref().unwrap_or_default()), optional(it.container.as_ref()));
            [time, who, operation(it), container, outcome(it), took].map(Into::into).to_vec()
        };
        if self.acts.is_empty() {
            return Document::line("nothing of the kind is in the trail");
        }
        let older = count(self.older as u64, "older act is", "older acts are");
        let older = (self.older > 0).then(|| format!("{older} left out; `-n` shows more").into());
        Document::table(&COLUMNS, self.acts.iter().map(row).collect()).and_lines(older)
    }
}

/// The time without fractions of a second.
pub(super) fn seconds(time: &str) -> String {
    let cut = time.split_once('.').map_or(time, |it| it.0);
    cut.trim_end_matches('Z').replace('T', " ")
}

/// With the first word of a command, since the log does not hold the rest, or with what a client of ssh opened, or
/// with a recorded request.
fn operation(act: &AuditedAct) -> String {
    let operation = optional(act.operation.as_ref());
    match act.args["command"]["first"].as_str() {
        None | Some("") => {
            let opened = ["channel", "method", "address"].map(|it| act.args[it].as_str());
            [Some(operation.as_str())].into_iter().chain(opened).flatten().collect::<Vec<_>>().join(" ")
        }
        Some(first) => format!("{operation} {first} …"),
    }
}

fn outcome(act: &AuditedAct) -> String {
    let by_person = if act.allowed_by.as_deref() == Some("person") { " (allowed at the command line)" } else { "" };
    let outcome = match (act.outcome, act.exit_code, &act.rule) {
        ("done", Some(exit), _) if exit > 0 => format!("exit {exit}"),
        ("denied", _, Some(rule)) if !rule.is_empty() => format!("denied: {rule}"),
        ("failed" | "denied", ..) => optional(act.code.as_ref()),
        (other, ..) => other.to_owned(),
    };
    format!("{outcome}{by_person}")
}

/// Check that no line was changed or taken away.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct VerifyAuditLog {}

#[derive(Debug, Serialize)]
pub(super) struct VerifyAuditLogResponse {
    dir: PathBuf,
    #[serde(flatten)]
    verified: VerifyReport,
}

impl Operation for VerifyAuditLog {
    const NAME: &'static str = "audit verify";
    const EFFECT: Effect = Effect::ReadOnly;
    const DIAGNOSES: bool = true;
    type Response = VerifyAuditLogResponse;

    async fn run(self, cx: &Context) -> Result<VerifyAuditLogResponse, Failure> {
        let dir = cx.state()?.audit();
        let verified = tokio::task::spawn_blocking({
            let dir = dir.clone();
            move || verify(&dir)
        });
        match verified.await.map_err(Failure::internal)?.map_err(|err| unreadable(&err))? {
            Ok(verified) => Ok(VerifyAuditLogResponse { dir, verified }),
            Err(ChainBreak { file, line, reason }) => {
                let message = format!("the audit trail is broken at line {line} of `{}`: {reason}", file.display());
                Err(Failure::new(Code::AuditBroken, message)
                    .detail("file", file)
                    .detail("line", line)
                    .detail("reason", reason)
                    .hint("the files were changed by another program, or the disk lost data; the lines before it are intact"))
            }
        }
    }
}

impl Render for VerifyAuditLogResponse {
    fn render(&self, _: Timestamp) -> Document {
        let VerifyReport { files, lines, torn, first, last } = &self.verified;
        if *lines == 0 {
            return Document::line("nothing has been done yet");
        }
        let torn =
            if *torn == 0 { String::new() } else { format!(", and {} unfinished", count(*torn, "line", "lines")) };
        let [first, last] = [first, last].map(|it| to_second(it.as_deref().unwrap_or_default()));
        let (lines, files) = (count(*lines, "line", "lines"), count(*files as u64, "file", "files"));
        Document::line(format!("the audit trail is intact: {lines} in {files}, from {first} to {last}{torn}"))
    }
}

fn unreadable(err: &std::io::Error) -> Failure {
    Failure::config("state_dir", None, format!("the audit trail cannot be read: {err}"))
}

#[cfg(test)]
mod tests {
    use coracle_context::document::rendered;
    use insta::assert_snapshot;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_who_did_what_to_what_and_how_it_went() {
        let act = || AuditedAct {
            time: Some("2026-11-23T19:05:13.231196726Z".into()),
            session: Some("default".into()),
            by: Some("cli".into()),
            operation: Some("exec".into()),
            container: Some("web".into()),
            outcome: "done",
            duration_ms: Some(1234),
            ..AuditedAct::default()
        };
        let copy = || AuditedAct { operation: Some("copy_in".into()), ..act() };
        let (rule, code) = (Some("copy.root".to_owned()), Some("policy_denied".to_owned()));
        let acts = vec![
            AuditedAct { operation: Some("create".into()), ..act() },
            AuditedAct { args: json!({ "command": { "first": "make" } }), exit_code: Some(2), ..act() },
            AuditedAct { outcome: "denied", rule, code, ..copy() },
            AuditedAct { allowed_by: Some("person".into()), ..copy() },
            AuditedAct { outcome: "unfinished", duration_ms: None, ..act() },
            AuditedAct {
                operation: Some("ssh".into()),
                args: json!({ "channel": "port", "address": "127.0.0.1:80" }),
                ..act()
            },
        ];
        let log = ReadAuditLogResponse { count: acts.len(), older: 1, acts };
        assert_snapshot!(rendered(&log, "2026-11-23T20:00:00Z"), @r"
        TIME (UTC)           WHO          OPERATION              CONTAINER  OUTCOME                             TOOK
        2026-11-23 19:05:13  cli/default  create                 web        done                                1.2 s
        2026-11-23 19:05:13  cli/default  exec make …            web        exit 2                              1.2 s
        2026-11-23 19:05:13  cli/default  copy_in                web        denied: copy.root                   1.2 s
        2026-11-23 19:05:13  cli/default  copy_in                web        done (allowed at the command line)  1.2 s
        2026-11-23 19:05:13  cli/default  exec                   web        unfinished
        2026-11-23 19:05:13  cli/default  ssh port 127.0.0.1:80  web        done                                1.2 s
        1 older act is left out; `-n` shows more
        ");
    }

    #[test]
    fn plurals_and_times_of_a_verified_log_are_right() {
        let time = Some("2026-11-23T19:05:13.231196726Z".to_owned());
        let verified = VerifyReport { files: 1, lines: 151, torn: 0, first: time.clone(), last: time };
        let response = VerifyAuditLogResponse { dir: "/state/audit".into(), verified };
        assert_snapshot!(rendered(&response, "2026-11-23T20:00:00Z"), @"the audit trail is intact: 151 lines in 1 file, from 2026-11-23T19:05:13Z to 2026-11-23T19:05:13Z");
    }
}
