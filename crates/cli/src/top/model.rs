//! The state of `top`, and its text. Pure.

use coracle::operations::{ContainerRow, JobRow, OtherRow, StatusResponse};
use coracle_context::document::{Column, sanitize};
use coracle_context::humanize::{ago, bytes};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::render::{View, table_lines};

const COLUMNS: [Column; 9] = [
    Column::fixed("  CONTAINER"),
    Column::fixed("KIND").or_left_out(3),
    Column::fixed("ENGINE").or_left_out(4),
    Column::flexible("SESSION").or_left_out(1),
    Column::flexible("STATUS"),
    Column::fixed("CPU %"),
    Column::fixed("MEMORY"),
    Column::fixed("JOBS"),
    Column::fixed("CREATED").or_left_out(2),
];

const JOB_COLUMNS: [Column; 5] = [
    Column::fixed("  JOB"),
    Column::fixed("STATE"),
    Column::flexible("COMMAND"),
    Column::fixed("OUTPUT").or_left_out(2),
    Column::fixed("STARTED").or_left_out(1),
];

/// Replacement of a tab in output, whose width depends on the terminal.
const TAB: &str = "    ";

const KEYS: &str = "up/down choose  enter attach  l output  c cancel job  d destroy  q quit";

/// The kind of containers that users create.
const CONTAINER: &str = "container";

/// A container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopRow {
    pub(super) name: String,
    /// `container`, or another kind such as `sandbox`.
    pub(super) kind: String,
    pub(super) engine: String,
    pub(super) session: String,
    pub(super) status: String,
    pub(super) running: bool,
    pub(super) cpu_percent: Option<f64>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) memory_limit: Option<u64>,
    pub(super) jobs_running: u64,
    pub(super) created: String,
}

/// A job of the selected container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopJob {
    pub(super) id: String,
    pub(super) state: String,
    pub(super) running: bool,
    pub(super) command: String,
    pub(super) total_bytes: u64,
    pub(super) started_at: String,
}

/// The part below the containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum TopPane {
    /// The jobs of the selected container.
    #[default]
    Jobs,
    /// The last output of its newest job.
    Output { job: String, lines: Vec<String> },
}

/// The state of the screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopModel {
    pub(super) rows: Vec<TopRow>,
    pub(super) jobs: Vec<TopJob>,
    /// The name of the selected container, which stays selected when rows move.
    pub(super) chosen: Option<String>,
    pub(super) pane: TopPane,
    /// A question, or the result of the last action.
    pub(super) message: Option<String>,
    /// Nothing was read yet.
    pub(super) is_loading: bool,
    /// Number of refused requests that wait for the user.
    pub(super) waiting: usize,
    /// The time of the rows, if the engine has been busy since.
    pub(super) as_of: Option<String>,
}

impl TopRow {
    /// A row of `list`, with the values of `status`.
    pub(super) fn from_container(listed: &ContainerRow, status: Option<&StatusResponse>) -> Self {
        let usage = status.and_then(|status| status.usage.as_ref());
        Self {
            name: listed.name.clone(),
            engine: listed.engine.to_string(),
            session: listed.session.clone(),
            status: listed.status.clone(),
            running: listed.running,
            kind: CONTAINER.to_owned(),
            cpu_percent: usage.map(|usage| usage.cpu_percent),
            memory_bytes: usage.map(|usage| usage.memory_bytes),
            memory_limit: status.and_then(StatusResponse::memory_limit),
            jobs_running: listed.jobs_running as u64,
            created: listed.created.clone(),
        }
    }

    /// A row of `list` that is not a container.
    pub(super) fn from_other(listed: &OtherRow) -> Self {
        Self {
            name: listed.name.clone(),
            kind: listed.kind.to_owned(),
            engine: listed.engine.to_string(),
            session: listed.session.clone(),
            status: listed.status.clone(),
            running: listed.running,
            created: listed.created.clone(),
            ..Self::default()
        }
    }

    /// Whether users open and remove it by its name.
    pub(super) fn is_container(&self) -> bool {
        self.kind == CONTAINER
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "kind": self.kind,
            "name": self.name, "engine": self.engine, "session": self.session, "status": self.status,
            "running": self.running, "cpu_percent": self.cpu_percent, "memory_bytes": self.memory_bytes,
            "memory_limit": self.memory_limit, "jobs_running": self.jobs_running, "created": self.created,
        })
    }

    fn cells(&self, is_chosen: bool, with_kind: bool, now: Timestamp) -> Vec<String> {
        let memory = match (self.memory_bytes, self.memory_limit) {
            (Some(used), Some(limit)) => format!("{} / {}", bytes(used), bytes(limit)),
            (Some(used), None) => bytes(used),
            _ => String::new(),
        };
        vec![
            format!("{} {}", if is_chosen { '>' } else { ' ' }, one_line(&self.name)),
            if with_kind { one_line(&self.kind) } else { String::new() },
            self.engine.clone(),
            one_line(&self.session),
            one_line(&self.status),
            self.cpu_percent.map(|it| format!("{it:.1}")).unwrap_or_default(),
            memory,
            self.jobs_running.to_string(),
            ago(&self.created, now),
        ]
    }
}

impl TopJob {
    /// A row of `jobs`.
    pub(super) fn from_row(job: &JobRow) -> Self {
        Self {
            id: job.job_id.to_string(),
            state: job.state.to_string(),
            running: job.running,
            command: job.command.clone(),
            total_bytes: job.total_bytes,
            started_at: job.started_at.clone().unwrap_or_default(),
        }
    }

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let (id, output) = (format!("  {}", self.id), bytes(self.total_bytes));
        vec![id, self.state.clone(), one_line(&self.command), output, ago(&self.started_at, now)]
    }
}

impl TopModel {
    /// Sets new rows. The selected container stays selected; if it is gone, the first one is.
    pub(super) fn set_rows(&mut self, rows: Vec<TopRow>) {
        self.rows = rows;
        if self.position().is_none() {
            self.chosen = self.rows.first().map(|it| it.name.clone());
        }
    }

    fn position(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        self.rows.iter().position(|it| it.name == *chosen)
    }

    /// The container that keys act on.
    pub(super) fn chosen_row(&self) -> Option<&TopRow> {
        self.rows.get(self.position()?)
    }

    /// Selects the next one, or the previous one.
    pub(super) fn choose(&mut self, down: bool) {
        let Some(at) = self.position() else { return };
        let next = if down { (at + 1).min(self.rows.len() - 1) } else { at.saturating_sub(1) };
        if next != at {
            self.chosen = Some(self.rows[next].name.clone());
            (self.jobs, self.pane) = (Vec::new(), TopPane::Jobs);
        }
    }

    /// The newest job; running ones come first.
    pub(super) fn newest_job(&self) -> Option<&TopJob> {
        self.jobs.iter().max_by(|a, b| (a.running, &a.started_at).cmp(&(b.running, &b.started_at)))
    }

    /// Only the table, with this width; without a width nothing is cut.
    pub(super) fn table(&self, width: Option<usize>, now: Timestamp) -> Vec<String> {
        let with_kind = self.rows.iter().any(|it| !it.is_container());
        let is_chosen = |row: &TopRow| width.is_some() && Some(&row.name) == self.chosen.as_ref();
        let rows = self.rows.iter().map(|row| row.cells(is_chosen(row), with_kind, now));
        let view = width.map_or_else(View::whole, View::wide);
        let lines = table_lines(&COLUMNS, rows.collect(), view);
        // Nothing is selected there.
        if width.is_some() { lines } else { lines.iter().map(|it| it.trim_start().to_owned()).collect() }
    }

    /// The screen, within its height and width.
    pub(super) fn screen(&self, width: usize, height: usize, now: Timestamp) -> Vec<String> {
        let running = self.rows.iter().filter(|it| it.running).count();
        let containers = if self.rows.len() == 1 { "container" } else { "containers" };
        let of_earlier = self.as_of.as_deref().map(|at| format!("; the engine is busy, this is of {}", ago(at, now)));
        let waiting = match self.waiting {
            0 => String::new(),
            1 => "; a refused request waits: `coracle approvals`".to_owned(),
            count => format!("; {count} refused requests wait: `coracle approvals`"),
        };
        let counted =
            format!("{} {containers}, {running} running{}{waiting}", self.rows.len(), of_earlier.unwrap_or_default());
        let mut lines = vec![format!("coracle top: {}", if self.is_loading { "loading…" } else { &counted })];
        let table = if self.is_loading {
            Vec::new()
        } else if self.rows.is_empty() {
            vec!["no containers; `coracle create` makes one".to_owned()]
        } else {
            self.table(Some(width), now)
        };
        let pane = self.pane(width, now);
        // The part below gets a third if there is not enough space for both.
        let room = height.saturating_sub(4);
        let for_pane = pane.len().min(room.saturating_sub(table.len()).max(room / 3));
        lines.extend(scrolled(table, self.position().unwrap_or(0) + 1, room - for_pane.min(room)));
        lines.push(String::new());
        lines.extend(pane.into_iter().take(for_pane));
        lines.resize(height.saturating_sub(1).max(1), String::new());
        // The message of a failure may contain output of a container.
        lines.push(self.message.as_deref().map_or_else(|| KEYS.to_owned(), one_line));
        lines.truncate(height.max(1));
        lines.iter().map(|it| it.chars().take(width).collect()).collect()
    }

    fn pane(&self, width: usize, now: Timestamp) -> Vec<String> {
        match &self.pane {
            TopPane::Output { job, lines } => {
                let head = format!("  output of job {job}; l closes");
                let lines = lines.iter().map(|it| format!("  {}", sanitize(it).replace('\t', TAB)));
                [head].into_iter().chain(lines).collect()
            }
            TopPane::Jobs if self.jobs.is_empty() => Vec::new(),
            TopPane::Jobs => {
                table_lines(&JOB_COLUMNS, self.jobs.iter().map(|it| it.cells(now)).collect(), View::wide(width))
            }
        }
    }
}

/// A text of a container, on one line and without control characters.
fn one_line(text: &str) -> String {
    sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines of a table around the selected one, without its heading.
fn scrolled(mut table: Vec<String>, chosen: usize, room: usize) -> Vec<String> {
    if table.len() > room && room > 1 {
        let hidden = chosen.saturating_sub(room - 1).min(table.len() - room);
        table.drain(1..=hidden);
    }
    table.truncate(room);
    table
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn model() -> TopModel {
        let row = |name: &str, session: &str, cpu_percent, memory_bytes, jobs_running| TopRow {
            name: name.into(),
            engine: "podman".into(),
            session: session.into(),
            status: "running".into(),
            running: true,
            kind: CONTAINER.into(),
            cpu_percent,
            memory_bytes,
            memory_limit: Some(4 << 30),
            jobs_running,
            created: "2026-11-24T06:00:00Z".into(),
        };
        let mut stopped = row("database-of-the-shop", "default", None, None, 0);
        (stopped.running, stopped.status, stopped.memory_limit) = (false, "exited".into(), None);
        let job = |id: &str, running, command: &str| TopJob {
            id: id.into(),
            state: if running { "running" } else { "exited" }.into(),
            running,
            command: command.into(),
            total_bytes: 1536,
            started_at: "2026-11-24T08:00:00Z".into(),
        };
        TopModel {
            rows: vec![row("web", "claude-3f2a9c1d", Some(12.34), Some(300 << 20), 1), stopped],
            jobs: vec![job("1a2b3c4d", true, "make serve PORT=8080 && echo done"), job("5e6f7a8b", false, "ls")],
            chosen: Some("web".into()),
            ..TopModel::default()
        }
    }

    fn drawn(model: &TopModel, width: usize, height: usize) -> String {
        let lines = model.screen(width, height, "2026-11-24T09:00:00Z".parse().unwrap());
        assert!(lines.len() <= height && lines.iter().all(|it| it.chars().count() <= width), "{lines:#?}");
        lines.iter().map(|it| format!("{}\n", it.trim_end())).collect()
    }

    #[test]
    fn a_screen_of_80_columns_shows_what_matters() {
        assert_snapshot!(drawn(&model(), 80, 10), @r"
        coracle top: 2 containers, 1 running
          CONTAINER             SESSION   STATUS   CPU %  MEMORY           JOBS  CREATED
        > web                   claude-…  running  12.3   300 MiB / 4 GiB  1     3 h ago
          database-of-the-shop  default   exited                           0     3 h ago

          JOB       STATE    COMMAND                            OUTPUT   STARTED
          1a2b3c4d  running  make serve PORT=8080 && echo done  1.5 KiB  1 h ago
          5e6f7a8b  exited   ls                                 1.5 KiB  1 h ago

        up/down choose  enter attach  l output  c cancel job  d destroy  q quit
        ");
    }

    #[test]
    fn the_page_shows_it_as_it_is() {
        let page = include_str!("../../docs/command-line.md");
        assert!(page.contains(&format!("```text\n{}```\n", drawn(&model(), 80, 10))), "{}", drawn(&model(), 80, 10));
    }

    #[test]
    fn a_screen_of_200_columns_shows_all() {
        assert_snapshot!(drawn(&model(), 200, 10), @r"
        coracle top: 2 containers, 1 running
          CONTAINER             ENGINE  SESSION          STATUS   CPU %  MEMORY           JOBS  CREATED
        > web                   podman  claude-3f2a9c1d  running  12.3   300 MiB / 4 GiB  1     3 h ago
          database-of-the-shop  podman  default          exited                           0     3 h ago

          JOB       STATE    COMMAND                            OUTPUT   STARTED
          1a2b3c4d  running  make serve PORT=8080 && echo done  1.5 KiB  1 h ago
          5e6f7a8b  exited   ls                                 1.5 KiB  1 h ago

        up/down choose  enter attach  l output  c cancel job  d destroy  q quit
        ");
    }

    #[test]
    fn it_shows_that_it_loads_and_what_is_of_an_earlier_time() {
        let loading = TopModel { is_loading: true, ..TopModel::default() };
        assert!(drawn(&loading, 80, 10).starts_with("coracle top: loading…\n"), "{}", drawn(&loading, 80, 10));
        assert!(!drawn(&loading, 80, 10).contains("no containers"));
        let busy = TopModel { as_of: Some("2026-11-24T08:57:00Z".into()), ..model() };
        let first = "coracle top: 2 containers, 1 running; the engine is busy, this is of 3 min ago\n";
        assert!(drawn(&busy, 80, 10).starts_with(first), "{}", drawn(&busy, 80, 10));
    }

    #[test]
    fn sandboxes_and_builds_are_named_as_what_they_are() {
        let mut model = model();
        let (name, kind) = ("coracle-sbx-1a2b3c".to_owned(), "sandbox".to_owned());
        model.rows.push(TopRow { name, kind, ..TopRow::default() });
        let screen = drawn(&model, 100, 10);
        assert!(
            screen.contains("coracle-sbx-1a2b3c    sandbox") && screen.contains("web                   container"),
            "{screen}"
        );
    }

    #[test]
    fn no_cell_is_cut_at_the_edge() {
        let mut model = model();
        model.jobs[0].command = "python3 -m pytest ".repeat(20);
        model.jobs[0].started_at = "2026-11-24T08:59:50Z".into();
        for width in 60..200 {
            let screen = drawn(&model, width, 12);
            let job = screen.lines().find(|it| it.contains("1a2b3c4d")).unwrap();
            let heading = screen.lines().find(|it| it.contains("COMMAND")).unwrap();
            let is_whole = !heading.contains("START") || heading.ends_with("STARTED") && job.ends_with("just now");
            assert!(is_whole && job.contains("KiB"), "{width}: {screen}");
        }
    }

    #[test]
    fn the_chosen_container_is_seen_and_stays_chosen() {
        let mut model = model();
        model.rows = (0..40).map(|at| TopRow { name: format!("c{at}"), ..TopRow::default() }).collect();
        model.chosen = None;
        model.set_rows(model.rows.clone());
        assert_eq!(model.chosen.as_deref(), Some("c0"));
        for _ in 0..50 {
            model.choose(true);
        }
        assert!(drawn(&model, 80, 12).contains("> c39"), "{}", drawn(&model, 80, 12));
        model.choose(false);
        model.rows.rotate_left(3);
        assert!(drawn(&model, 80, 12).contains("> c38"));
        model.set_rows(Vec::new());
        assert!(drawn(&model, 80, 12).contains("no containers") && model.chosen_row().is_none());
        for height in 1..6 {
            drawn(&model, 3, height);
        }
    }

    #[test]
    fn the_newest_job_is_one_that_runs() {
        let mut model = model();
        model.jobs[1].started_at = "2026-11-24T08:30:00Z".into();
        assert_eq!(model.newest_job().unwrap().id, "1a2b3c4d");
        model.jobs[0].running = false;
        assert_eq!(model.newest_job().unwrap().id, "5e6f7a8b");
    }

    #[test]
    fn a_terminal_gets_nothing_that_steers_it() {
        let mut model = model();
        model.rows[0].status = "\u{1b}[2Jx".into();
        model.message = Some("\u{1b}]0;x\u{7}two\nlines".to_owned());
        let command = "cd src\n\tmake\u{1b}[2J".into();
        model.jobs = vec![TopJob { id: "1a".into(), command, ..TopJob::default() }];
        let screen = drawn(&model, 80, 10);
        assert!(screen.contains("  cd src make\u{fffd}[2J") && screen.contains("two lines"), "{screen}");
        model.pane = TopPane::Output { job: "1a".into(), lines: vec!["ok\tcoracle\u{1b}[2J".into()] };
        let output = drawn(&model, 80, 10);
        assert!(output.contains("  ok    coracle"), "{output}");
        for drawn in [screen, output] {
            assert!(!drawn.contains(['\u{1b}', '\u{7}', '\t']) && drawn.lines().count() == 10, "{drawn}");
        }
    }
}
