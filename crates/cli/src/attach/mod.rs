//! `coracle attach`: a terminal that stays in the container. A user can leave it and return, or join an agent's.

mod keys;
mod open_terminals;
mod screen;

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use coracle::Effect;
use coracle::person_terminal::{enter, guest_link, may_join_root};
use coracle_client::{AttachOptions, Link, TerminalOutputPiece};
use coracle_context::{Code, Context, Failure, Host, Options, audit};
use coracle_lifecycle::{ManagedContainer, OnTerminal, exec_on_terminal};
use coracle_protocol::{ExecStatus, TerminalInfo};
use coracle_types::{Handle, JobId};
use serde_json::{Map, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use self::open_terminals::OpenTerminals;
use self::screen::TerminalScreen;
use super::keyboard::Keyboard;
use super::operation_args::COMMAND;
use super::terminal::{RawTerminal, follow_size, size};
use super::{admin, exit, startup};
use crate::render;
use crate::stdio::write_stdout;

/// Bytes of earlier output that the screen is redrawn from.
const REPLAY: u64 = 256 << 10;

/// Capacity of the channels for input and output.
const PIECES: usize = 8;

/// The keys that detach.
const LEAVE: &str = "Ctrl-P Ctrl-Q";

/// The subcommand.
pub(super) fn command() -> Command {
    let name = Arg::new("name").value_name("CONTAINER").required(true).help("Its name, or an id of at least 12 digits");
    let session = Arg::new("terminal").value_name("TERMINAL").help("Its id [default: yours, else a new one]");
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let words = Arg::new(COMMAND).value_name("WORDS").last(true).num_args(1..);
    Command::new("attach").about("Open a persistent terminal, or reattach to one").args([
        name,
        session,
        flag("new", "Open another one").conflicts_with("terminal"),
        flag("list", "List the terminals that are open, agents' shells too").conflicts_with_all(["new", "terminal"]),
        flag("as-root", "As root inside").conflicts_with("terminal"),
        admin::json().requires("list"),
        words.help("A program and its arguments in a new terminal, instead of the shell").conflicts_with("terminal"),
    ])
}

/// The requested terminal.
#[derive(Default)]
struct AttachCall {
    container: String,
    terminal: Option<String>,
    new: bool,
    as_root: bool,
    words: Vec<String>,
}

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let json = matches.get_flag("json");
    match Box::pin(work(matches, host, options)).await {
        Ok(code) => code,
        Err(failure) if json => exit::finish(&failure.answer(Some("attach"))),
        Err(failure) => exit::failed(&failure),
    }
}

async fn work(matches: &ArgMatches, host: Host, options: &Options) -> Result<ExitCode, Failure> {
    let list = matches.get_flag("list");
    if !list && !host.stdin_is_terminal {
        let failure = Failure::new(Code::InvalidInput, "`attach` needs a terminal");
        return Err(failure.hint("use `coracle exec` in a script; `coracle attach web --list` lists terminals"));
    }
    let attach = AttachCall {
        container: matches.get_one::<String>("name").cloned().unwrap_or_default(),
        terminal: matches.get_one::<String>("terminal").cloned(),
        words: matches.get_many::<String>(COMMAND).into_iter().flatten().cloned().collect(),
        new: matches.get_flag("new") || matches.contains_id(COMMAND) || matches.get_flag("as-root"),
        as_root: matches.get_flag("as-root"),
    };
    let cx = startup::open_configured(host, options)?.context;
    if !list {
        return attach.run(&cx).await;
    }
    let (_, _, terminals) = attach.reach(&cx).await?;
    terminals.print(matches.get_flag("json"), &cx);
    Ok(ExitCode::SUCCESS)
}

/// Opens the user's terminal in a container: an existing one, or a new one.
pub(super) async fn open(cx: &Context, container: &str) -> Result<ExitCode, Failure> {
    let attach = AttachCall { container: container.to_owned(), ..AttachCall::default() };
    Box::pin(attach.run(cx)).await
}

impl AttachCall {
    /// The container, its guest, and its open terminals.
    async fn reach(&self, cx: &Context) -> Result<(ManagedContainer, Link, OpenTerminals), Failure> {
        let handle = Handle::parse(&self.container).map_err(|err| Failure::name("container", err))?;
        let mut found = enter(cx, &handle, self.as_root).await?;
        let link = guest_link(cx, &mut found).await?;
        let terminals = OpenTerminals::new(found.record.name.to_string(), link.terminals().await?);
        Ok((found, link, terminals))
    }

    async fn run(&self, cx: &Context) -> Result<ExitCode, Failure> {
        let (found, link, terminals) = self.reach(cx).await?;
        let open = match &self.terminal {
            Some(id) => Some(terminals.find(id)?),
            None if self.new => None,
            None => terminals.newest(),
        };
        if let Some(info) = open.filter(|it| it.job.root) {
            may_join_root(cx, &found.record, &info.job.job)?;
        }
        let args = json!({
            "container": self.container, "terminal": open.map(|it| &it.job.job), "as_root": self.as_root,
            "command": self.words,
        });
        let intent = audit::intent(cx, "attach", Effect::Mutating, args.as_object().unwrap_or(&Map::new())).await?;
        let done = Box::pin(self.on_terminal(cx, &found, &link, open, &terminals)).await;
        intent.finish_program(done.as_ref().map(|end| end.as_ref().and_then(|it| it.code))).await;
        match done? {
            Some(end) => Ok(ExitCode::from(end.code.unwrap_or(1))),
            None => {
                render::note(&format!("detached; `coracle attach {}` returns to it", self.container));
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    async fn on_terminal(
        &self,
        cx: &Context,
        found: &ManagedContainer,
        link: &Link,
        open: Option<&TerminalInfo>,
        terminals: &OpenTerminals,
    ) -> Result<Option<ExecStatus>, Failure> {
        let (sender, sizes) = watch::channel(size());
        let (id, printed) = match open {
            Some(info) => (info.job.job.clone(), info.job.end.stdout),
            None => (self.start(cx, found, link, sizes.clone()).await?, 0),
        };
        let kind = if open.is_some() { "back in" } else { "new" };
        render::note(&format!("{kind} terminal {id} of {}: {LEAVE} detaches, `exit` ends it", found.record.name));
        terminals.hint_others(&id);
        let job = JobId::parse(&id).map_err(Failure::internal)?;
        let windows = signal(SignalKind::window_change()).map_err(Failure::internal)?;
        let raw = RawTerminal::enter().map_err(Failure::internal)?;
        let ((keys, typed), (output, pieces)) = (mpsc::channel(PIECES), mpsc::channel(PIECES));
        let mut keyboard = Keyboard::open().map_err(Failure::internal)?;
        let options = AttachOptions { job, sizes: sizes.clone(), replay: REPLAY, keys: typed, output };
        let mut screen = TerminalScreen::new(size());
        // The channel closes when the input ends.
        let typing = async {
            keys::pass_on(&mut keyboard, keys).await;
            std::future::pending::<std::convert::Infallible>().await
        };
        let done = tokio::select! {
            (end, ()) = async { tokio::join!(link.attach(options), show(&mut screen, pieces, printed, sizes)) } => end,
            never = typing => match never {},
            never = follow_size(windows, sender) => match never {},
            () = cx.call.cancel.cancelled() => Ok(None),
        };
        // The program inside keeps its terminal modes; this terminal is reset for the user.
        if !matches!(done, Ok(Some(_))) {
            put(&screen.reset());
        }
        drop(raw);
        Ok(done?)
    }

    /// Starts the shell or the command on a terminal without a client. Returns its id.
    async fn start(
        &self,
        cx: &Context,
        found: &ManagedContainer,
        link: &Link,
        sizes: watch::Receiver<coracle_types::TerminalSize>,
    ) -> Result<String, Failure> {
        let kind = &cx.host.terminal_kind;
        let on = OnTerminal { as_root: self.as_root, words: &self.words, workdir: None, kind: Some(kind) };
        let mut exec = exec_on_terminal(found, &on)?;
        exec.env.insert("TERM".into(), kind.clone());
        exec.terminal = Some(sizes);
        let limit = cx.config.jobs.max_running;
        Ok(link.start_on_terminal(exec, Some(limit)).await?.job)
    }
}

/// Redraws the screen, then passes output on.
async fn show(
    screen: &mut TerminalScreen,
    mut pieces: mpsc::Receiver<TerminalOutputPiece>,
    printed: u64,
    sizes: watch::Receiver<coracle_types::TerminalSize>,
) {
    let mut replayed = printed == 0;
    while let Some(TerminalOutputPiece { offset, bytes, .. }) = pieces.recv().await {
        screen.resize(*sizes.borrow());
        screen.take(&bytes);
        if replayed {
            put(&bytes);
        } else if offset + bytes.len() as u64 >= printed {
            replayed = true;
            put(&screen.repaint());
        }
    }
}

/// Ignores errors: a closed terminal ends this process anyway.
fn put(bytes: &[u8]) {
    let _ = write_stdout(bytes);
}
