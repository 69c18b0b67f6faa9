//! `audit summary`: what sessions did, in sums.

use coracle_audit::history::{AuditedActs, LogFilter};
use coracle_audit::summary::{ActCount, SessionSummary, summarize};
use coracle_context::context::Context;
use coracle_context::document::{Block, Column, Document, DocumentTable, Render, StyledText};
use coracle_context::failure::Failure;
use coracle_context::humanize::{count, duration};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::audit_log::{read, seconds};
use crate::dispatch::{Effect, Operation};

/// Acts that are summed up; each is held in memory, with about a kilobyte.
const MOST: usize = 100_000;

/// Show what each session did: its acts, how they went, how long they took, and on which containers.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct SummarizeAuditLog {
    /// Only this session, by operation.
    session_name: Option<String>,
    /// From then on: `90s`, `1h`, `7d` ago, `yesterday`, a day such as 2026-11-24 (in UTC), or a time such as
    /// 2026-11-24T06:00:00Z.
    #[schemars(with = "Option<String>")]
    since: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
pub(super) struct SummarizeAuditLogResponse {
    count: usize,
    /// Acts before those that are summed up.
    older: usize,
    sessions: Vec<SessionSummary>,
}

impl Operation for SummarizeAuditLog {
    const NAME: &'static str = "audit summary";
    const EFFECT: Effect = Effect::ReadOnly;
    const DIAGNOSES: bool = true;
    type Response = SummarizeAuditLogResponse;

    async fn run(self, cx: &Context) -> Result<SummarizeAuditLogResponse, Failure> {
        let filter = LogFilter { since: self.since, session: self.session_name, newest: MOST, ..LogFilter::default() };
        let AuditedActs { acts, older } = read(cx, filter).await?;
        let sessions = summarize(&acts);
        Ok(SummarizeAuditLogResponse { count: sessions.len(), older, sessions })
    }
}

const SESSIONS: [Column; 8] = [
    Column::flexible("SESSION"),
    Column::flexible("BY").or_left_out(2),
    Column::fixed("LAST"),
    Column::fixed("ACTS"),
    Column::fixed("FAILED"),
    Column::fixed("DENIED"),
    Column::fixed("TIME"),
    Column::flexible("CONTAINERS").or_left_out(1),
];

const OPERATIONS: [Column; 6] = [
    Column::flexible("OPERATION"),
    Column::fixed("ACTS"),
    Column::fixed("FAILED"),
    Column::fixed("DENIED"),
    Column::fixed("TIME"),
    Column::fixed("LONGEST"),
];

impl Render for SummarizeAuditLogResponse {
    fn render(&self, _: Timestamp) -> Document {
        let mut document = Document::rows(&SESSIONS, &self.sessions, session, "nothing of the kind is in the trail");
        if let [one] = &self.sessions[..] {
            let rows = one.operations.iter().map(|(name, it)| operation(name, it)).collect();
            document = document.and_lines(["".into(), format!("acts of {}", one.session).into()]);
            document.blocks.push(Block::Table(DocumentTable { columns: OPERATIONS.to_vec(), rows }));
        }
        let older = count(self.older as u64, "older act is", "older acts are");
        document.and_lines((self.older > 0).then(|| format!("{older} left out; `--since` narrows it").into()))
    }
}

fn session(it: &SessionSummary) -> Vec<StyledText> {
    let by = it.by.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let containers = it.containers.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let [acts, failed, denied, time, _] = amounts(&it.total);
    let last = seconds(it.last.as_deref().unwrap_or_default());
    [it.session.clone(), by, last, acts, failed, denied, time, containers].map(Into::into).to_vec()
}

fn operation(name: &str, it: &ActCount) -> Vec<StyledText> {
    let [acts, failed, denied, time, longest] = amounts(it);
    [name.to_owned(), acts, failed, denied, time, longest].map(Into::into).to_vec()
}

/// A command that ended with another exit code than 0 counts as failed here, as a person sees it.
fn amounts(it: &ActCount) -> [String; 5] {
    let failed = it.failed + it.nonzero_exits;
    let [acts, failed, denied] = [it.acts, failed, it.denied].map(|it| it.to_string());
    [acts, failed, denied, duration(it.duration_ms), duration(it.longest_ms)]
}

#[cfg(test)]
mod tests {
    use coracle_audit::history::AuditedAct;
    use coracle_context::document::rendered;
    use insta::assert_snapshot;

    use super::*;

    fn act(session: &str, operation: &str) -> AuditedAct {
        AuditedAct {
            time: Some("2026-11-23T19:05:13.231196726Z".into()),
            session: Some(session.into()),
            by: Some("mcp".into()),
            operation: Some(operation.into()),
            container: Some("web".into()),
            outcome: "done",
            duration_ms: Some(1234),
            ..AuditedAct::default()
        }
    }

    fn shown(acts: &[AuditedAct]) -> String {
        let sessions = summarize(acts);
        let response = SummarizeAuditLogResponse { count: sessions.len(), older: 0, sessions };
        rendered(&response, "2026-11-23T20:00:00Z")
    }

    #[test]
    fn sessions_are_rows_and_one_alone_is_shown_by_operation() {
        let failed = AuditedAct { exit_code: Some(1), ..act("agent-1", "exec") };
        let one = [act("agent-1", "create"), act("agent-1", "exec"), failed];
        assert_snapshot!(shown(&one), @r"
        SESSION  BY   LAST                 ACTS  FAILED  DENIED  TIME   CONTAINERS
        agent-1  mcp  2026-11-23 19:05:13  3     1       0       3.7 s  web

        acts of agent-1
        OPERATION  ACTS  FAILED  DENIED  TIME   LONGEST
        create     1     0       0       1.2 s  1.2 s
        exec       2     1       0       2.5 s  1.2 s
        ");
        let two = [one[0].clone(), act("default", "list")];
        assert_snapshot!(shown(&two), @r"
        SESSION  BY   LAST                 ACTS  FAILED  DENIED  TIME   CONTAINERS
        agent-1  mcp  2026-11-23 19:05:13  1     0       0       1.2 s  web
        default  mcp  2026-11-23 19:05:13  1     0       0       1.2 s  web
        ");
    }
}
