//! One shell: a command on a terminal in a container, and its output.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coracle_client::{InteractiveCommand, Link, start_interactive};
use coracle_lifecycle::Record;
use coracle_types::{Chunk, ContainerName, Exec, ExecOutput, Exit, RecordId, Redactor, TerminalSize};
use regex::Regex;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::DropGuard;

use super::keys;
use super::output::{TerminalOutput, shortened};
use super::terminal::Terminal;

/// How long the program may take to read the input.
const TYPING: Duration = Duration::from_secs(5);

/// Programs distinguish the key `escape` from the start of another key by the time after it.
const AFTER_ESCAPE: Duration = Duration::from_millis(100);

/// How long a shell prints nothing before it counts as silent: after its start, after input, after a complete line, and
/// within a line.
const STARTING: Duration = Duration::from_secs(5);
const ANSWERING: Duration = Duration::from_secs(1);
const WORKING: Duration = Duration::from_secs(1);
const PROMPTING: Duration = Duration::from_millis(150);

/// A shell in a container, for the lifetime of its session.
pub struct Shell {
    pub container: ContainerName,
    pub record_id: RecordId,
    redactor: Redactor,
    shared: Arc<SharedTerminal>,
    stop: Mutex<Option<DropGuard>>,
}

/// What the reader of the terminal shares with the calls.
struct SharedTerminal {
    state: Mutex<State>,
    input: AsyncMutex<DuplexStream>,
    /// Notified of each output, and of the end.
    changes: watch::Sender<()>,
}

struct State {
    terminal: Terminal,
    end: Option<ShellEnd>,
}

/// How a shell ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShellEnd {
    /// Its command ended.
    Exited {
        exit: Exit,
        signal: Option<i32>,
        /// Whether its whole process tree ended; only if it was closed.
        tree_ended: Option<bool>,
    },
    /// Its container was removed, or the connection to it was lost.
    Lost(String),
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, schemars::JsonSchema, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitEnd {
    /// Nothing more was printed for a moment.
    Quiet,
    /// The pattern was printed.
    Match,
    /// The time was over.
    Timeout,
    /// The command ended.
    Ended,
}

/// A wait for silence.
#[derive(Debug)]
pub struct Silence {
    changes: watch::Receiver<()>,
    /// How long to wait for the first output.
    first: Duration,
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").field("container", &self.container).finish_non_exhaustive()
    }
}

impl Shell {
    /// Starts a command on a terminal, and reads its output.
    pub fn start(record: &Record, link: &Link, mut exec: Exec, size: TerminalSize, redactor: Redactor) -> Self {
        let (_, sizes) = watch::channel(size);
        exec.terminal = Some(sizes);
        let InteractiveCommand { input, output, end, stop, .. } = start_interactive(link, exec);
        let state = State { terminal: Terminal::new(size), end: None };
        let (changes, _) = watch::channel(());
        let shared = Arc::new(SharedTerminal { state: Mutex::new(state), input: AsyncMutex::new(input), changes });
        tokio::spawn(follow(shared.clone(), output, end, redactor.clone()));
        let (container, record_id) = (record.name.clone(), record.record_id.clone());
        Self { container, record_id, redactor, shared, stop: Mutex::new(Some(stop)) }
    }

    /// Returns how it ended, or `None` while it runs.
    pub fn end(&self) -> Option<ShellEnd> {
        self.shared.state().end.clone()
    }

    /// Types a text, then keys. Returns whether the program read them.
    ///
    /// # Errors
    /// The first unknown key.
    pub async fn send(&self, text: &str, keys: &[String]) -> Result<bool, String> {
        let is_application = self.shared.state().terminal.has_application_keys();
        let bytes_of = |key: &String| keys::bytes_of(key, is_application).ok_or_else(|| key.clone());
        let keys = keys.iter().map(bytes_of).collect::<Result<Vec<_>, _>>()?;
        // A terminal also sends carriage returns for the line ends of pasted text.
        let mut bytes = text.replace("\r\n", "\r").replace('\n', "\r").into_bytes();
        for key in keys {
            if bytes.ends_with(b"\x1b") {
                if !self.shared.put(&bytes).await {
                    return Ok(false);
                }
                bytes.clear();
                sleep(AFTER_ESCAPE).await;
            }
            bytes.extend(key);
        }
        Ok(self.shared.put(&bytes).await)
    }

    /// A wait for the output after the start.
    pub fn first_output(&self) -> Silence {
        let mut changes = self.shared.changes.subscribe();
        if !self.shared.state().terminal.unread().text.is_empty() {
            changes.mark_changed();
        }
        Silence { changes, first: STARTING }
    }

    /// A wait for the output after input.
    pub fn next_output(&self) -> Silence {
        Silence { changes: self.shared.changes.subscribe(), first: ANSWERING }
    }

    /// Waits until the shell is silent.
    pub async fn wait_until_quiet(&self, silence: Silence, until: Instant) -> WaitEnd {
        let Silence { mut changes, first: mut pause } = silence;
        loop {
            if self.end().is_some() {
                return WaitEnd::Ended;
            }
            let silent = Instant::now() + pause;
            if timeout_at(silent.min(until), changes.changed()).await.is_err() {
                return if silent <= until { WaitEnd::Quiet } else { WaitEnd::Timeout };
            }
            // An incomplete line is most likely a prompt; after a complete one more may follow.
            pause = if self.shared.state().terminal.is_at_line_start() { WORKING } else { PROMPTING };
        }
    }

    /// Waits until the unread output matches. Text up to the match counts as read.
    pub async fn wait_for(&self, pattern: &Regex, until: Instant) -> (WaitEnd, TerminalOutput) {
        let mut changes = self.shared.changes.subscribe();
        loop {
            let _ = changes.borrow_and_update();
            let ended = self.end().is_some();
            if let Some(output) = self.matched(pattern) {
                return (WaitEnd::Match, output);
            }
            if ended {
                return (WaitEnd::Ended, self.read(false));
            }
            if timeout_at(until, changes.changed()).await.is_err() {
                return (WaitEnd::Timeout, self.peek());
            }
        }
    }

    fn matched(&self, pattern: &Regex) -> Option<TerminalOutput> {
        let mut state = self.shared.state();
        if state.terminal.is_full_screen() {
            let screen = self.redactor.clean(&state.terminal.screen());
            let found = pattern.find(&screen)?.as_str().to_owned();
            let output = self.output(&state, "", 0, true);
            return Some(TerminalOutput { matched: Some(found), ..output });
        }
        let unread = state.terminal.unread();
        let found = pattern.find(&unread.text)?;
        let (matched, end) = (self.redactor.clean(found.as_str()), found.end());
        state.terminal.transcript.mark_read(&unread, end);
        let output = self.output(&state, &unread.text[..end], unread.lost, false);
        Some(TerminalOutput { matched: Some(matched), ..output })
    }

    /// Reads the output since the last reading.
    pub fn read(&self, screen: bool) -> TerminalOutput {
        let mut state = self.shared.state();
        let unread = state.terminal.unread();
        state.terminal.transcript.mark_read(&unread, unread.text.len());
        self.output(&state, &unread.text, unread.lost, screen)
    }

    /// Returns the unread output without marking it as read.
    fn peek(&self) -> TerminalOutput {
        let state = self.shared.state();
        let unread = state.terminal.unread();
        self.output(&state, &unread.text, unread.lost, false)
    }

    fn output(&self, state: &State, text: &str, lost: u64, screen: bool) -> TerminalOutput {
        let terminal = &state.terminal;
        let (text, left_out) = shortened(&self.redactor.clean(text));
        let shows = screen || terminal.is_full_screen();
        TerminalOutput {
            text,
            omitted: lost + left_out,
            matched: None,
            screen: shows.then(|| self.redactor.clean(&terminal.screen())),
            cursor: shows.then(|| terminal.cursor()),
            end: state.end.clone(),
        }
    }

    /// Ends its process tree, and waits for that.
    pub async fn close(&self, within: Duration) {
        let mut changes = self.shared.changes.subscribe();
        drop(self.stop.lock().unwrap_or_else(PoisonError::into_inner).take());
        let ended = async { while self.end().is_none() && changes.changed().await.is_ok() {} };
        let _ = timeout(within, ended).await;
    }
}

impl SharedTerminal {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn put(&self, bytes: &[u8]) -> bool {
        let put = async { self.input.lock().await.write_all(bytes).await };
        matches!(timeout(TYPING, put).await, Ok(Ok(())))
    }
}

/// Draws the command's output on the terminal until the command ends.
async fn follow(
    shared: Arc<SharedTerminal>,
    mut output: mpsc::Receiver<Chunk>,
    end: JoinHandle<coracle_types::Result<ExecOutput>>,
    redactor: Redactor,
) {
    let mut sieve = redactor.sieve();
    while let Some(chunk) = output.recv().await {
        let replies = shared.state().terminal.feed(&sieve.push(&chunk.bytes));
        shared.changes.send_replace(());
        if !replies.is_empty() {
            let shared = shared.clone();
            // Sent separately, so that a program that does not read its input can still print.
            tokio::spawn(async move { shared.put(&replies).await });
        }
    }
    let end = match end.await {
        Ok(Ok(it)) => ShellEnd::Exited { exit: it.exit, signal: it.signal, tree_ended: it.tree_ended },
        Ok(Err(err)) => ShellEnd::Lost(err.to_string()),
        Err(err) => ShellEnd::Lost(err.to_string()),
    };
    let mut state = shared.state();
    state.terminal.feed(&sieve.end());
    state.end = Some(end);
    drop(state);
    shared.changes.send_replace(());
}
