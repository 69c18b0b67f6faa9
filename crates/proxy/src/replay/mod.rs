//! Answers requests from a record, instead of servers.
//!
//! **Invariant:** a request is answered by a recorded one with the same method, address and body, each once and in the
//! recorded order. Any other request is refused, and nothing is sent outside.

mod line;
mod nearest;
mod report;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use coracle_host::rotating_log::append_whole;
use coracle_types::failure::Failure;
use hyper::Uri;

pub use self::line::ReplayedRequest;
pub(crate) use self::line::{MAX_TEXT, text};
use self::line::{ReplayLine, lines};
use self::nearest::{differences, nearest};
pub use self::report::{ReplayDifference, ReplayReport};
use crate::log::now;
use crate::policy::EgressHost;
use crate::record::{ExchangeRecord, Missing, Placeholders, RecordedExchange};

/// Which record answers.
#[derive(Clone, Debug)]
pub struct ReplaySettings {
    /// The directory of the record.
    pub record: PathBuf,
    /// The file that notes what was answered, for later processes and the report.
    pub log: PathBuf,
}

/// Maximum number of requests that are noted though the record does not have them: a program can make any number.
const MAX_DIFFERING: u64 = 10_000;

/// A record that answers.
#[derive(Debug)]
pub(crate) struct Replay {
    record: ExchangeRecord,
    log: PathBuf,
    exchanges: Vec<RecordedExchange>,
    hosts: BTreeSet<(String, u16)>,
    /// Indices of exchanges that have not answered yet.
    waiting: Mutex<BTreeMap<RequestKey, VecDeque<usize>>>,
    /// The number of requests that were not recorded.
    differing: AtomicU64,
    pub(crate) placeholders: Placeholders,
}

/// What decides whether two requests are the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RequestKey {
    method: String,
    url: String,
    sha256: String,
}

impl RequestKey {
    /// A body that the server did not wait for is not compared, and has no hash here.
    fn of(exchange: &RecordedExchange) -> Self {
        let body = &exchange.request.body;
        let sha256 = if body.missing == Some(Missing::EndedEarly) { String::new() } else { body.sha256.clone() };
        Self { method: exchange.method.clone(), url: exchange.url.clone(), sha256 }
    }
}

/// The answer to a request.
pub(crate) enum Replayed<'a> {
    Served(&'a RecordedExchange),
    NotRecorded { nearest: Option<&'a RecordedExchange>, differs: Vec<String> },
}

impl Replay {
    /// Reads the record, and what an earlier process has answered.
    ///
    /// # Errors
    /// `newer_version`, and errors of the file system.
    pub(crate) fn open(settings: ReplaySettings) -> Result<Self, Failure> {
        let record = ExchangeRecord::at(settings.record);
        let exchanges = record.exchanges()?;
        let hosts = exchanges.iter().filter(|it| it.method != "CONNECT").filter_map(|it| host_of(&it.url)).collect();
        let noted = lines(&settings.log)?;
        let served: BTreeSet<u64> = noted.iter().filter_map(|it| it.served).collect();
        let differing = AtomicU64::new(noted.iter().filter(|it| it.served.is_none()).count() as u64);
        let mut waiting = BTreeMap::<_, VecDeque<_>>::new();
        for (index, exchange) in exchanges.iter().enumerate() {
            if exchange.is_complete() && !served.contains(&exchange.sequence) {
                waiting.entry(RequestKey::of(exchange)).or_default().push_back(index);
            }
        }
        let (waiting, placeholders) = (Mutex::new(waiting), Placeholders::default());
        Ok(Self { record, log: settings.log, exchanges, hosts, waiting, differing, placeholders })
    }

    /// Whether a request to that host was recorded.
    pub(crate) fn has_host(&self, host: &str, port: u16) -> bool {
        self.hosts.contains(&(host.to_owned(), port))
    }

    /// Finds the answer to a request, and notes it. Of several, it is the first one for the same `range`: a program may
    /// request parts at the same time.
    pub(crate) fn answer(&self, request: ReplayedRequest, range: Option<&str>) -> Replayed<'_> {
        let key =
            RequestKey { method: request.method.clone(), url: request.url.clone(), sha256: request.sha256.clone() };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let with_any_body = RequestKey { sha256: String::new(), ..key.clone() };
        let range_of = |at: &usize| self.exchanges[*at].request.header("range");
        let mut first_of = |key| {
            let queue: &mut VecDeque<usize> = waiting.get_mut(key)?;
            let of_range = queue.iter().position(|it| range_of(it) == range).unwrap_or(0);
            queue.remove(of_range)
        };
        let served = first_of(&key).or_else(|| first_of(&with_any_body)).map(|at| &self.exchanges[at]);
        let mut line = ReplayLine {
            time: now(),
            request,
            served: served.map(|it| it.sequence),
            nearest: None,
            differs: Vec::new(),
        };
        let answer = match served {
            Some(exchange) => Replayed::Served(exchange),
            None => {
                let waiting = &*waiting;
                let is_waiting = |exchange: &RecordedExchange| {
                    waiting.get(&RequestKey::of(exchange)).is_some_and(|it| !it.is_empty())
                };
                let nearest = nearest(&self.exchanges, &line.request, is_waiting);
                line.differs = nearest.map(|it| differences(it, &line.request)).unwrap_or_default();
                line.nearest = nearest.map(|it| it.sequence);
                Replayed::NotRecorded { nearest, differs: line.differs.clone() }
            }
        };
        let may_note = line.served.is_some() || self.differing.fetch_add(1, Ordering::Relaxed) < MAX_DIFFERING;
        if let Err(err) = if may_note { self.note(&line) } else { Ok(()) } {
            tracing::error!(%err, "the report of a replay lacks a request");
        }
        answer
    }

    /// Reads the body of an answer.
    pub(crate) fn body(&self, exchange: &RecordedExchange) -> io::Result<Vec<u8>> {
        self.record.body(&exchange.answer.body)
    }

    /// Returns the body of a recorded request as a text, if there is one.
    pub(crate) fn request_text(&self, exchange: &RecordedExchange) -> Option<String> {
        text(self.record.body(&exchange.request.body).ok()?)
    }

    fn note(&self, line: &ReplayLine) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        // A process may have died in the last line.
        bytes.insert(0, b'\n');
        append_whole(&File::options().append(true).create(true).mode(0o600).open(&self.log)?, &bytes)
    }
}

/// The host and port of a recorded address.
fn host_of(url: &str) -> Option<(String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let usual = if uri.scheme_str() == Some("http") { 80 } else { 443 };
    Some((EgressHost::parse(uri.host()?)?.to_string(), uri.port_u16().unwrap_or(usual)))
}
