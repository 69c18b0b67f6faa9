//! What a replay has answered.

use std::collections::BTreeSet;
use std::path::Path;

use coracle_types::failure::Failure;
use serde::Serialize;

use super::line::{ReplayedRequest, lines, text};
use crate::record::{ExchangeRecord, RecordedExchange};

/// A request that the record does not have, and the nearest one that it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayDifference {
    /// When it was made.
    pub time: String,
    /// The request.
    pub request: ReplayedRequest,
    /// The nearest recorded one to the same host.
    pub nearest: Option<ReplayedRequest>,
    /// What differs: `method`, `path`, `query`, `body`; `count` if the same request was recorded less often, `answer` if
    /// the record does not have all of its answer.
    pub differs: Vec<String>,
}

/// What a container requested of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayReport {
    /// The number of requests that the record answered.
    pub served: u64,
    /// Requests that it could not answer.
    pub differed: Vec<ReplayDifference>,
    /// Recorded requests that were not made again.
    pub not_requested: Vec<ReplayedRequest>,
}

impl ReplayReport {
    /// Reads the report of a replay: of the record in that directory, with that log.
    ///
    /// # Errors
    /// `newer_version`, and errors of the file system.
    pub fn read(record: &Path, log: &Path) -> Result<Self, Failure> {
        let record = ExchangeRecord::at(record.to_owned());
        let (exchanges, lines) = (record.exchanges()?, lines(log)?);
        let served: BTreeSet<u64> = lines.iter().filter_map(|it| it.served).collect();
        let recorded = |exchange: &RecordedExchange| recorded_request(&record, exchange);
        let differed = lines.into_iter().filter(|it| it.served.is_none()).map(|line| {
            let nearest = exchanges.iter().find(|it| Some(it.sequence) == line.nearest).map(&recorded);
            ReplayDifference { time: line.time, request: line.request, nearest, differs: line.differs }
        });
        let differed = differed.collect();
        let unserved = exchanges.iter().filter(|it| it.is_complete() && !served.contains(&it.sequence));
        Ok(Self { served: served.len() as u64, differed, not_requested: unserved.map(recorded).collect() })
    }
}

/// A request of a record.
fn recorded_request(record: &ExchangeRecord, exchange: &RecordedExchange) -> ReplayedRequest {
    let body = &exchange.request.body;
    ReplayedRequest {
        method: exchange.method.clone(),
        url: exchange.url.clone(),
        sha256: body.sha256.clone(),
        bytes: body.bytes,
        text: record.body(body).ok().and_then(text),
    }
}
