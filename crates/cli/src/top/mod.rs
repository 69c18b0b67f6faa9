//! `coracle top`: a live view of containers, their resources and jobs.
//!
//! **Invariant:** it uses public operations, at most once a second, and starts nothing. It asks before every change.

mod keys;
mod model;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use coracle::operations::{ContainerRow, Destroy, ExecCancel, ExecPoll, Jobs, List, StatusOf, StatusResponse};
use coracle::{READ_AT_ONCE, execute_request, query};
use coracle_context::{Failure, Host, Options, approvals};
use coracle_prepare::Process;
use coracle_types::{Handle, JobId};
use futures_util::stream::{self, StreamExt as _};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use self::keys::{beside_keys, keys, leaves};
use self::model::{TopJob, TopModel, TopPane, TopRow};
use super::keyboard::Keyboard;
use super::operation_args::option;
use super::terminal::{RawTerminal, size};
use super::{admin, attach, exit, startup};
use crate::render::{self, View};
use crate::stdio::write_stdout;

/// Enters and leaves the alternate screen, without a cursor. Wide lines are cut at the edge, because only the terminal
/// knows the width of characters.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Minimum time between refreshes, even while keys are typed.
const BETWEEN: Duration = Duration::from_secs(1);

/// A container of a slower engine is shown without its resources.
const STATUS_TIMEOUT: Duration = Duration::from_secs(3);

/// Number of lines of output.
const OUTPUT_LINES: u32 = 100;

/// The subcommand.
pub(super) fn command() -> Command {
    let once = Arg::new("once").long("once").action(ArgAction::SetTrue).help("Print one look, and end");
    let every = option("interval", "SECONDS", "Time between two looks, from 1 [default: 2]");
    let about = "Watch the containers: what they use, what runs in them, and keys to step in";
    Command::new("top").about(about).args([once, every.value_parser(value_parser!(u64).range(1..=3600)), admin::json()])
}

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let json = matches.get_flag("json");
    let once = json || matches.get_flag("once") || !host.stdin_is_terminal || !host.stdout_is_terminal;
    let every = Duration::from_secs(matches.get_one::<u64>("interval").copied().unwrap_or(2));
    let watched = async {
        let process = startup::open_configured(host, options)?;
        let mut top = Top {
            process: &process,
            model: TopModel::default(),
            question: None,
            refreshed: Instant::now(),
            stale: false,
            look_failed: false,
            unfinished: None,
        };
        if !once {
            top.model.is_loading = true;
            return top.watch(every).await;
        }
        top.refresh().await?;
        top.print(json);
        Ok(())
    };
    match Box::pin(watched).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if json => exit::finish(&failure.answer(Some("top"))),
        Err(failure) => {
            render::complain(&failure.answer(Some("top")));
            ExitCode::FAILURE
        }
    }
}

/// What the user confirms before it is done.
#[derive(Clone, Debug)]
struct TopQuestion {
    container: String,
    /// The job that is cancelled; without one the container is removed.
    job: Option<String>,
    /// As in "removing web".
    doing: String,
    done: String,
}

/// The effect of a key.
enum KeyAction {
    Stay,
    Act(TopQuestion),
    Attach(String),
    Quit,
}

struct Top<'a> {
    process: &'a Process,
    model: TopModel,
    question: Option<TopQuestion>,
    refreshed: Instant,
    /// Another container is shown than at the last refresh.
    stale: bool,
    /// The last refresh failed; the message has the reason.
    look_failed: bool,
    /// The action that the user did not wait for.
    unfinished: Option<String>,
}

/// The screen of `top`, until it is dropped.
struct Canvas {
    _raw: RawTerminal,
}

impl Canvas {
    fn open() -> Result<Self, Failure> {
        let raw = RawTerminal::enter().map_err(Failure::internal)?;
        put(ENTER);
        Ok(Self { _raw: raw })
    }

    fn draw(&self, model: &TopModel) {
        let size = size();
        let lines = model.screen(size.cols.into(), size.rows.into(), Timestamp::now());
        let lines: Vec<String> = lines.iter().map(|it| format!("{it}\x1b[K")).collect();
        put(&format!("\x1b[H{}\x1b[J", lines.join("\r\n")));
    }
}

impl Drop for Canvas {
    fn drop(&mut self) {
        put(LEAVE);
    }
}

/// Ignores errors: a closed terminal ends this process anyway.
fn put(text: &str) {
    let _ = write_stdout(text.as_bytes());
}

impl Top<'_> {
    /// Runs until the user leaves. An attached terminal gets the screen meanwhile.
    async fn watch(&mut self, every: Duration) -> Result<(), Failure> {
        loop {
            let Some(container) = self.until_attach(every).await? else {
                if let Some(doing) = &self.unfinished {
                    render::note(&format!("left while {doing}: do it again to finish it"));
                }
                return Ok(());
            };
            let cx = &self.process.context;
            if let Err(failure) = attach::open(cx, &container).await {
                self.model.message = Some(failure.message.clone());
            }
            if cx.call.cancel.is_cancelled() {
                return Ok(());
            }
        }
    }

    /// Draws and handles keys. Returns the container to attach to, or `None` at the end.
    async fn until_attach(&mut self, every: Duration) -> Result<Option<String>, Failure> {
        let canvas = Canvas::open()?;
        let mut keyboard = Keyboard::open().map_err(Failure::internal)?;
        let cancel = self.process.context.call.cancel.clone();
        let mut next = if self.model.is_loading { Instant::now() } else { Instant::now() + every };
        loop {
            canvas.draw(&self.model);
            if self.stale {
                next = next.min(self.refreshed + BETWEEN);
            }
            let typed = tokio::select! {
                typed = keyboard.next() => typed.map_err(Failure::internal)?,
                () = sleep_until(next) => {
                    let Some(typed) = self.refresh_beside_keys(&mut keyboard).await? else { return Ok(None) };
                    next = Instant::now() + every;
                    // An empty input is the end of the input.
                    if typed.is_empty() {
                        continue;
                    }
                    typed
                }
                () = cancel.cancelled() => return Ok(None),
            };
            for key in keys(&typed) {
                match self.on_key(key) {
                    // Only a key after the question answers it.
                    KeyAction::Stay if self.question.is_some() => break,
                    KeyAction::Stay => {}
                    // Keys after the answer were not meant for the next screen.
                    KeyAction::Act(question) => match self.act(question, &canvas, &mut keyboard).await? {
                        true => break,
                        false => return Ok(None),
                    },
                    KeyAction::Attach(container) => return Ok(Some(container)),
                    KeyAction::Quit => return Ok(None),
                }
            }
        }
    }

    fn on_key(&mut self, typed: &[u8]) -> KeyAction {
        (self.model.message, self.look_failed) = (None, false);
        if let Some(question) = self.question.take() {
            return match typed {
                b"y" | b"Y" => KeyAction::Act(question),
                b"" | b"\x03" => KeyAction::Quit,
                _ => KeyAction::Stay,
            };
        }
        match typed {
            // The end of input, `q`, Ctrl-C, and Escape alone.
            b"" | b"q" | b"\x03" | b"\x1b" => return KeyAction::Quit,
            b"\x1b[A" | b"\x1bOA" | b"k" => self.choose(false),
            b"\x1b[B" | b"\x1bOB" | b"j" => self.choose(true),
            b"\r" | b"a" => match self.model.chosen_row() {
                Some(row) if !row.is_container() => self.refuse(),
                Some(row) => return KeyAction::Attach(row.name.clone()),
                None => return KeyAction::Stay,
            },
            b"l" => self.toggle_output(),
            b"c" => self.ask_cancel(),
            b"d" => self.ask_destroy(),
            _ => {}
        }
        KeyAction::Stay
    }

    fn choose(&mut self, down: bool) {
        self.model.choose(down);
        self.stale = true;
    }

    fn toggle_output(&mut self) {
        self.model.pane = match (&self.model.pane, self.model.newest_job()) {
            (TopPane::Jobs, Some(job)) => TopPane::Output { job: job.id.clone(), lines: Vec::new() },
            (TopPane::Jobs, None) => {
                self.model.message = Some("no job runs there, and none has run".to_owned());
                TopPane::Jobs
            }
            (TopPane::Output { .. }, _) => TopPane::Jobs,
        };
        self.stale = true;
    }

    fn request_answer(&mut self, question: TopQuestion, text: String) {
        self.model.message = Some(text);
        self.question = Some(question);
    }

    fn ask_cancel(&mut self) {
        let job = self.model.newest_job().filter(|it| it.running).map(|it| it.id.clone());
        let (Some(row), Some(job)) = (self.model.chosen_row(), job) else {
            self.model.message = Some("no job runs there".to_owned());
            return;
        };
        let name = row.name.clone();
        let (doing, done) = (format!("ending job {job} of {name}"), format!("job {job} is ended"));
        let question = TopQuestion { container: name.clone(), job: Some(job.clone()), doing, done };
        self.request_answer(question, format!("end job {job} of {name}? y/N"));
    }

    /// Sandboxes and others have their own commands.
    fn refuse(&mut self) {
        let kind = self.model.chosen_row().map(|row| row.kind.clone()).unwrap_or_default();
        self.model.message = Some(format!("only containers are attached to and removed here, and this is a {kind}"));
    }

    fn ask_destroy(&mut self) {
        let Some(row) = self.model.chosen_row() else { return };
        if !row.is_container() {
            return self.refuse();
        }
        let name = row.name.clone();
        let (doing, done) = (format!("removing {name}"), format!("{name} is removed"));
        let question = TopQuestion { container: name.clone(), job: None, doing, done };
        self.request_answer(question, format!("remove {name}, with all that only it used? y/N"));
    }

    /// Executes the action, and refreshes. Returns whether the user stays.
    async fn act(&mut self, question: TopQuestion, canvas: &Canvas, keyboard: &mut Keyboard) -> Result<bool, Failure> {
        let TopQuestion { container, job, doing, done } = question;
        self.model.message = Some(format!("{doing}…"));
        canvas.draw(&self.model);
        // A closed terminal, or a signal, lets it finish.
        let leaves = |key: &[u8]| matches!(key, b"q" | b"\x03");
        let work = self.execute(&container, job.as_deref());
        let Some((result, _)) = beside_keys(keyboard, leaves, work).await? else {
            self.unfinished = Some(doing);
            return Ok(false);
        };
        self.model.message = Some(result.map_or_else(|failure| failure.into_inner().message, |()| done));
        Ok(self.refresh_beside_keys(keyboard).await?.is_some())
    }

    /// Refreshes. A failure is a message, because the engine may answer later. Returns the typed keys; `None` if the
    /// user leaves.
    async fn refresh_beside_keys(&mut self, keyboard: &mut Keyboard) -> Result<Option<Vec<u8>>, Failure> {
        let (cancel, has_question) = (self.process.context.call.cancel.clone(), self.question.is_some());
        let looked = beside_keys(keyboard, |key: &[u8]| leaves(key, has_question), self.refresh());
        let looked = cancel.run_until_cancelled(looked).await.transpose()?;
        let Some(Some((looked, typed))) = looked else { return Ok(None) };
        // Without anything to show, the failure is the result.
        if self.model.is_loading {
            if let Err(failure) = looked {
                return Err(failure);
            }
            self.model.is_loading = false;
        }
        let failed = looked.err().map(|failure| failure.into_inner().message);
        // A question stays until it is answered.
        if !has_question && (failed.is_some() || self.look_failed) {
            self.look_failed = failed.is_some();
            self.model.message = failed;
        }
        (self.refreshed, self.stale) = (Instant::now(), false);
        Ok(Some(typed))
    }

    /// Reads everything that is shown.
    async fn refresh(&mut self) -> Result<(), Failure> {
        let listed = Box::pin(query(self.process, List {})).await?;
        self.model.as_of = listed.as_of;
        let statuses = stream::iter(&listed.containers).map(async |row| self.status_of(row).await);
        let statuses: Vec<_> = statuses.buffered(READ_AT_ONCE).collect().await;
        let containers = listed.containers.iter().zip(&statuses);
        let containers = containers.map(|(row, status)| TopRow::from_container(row, status.as_ref()));
        self.model.set_rows(containers.chain(listed.others.iter().map(TopRow::from_other)).collect());
        let state = self.process.context.state()?;
        self.model.waiting = approvals::all(state)?.iter().map(|(_, it)| it.waiting().count()).sum();
        // A busy engine would let each of these wait.
        if self.model.as_of.is_none() {
            self.look_at_jobs().await;
            self.look_at_output().await;
        }
        Ok(())
    }

    /// The resources of a container; empty if it was removed meanwhile.
    async fn status_of(&self, listed: &ContainerRow) -> Option<StatusResponse> {
        if !listed.running || self.model.as_of.is_some() {
            return None;
        }
        let request = StatusOf { container: Handle::parse(&listed.name).ok()?, health_check: None };
        timeout(STATUS_TIMEOUT, Box::pin(query(self.process, request))).await.ok()?.ok()
    }

    async fn look_at_jobs(&mut self) {
        let chosen = self.model.chosen_row().filter(|row| row.running && row.is_container());
        let Some(container) = chosen.and_then(|row| Handle::parse(&row.name).ok()) else {
            self.model.jobs.clear();
            return;
        };
        let listed = Box::pin(query(self.process, Jobs { container: Some(container) })).await;
        let mut jobs: Vec<TopJob> = listed.iter().flat_map(|listed| &listed.jobs).map(TopJob::from_row).collect();
        // Running containers come first, the newest before the others.
        jobs.sort_by(|a, b| (b.running, &b.started_at).cmp(&(a.running, &a.started_at)));
        self.model.jobs = jobs;
    }

    async fn look_at_output(&mut self) {
        let (TopPane::Output { job, .. }, Some(row)) = (&self.model.pane, self.model.chosen_row()) else { return };
        let (Ok(container), Ok(job_id)) = (Handle::parse(&row.name), JobId::parse(job)) else { return };
        let job = job.clone();
        let request = ExecPoll { container, job_id, lines: Some(OUTPUT_LINES) };
        let polled = Box::pin(query(self.process, request)).await;
        let output = polled.map(|polled| polled.output).unwrap_or_default();
        // The newest lines are those that are seen.
        let room = usize::from(size().rows) / 3;
        let lines: Vec<String> = output.lines().map(str::to_owned).collect();
        let lines = lines[lines.len().saturating_sub(room)..].to_vec();
        self.model.pane = TopPane::Output { job, lines };
    }

    /// Cancels a job, or removes the container.
    async fn execute(&self, name: &str, job: Option<&str>) -> Result<(), Failure> {
        let container = Handle::parse(name).map_err(|err| Failure::name("container", err))?;
        let Some(job) = job else {
            let request = Destroy { container, force: None, compose_project: None, discard: None };
            return Box::pin(execute_request(self.process, request, json!({ "container": name }))).await.map(drop);
        };
        let job_id = JobId::parse(job).map_err(|err| Failure::name("job_id", err))?;
        let request = ExecCancel { container, job_id, grace: None };
        Box::pin(execute_request(self.process, request, json!({ "container": name, "job_id": job }))).await.map(drop)
    }

    fn print(&self, json: bool) {
        if json {
            let rows: Vec<Value> = self.model.rows.iter().map(TopRow::to_json).collect();
            return render::print(&json!({ "success": true, "count": rows.len(), "containers": rows }).to_string());
        }
        if self.model.rows.is_empty() {
            return render::print("no containers");
        }
        render::print(&self.model.table(View::of_stdout().width(), Timestamp::now()).join("\n"));
    }
}
