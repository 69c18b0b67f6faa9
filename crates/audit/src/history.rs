//! Reads the trail: each act with its result.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::log::{MAX_LINE, files, private};

/// Selects acts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFilter {
    /// Announced at that time or later.
    pub since: Option<Timestamp>,
    /// Of that session.
    pub session: Option<String>,
    /// Of that operation.
    pub operation: Option<String>,
    /// On that container.
    pub container: Option<String>,
    /// The newest ones, that many.
    pub newest: usize,
}

/// An act: its intent, and its result.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AuditedAct {
    /// When it was announced.
    pub time: Option<String>,
    /// The session that called.
    pub session: Option<String>,
    /// The front end that it came by.
    pub by: Option<String>,
    /// The operation.
    pub operation: Option<String>,
    /// The container, by name.
    pub container: Option<String>,
    /// `person` for an exception that the user granted.
    pub allowed_by: Option<String>,
    /// Its arguments, without values.
    pub args: Value,
    /// `unfinished` without a result: it runs, or its process died.
    pub outcome: &'static str,
    /// The code of its failure.
    pub code: Option<String>,
    /// The rule that denied it.
    pub rule: Option<String>,
    /// The exit code of its command.
    pub exit_code: Option<i64>,
    /// Its duration.
    pub duration_ms: Option<u64>,
}

/// Acts of the trail, oldest first.
#[derive(Debug, Default)]
pub struct AuditedActs {
    /// The newest acts that match the filter.
    pub acts: Vec<AuditedAct>,
    /// The number of older acts that match.
    pub older: usize,
}

impl AuditedActs {
    /// Reads all files, oldest first, under the writers' lock. Invalid lines are skipped, since
    /// [`verify`](super::verify()) checks the chain.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn read(dir: &Path, filter: &LogFilter) -> io::Result<Self> {
        let lock = private().write(true).open(dir.join("lock"))?;
        lock.lock_shared()?;
        let mut reading =
            HistoryReader { filter, acts: VecDeque::new(), open: HashMap::new(), unnamed: HashMap::new(), gone: 0 };
        for file in files(dir)? {
            let mut lines = BufReader::new(File::open(file)?);
            loop {
                let mut bytes = Vec::new();
                if (&mut lines).take(2 * MAX_LINE as u64).read_until(b'\n', &mut bytes)? == 0 {
                    break;
                }
                if let Ok(Value::Object(line)) = serde_json::from_slice(&bytes) {
                    reading.add(&line);
                }
            }
        }
        Ok(Self { older: reading.gone, acts: reading.acts.into() })
    }
}

impl AuditedAct {
    /// Adds its result.
    fn end(&mut self, line: &Map<String, Value>) {
        self.outcome = outcome(line);
        self.container = text(line, "container").or_else(|| self.container.take());
        (self.code, self.rule) = (text(line, "code"), text(line, "rule"));
        self.exit_code = line.get("exit").and_then(Value::as_i64);
        self.duration_ms = line.get("ms").and_then(Value::as_u64);
    }
}

struct HistoryReader<'a> {
    filter: &'a LogFilter,
    acts: VecDeque<AuditedAct>,
    /// Acts without a result so far, by their index among those that match.
    open: HashMap<String, usize>,
    /// Acts whose container gets its name only from the result.
    unnamed: HashMap<String, AuditedAct>,
    /// Number of matching acts that were dropped for newer ones.
    gone: usize,
}

impl HistoryReader<'_> {
    fn add(&mut self, line: &Map<String, Value>) {
        let id = text(line, "op_id").unwrap_or_default();
        match text(line, "phase").as_deref().unwrap_or_default() {
            "intent" if self.filter.fits(line) => self.open(id, announced(line)),
            "intent" if self.filter.may_fit(line) => drop(self.unnamed.insert(id, announced(line))),
            "result" => {
                if let Some(act) = self.unnamed.remove(&id).filter(|_| self.filter.is_container(line)) {
                    self.open(id.clone(), act);
                }
                let act = self.open.remove(&id).and_then(|at| at.checked_sub(self.gone));
                if let Some(act) = act.and_then(|at| self.acts.get_mut(at)) {
                    act.end(line);
                }
            }
            // An act that has only one line.
            "whole" if self.filter.fits(line) => {
                let mut act = announced(line);
                act.end(line);
                self.open(id.clone(), act);
                self.open.remove(&id);
            }
            _ => {}
        }
    }

    fn open(&mut self, id: String, act: AuditedAct) {
        self.open.insert(id, self.gone + self.acts.len());
        self.acts.push_back(act);
        if self.acts.len() > self.filter.newest {
            self.acts.pop_front();
            self.gone += 1;
        }
    }
}

impl LogFilter {
    fn fits(&self, line: &Map<String, Value>) -> bool {
        self.is_container(line) && self.is_act(line)
    }

    /// Whether it is for a container without a name so far.
    fn may_fit(&self, line: &Map<String, Value>) -> bool {
        line.get("container").is_none_or(Value::is_null) && self.is_act(line)
    }

    fn is_container(&self, line: &Map<String, Value>) -> bool {
        is(line, "container", self.container.as_deref())
    }

    fn is_act(&self, line: &Map<String, Value>) -> bool {
        let time = line.get("ts").and_then(Value::as_str).and_then(|it| it.parse::<Timestamp>().ok());
        let late = self.since.is_none_or(|since| time.is_some_and(|it| it >= since));
        late && is(line, "op", self.operation.as_deref()) && is(line, "session", self.session.as_deref())
    }
}

fn is(line: &Map<String, Value>, key: &str, wanted: Option<&str>) -> bool {
    wanted.is_none() || line.get(key).and_then(Value::as_str) == wanted
}

fn announced(line: &Map<String, Value>) -> AuditedAct {
    let text = |key: &str| text(line, key);
    AuditedAct {
        time: text("ts"),
        session: text("session"),
        by: text("mouth"),
        operation: text("op"),
        container: text("container"),
        allowed_by: text("allowed_by"),
        args: line.get("args").cloned().unwrap_or_default(),
        outcome: "unfinished",
        ..AuditedAct::default()
    }
}

fn text(line: &Map<String, Value>, key: &str) -> Option<String> {
    line.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn outcome(line: &Map<String, Value>) -> &'static str {
    match (line.get("decision").and_then(Value::as_str), line.get("code").and_then(Value::as_str)) {
        (Some("denied"), _) => "denied",
        (_, Some("cancelled")) => "cancelled",
        (_, Some(_)) => "failed",
        (_, None) => "done",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Map, Value, json};

    use super::{AuditedAct, AuditedActs, LogFilter};
    use crate::log::append;

    fn write(dir: &Path, line: Value) {
        let Value::Object(line) = line else { panic!("an object") };
        append(dir, line, false).unwrap();
    }

    fn act(dir: &Path, id: &str, (op, container): (&str, &str), result: Option<Value>) {
        let fields = json!({ "op_id": id, "op": op, "container": container, "session": "s", "mouth": "cli" });
        let with = |more: Value| {
            let mut line: Map<String, Value> = fields.as_object().cloned().unwrap();
            line.extend(more.as_object().cloned().unwrap());
            Value::Object(line)
        };
        write(dir, with(json!({ "phase": "intent" })));
        if let Some(result) = result {
            let mut line = with(json!({ "phase": "result", "decision": "allowed", "ms": 5 }));
            line.as_object_mut().unwrap().extend(result.as_object().cloned().unwrap());
            write(dir, line);
        }
    }

    fn read(dir: &Path, filter: &LogFilter) -> Vec<String> {
        let shown = |it: AuditedAct| {
            format!("{} {} {}", it.operation.unwrap_or_default(), it.container.unwrap_or_default(), it.outcome)
        };
        AuditedActs::read(dir, filter).unwrap().acts.into_iter().map(shown).collect()
    }

    #[test]
    fn an_act_is_listed_with_its_result() {
        let dir = tempfile::tempdir().unwrap();
        act(dir.path(), "1", ("create", "web"), Some(json!({})));
        act(dir.path(), "2", ("exec", "web"), Some(json!({ "code": "not_running" })));
        act(dir.path(), "3", ("exec", "db"), Some(json!({ "code": "policy_denied", "decision": "denied" })));
        act(dir.path(), "4", ("exec", "web"), None);
        let all = LogFilter { newest: 10, ..LogFilter::default() };
        let expected = ["create web done", "exec web failed", "exec db denied", "exec web unfinished"];
        assert_eq!(read(dir.path(), &all), expected);
        let of_web = LogFilter { container: Some("web".into()), operation: Some("exec".into()), ..all.clone() };
        assert_eq!(read(dir.path(), &of_web), ["exec web failed", "exec web unfinished"]);
        let of_another = LogFilter { session: Some("another".into()), ..all.clone() };
        assert!(read(dir.path(), &of_another).is_empty());
        let newest = LogFilter { newest: 2, ..all.clone() };
        assert_eq!(read(dir.path(), &newest), expected[2..]);
        assert_eq!(AuditedActs::read(dir.path(), &newest).unwrap().older, 2);
        let later = LogFilter { since: Some(jiff::Timestamp::MAX), ..all };
        assert!(read(dir.path(), &later).is_empty());
    }

    #[test]
    fn an_act_of_one_line_is_done() {
        let dir = tempfile::tempdir().unwrap();
        act(dir.path(), "1", ("exec", "web"), None);
        let line = json!({ "op_id": "2", "op": "request", "container": "web", "phase": "whole", "ms": 5 });
        write(dir.path(), line);
        let all = LogFilter { newest: 10, ..LogFilter::default() };
        assert_eq!(read(dir.path(), &all), ["exec web unfinished", "request web done"]);
        let of_another = LogFilter { container: Some("db".into()), ..all };
        assert!(read(dir.path(), &of_another).is_empty());
    }

    #[test]
    fn a_result_finds_its_act_among_others() {
        let dir = tempfile::tempdir().unwrap();
        act(dir.path(), "1", ("create", "web"), None);
        for id in ["2", "3", "4"] {
            act(dir.path(), id, ("exec", id), Some(json!({})));
        }
        write(dir.path(), json!({ "op_id": "1", "phase": "result", "decision": "allowed" }));
        let two = LogFilter { newest: 2, ..LogFilter::default() };
        assert_eq!(read(dir.path(), &two), ["exec 3 done", "exec 4 done"]);
        let all = LogFilter { newest: 9, ..LogFilter::default() };
        assert_eq!(read(dir.path(), &all)[0], "create web done");
    }
}
