//! `recorded`: requests of containers that their proxies recorded, and what replays requested.

use coracle_context::container_proxy;
use coracle_context::context::Context;
use coracle_context::document::{Column, Document, Render, StyledText, optional};
use coracle_context::failure::Failure;
use coracle_context::humanize::{ago, bytes, count};
use coracle_context::recorded::{self, RequestRecord};
use coracle_proxy::record::{ExchangeRecord, RecordedExchange};
use coracle_proxy::replay::{ReplayDifference, ReplayReport, ReplayedRequest};
use coracle_types::Handle;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dispatch::{Effect, Operation};
use crate::target::{Access, reach};

/// List the records of requests, also of containers that are gone.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListRecords {
    /// Only of this container.
    name: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ListRecordsResponse {
    records: Vec<RecordRow>,
    count: usize,
}

#[derive(Debug, Serialize)]
struct RecordRow {
    record: String,
    session: String,
    container: String,
    last: String,
    bytes: u64,
    location: std::path::PathBuf,
}

impl From<RequestRecord> for RecordRow {
    fn from(found: RequestRecord) -> Self {
        let (record, bytes) = (format!("{}/{}", found.container, found.id), found.bytes());
        let RequestRecord { session, container, dir, last, .. } = found;
        Self { record, session, container, last: last.to_string(), bytes, location: dir }
    }
}

impl Operation for ListRecords {
    const NAME: &'static str = "recorded list";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = ListRecordsResponse;

    async fn run(self, cx: &Context) -> Result<ListRecordsResponse, Failure> {
        let mut found = recorded::all(cx)?;
        found.retain(|it| self.name.as_ref().is_none_or(|name| name.eq_ignore_ascii_case(&it.container)));
        let records: Vec<_> = found.into_iter().map(RecordRow::from).collect();
        Ok(ListRecordsResponse { count: records.len(), records })
    }
}

const RECORDS: [Column; 4] = [
    Column::flexible("RECORD"),
    Column::flexible("SESSION").or_left_out(2),
    Column::fixed("LAST REQUEST").or_left_out(1),
    Column::fixed("SIZE"),
];

impl Render for ListRecordsResponse {
    fn render(&self, now: Timestamp) -> Document {
        let row = |it: &RecordRow| {
            [it.record.clone(), it.session.clone(), ago(&it.last, now), bytes(it.bytes)].map(Into::into).to_vec()
        };
        Document::rows(&RECORDS, &self.records, row, "no requests are recorded")
    }
}

/// Show the requests of a record, in order.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ShowRecord {
    /// The record; without an id the newest of that container.
    record: String,
}

#[derive(Debug, Serialize)]
pub(super) struct ShowRecordResponse {
    record: String,
    location: std::path::PathBuf,
    count: usize,
    exchanges: Vec<RecordedExchange>,
}

impl Operation for ShowRecord {
    const NAME: &'static str = "recorded show";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = ShowRecordResponse;

    async fn run(self, cx: &Context) -> Result<ShowRecordResponse, Failure> {
        let found = recorded::find(cx, &self.record)?;
        let record = format!("{}/{}", found.container, found.id);
        let exchanges = ExchangeRecord::at(found.dir.clone()).exchanges()?;
        Ok(ShowRecordResponse { record, location: found.dir, count: exchanges.len(), exchanges })
    }
}

const EXCHANGES: [Column; 6] = [
    Column::fixed("N"),
    Column::fixed("METHOD"),
    Column::flexible("ADDRESS"),
    Column::fixed("STATUS"),
    Column::fixed("SIZE").or_left_out(1),
    Column::flexible("MISSING").or_left_out(2),
];

impl Render for ShowRecordResponse {
    fn render(&self, _: Timestamp) -> Document {
        let row = |it: &RecordedExchange| {
            let missing = it.answer.body.missing.or(it.request.body.missing).map(coracle_context::document::word);
            let (sequence, status) = (it.sequence.to_string(), it.status.to_string());
            let cells = [sequence, it.method.clone(), it.url.clone(), status, bytes(it.answer.body.bytes)];
            cells.into_iter().chain([optional(missing.as_ref())]).map(Into::into).collect()
        };
        let none = "the record has no requests";
        Document::rows(&EXCHANGES, &self.exchanges, row, none)
            .then(format!("bodies are in {}", self.location.display()))
    }
}

/// Show what a container requested of the record that it replays: what was answered, what differed, and what is left.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ReportReplay {
    /// The container.
    container: String,
}

#[derive(Debug, Serialize)]
pub(super) struct ReportReplayResponse {
    container: String,
    record: Option<String>,
    #[serde(flatten)]
    report: ReplayReport,
}

impl Operation for ReportReplay {
    const NAME: &'static str = "recorded report";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = ReportReplayResponse;

    async fn run(self, cx: &Context) -> Result<ReportReplayResponse, Failure> {
        let handle = Handle::parse(&self.container).map_err(|err| Failure::name("container", err))?;
        let found = reach(cx, &handle, Access::Read).await?;
        let report = container_proxy::replay_report(cx, &found.record)?;
        Ok(ReportReplayResponse { container: found.record.name.to_string(), record: found.record.replay, report })
    }
}

impl Render for ReportReplayResponse {
    fn render(&self, _: Timestamp) -> Document {
        let ReplayReport { served, differed, not_requested } = &self.report;
        let totals = format!(
            "{} answered, {} not recorded, {} not made again",
            count(*served, "request", "requests"),
            differed.len(),
            not_requested.len()
        );
        let lines = differed.iter().flat_map(difference).chain(not_requested.iter().map(|it| line("not made", it)));
        Document::line(totals).and_lines(lines)
    }
}

fn difference(it: &ReplayDifference) -> Vec<StyledText> {
    let differs = if it.differs.is_empty() { "host".to_owned() } else { it.differs.join(", ") };
    let mut lines = vec![line("not recorded", &it.request)];
    lines.extend(it.nearest.as_ref().map(|nearest| line(&format!("  recorded ({differs})"), nearest)));
    lines
}

fn line(what: &str, it: &ReplayedRequest) -> StyledText {
    let body = match (&it.text, it.bytes) {
        (_, 0) => String::new(),
        (Some(text), _) => format!(" {text:?}"),
        (None, length) => format!(" ({length} bytes, {:.12})", it.sha256),
    };
    format!("{what}: {} {}{body}", it.method, it.url).into()
}

#[cfg(test)]
mod tests {
    use coracle_context::document::rendered;
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn a_report_shows_both_sides_of_a_difference() {
        let request = |method: &str, text: &str| ReplayedRequest {
            method: method.to_owned(),
            url: "https://api.example.com/v1/items".to_owned(),
            sha256: "0123456789abcdef".to_owned(),
            bytes: text.len() as u64,
            text: (!text.is_empty()).then(|| text.to_owned()),
        };
        let differed = vec![ReplayDifference {
            time: "2026-11-23T20:00:00Z".to_owned(),
            request: request("POST", "{\"n\":2}"),
            nearest: Some(request("POST", "{\"n\":1}")),
            differs: vec!["body".to_owned()],
        }];
        let report = ReplayReport { served: 1, differed, not_requested: vec![request("GET", "")] };
        let response = ReportReplayResponse { container: "again".to_owned(), record: None, report };
        assert_snapshot!(rendered(&response, "2026-11-23T20:00:00Z"), @r#"
        1 request answered, 1 not recorded, 1 not made again
        not recorded: POST https://api.example.com/v1/items "{\"n\":2}"
          recorded (body): POST https://api.example.com/v1/items "{\"n\":1}"
        not made: GET https://api.example.com/v1/items
        "#);
    }
}
