//! The open terminals of a container, for selection by the user.

use std::time::Duration;

use coracle_context::document::{Column, Document, StyledText};
use coracle_context::humanize::ago;
use coracle_context::{Code, Context, Failure};
use coracle_protocol::TerminalInfo;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::render::{self, Layout};

const COLUMNS: [Column; 6] = [
    Column::fixed("TERMINAL"),
    Column::flexible("COMMAND"),
    Column::fixed("OPENED BY"),
    Column::fixed("SIZE"),
    Column::fixed("ATTACHED"),
    Column::fixed("OPENED"),
];

/// The terminals of a container.
pub(super) struct OpenTerminals {
    container: String,
    /// Oldest first.
    open: Vec<TerminalInfo>,
}

impl OpenTerminals {
    pub(super) fn new(container: String, open: Vec<TerminalInfo>) -> Self {
        Self { container, open }
    }

    /// Finds a terminal by its id, or by a unique prefix of it.
    pub(super) fn find(&self, id: &str) -> Result<&TerminalInfo, Failure> {
        let mut named = self.open.iter().filter(|it| it.job.job.starts_with(id));
        match (named.next(), named.next()) {
            (Some(info), None) => Ok(info),
            (found, _) => {
                let (id, container) = (id.escape_debug(), &self.container);
                let message = match found {
                    Some(_) => format!("`{id}` is the beginning of several terminals of `{container}`"),
                    None => format!("no terminal `{id}` is open in `{container}`"),
                };
                let hint = match self.open.is_empty() {
                    true => format!("none is open; `coracle attach {container}` opens one"),
                    false => format!("`coracle attach {container} --list` lists those that are"),
                };
                Err(Failure::new(Code::JobNotFound, message).hint(hint))
            }
        }
    }

    /// The newest terminal that is not an agent's shell: those are joined by their id only.
    pub(super) fn newest(&self) -> Option<&TerminalInfo> {
        self.open.iter().rev().find(|it| !it.job.foreground)
    }

    /// Prints a note that more terminals are open.
    pub(super) fn hint_others(&self, id: &str) {
        let others = self.open.iter().filter(|it| it.job.job != id).count();
        if others > 0 {
            let (are, container) = (if others == 1 { "one more is" } else { "more are" }, &self.container);
            render::note(&format!("{are} open here: `coracle attach {container} --list`"));
        }
    }

    pub(super) fn print(&self, json: bool, cx: &Context) {
        if json {
            return render::print(&self.json().to_string());
        }
        let now = Timestamp::now();
        let none = format!("no terminal is open in {}", self.container);
        let document = Document::rows(&COLUMNS, &self.open, |it| row(it, now), &none);
        let layout = Layout::of_stdout(cx.host.stdout_is_terminal);
        render::print(&layout.document(&document, &[], Duration::ZERO));
    }

    fn json(&self) -> Value {
        let terminals: Vec<Value> = self.open.iter().map(to_json).collect();
        json!({ "success": true, "container": self.container, "count": terminals.len(), "terminals": terminals })
    }
}

fn started(info: &TerminalInfo) -> Timestamp {
    i64::try_from(info.job.began_ms).ok().and_then(|it| Timestamp::from_millisecond(it).ok()).unwrap_or_default()
}

fn to_json(info: &TerminalInfo) -> Value {
    json!({
        "terminal": info.job.job,
        "command": info.job.command,
        "by_agent": info.job.foreground,
        "root": info.job.root,
        "columns": info.size.cols,
        "rows": info.size.rows,
        "attached": info.attached,
        "started_at": started(info).to_string(),
    })
}

fn row(info: &TerminalInfo, now: Timestamp) -> Vec<StyledText> {
    let by = if info.job.foreground { "a running call" } else { "attach" };
    vec![
        info.job.job.clone().into(),
        info.job.command.escape_debug().to_string().into(),
        by.into(),
        format!("{}x{}", info.size.cols, info.size.rows).into(),
        info.attached.to_string().into(),
        ago(&started(info).to_string(), now).into(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn terminal(id: &str) -> TerminalInfo {
        let end = json!({
            "state": "running", "code": null, "signal": null, "stdout": 0, "stderr": 0, "dropped": 0, "left": 0,
            "tree_ended": null, "oom": false, "ms": 0, "kept": true,
        });
        let job = json!({
            "job": id, "pid": 1, "command": "sh", "root": false, "foreground": false, "began_ms": 0, "ended_ms": null,
            "end": end,
        });
        from_value(json!({ "job": job, "size": { "rows": 24, "cols": 80 }, "attached": 0 })).unwrap()
    }

    #[test]
    fn the_first_digits_name_a_terminal_if_no_other_has_them() {
        let open = OpenTerminals::new("web".into(), ["1a2b3c4d", "1a5e6f70"].map(terminal).into());
        assert_eq!(open.find("1a2").unwrap().job.job, "1a2b3c4d");
        let found = ["1a", "ff"].map(|it| open.find(it).unwrap_err().message.clone());
        let several = "`1a` is the beginning of several terminals of `web`".to_owned();
        assert_eq!(found, [several, "no terminal `ff` is open in `web`".to_owned()]);
    }
}
