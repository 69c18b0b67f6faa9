//! What all mouths share: a call that runs with its news, and the signals that end it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::context::{Context, Mouth};
use crate::failure::Failure;
use crate::op::{self, Entry, Input};
use crate::ops;
use crate::process::Process;
use crate::progress::{Event, Progress};
use crate::tools::{self, Said, ToolEntry};

/// News that is still on its way when the answer is there may take this long.
const LATE: Duration = Duration::from_millis(200);

/// Runs a call beside its listener, who hears everything before the answer is given.
pub(crate) async fn drive(
    process: &Process,
    input: Input,
    hear: Option<&mut (dyn FnMut(Event) + Send)>,
) -> Map<String, Value> {
    drive_one_of(ops::ALL, process, input, hear).await
}

/// The same for another table of operations.
pub(crate) async fn drive_one_of(
    table: &'static [Entry],
    process: &Process,
    input: Input,
    hear: Option<&mut (dyn FnMut(Event) + Send)>,
) -> Map<String, Value> {
    let work = |process: Process| async move { op::answer(table, &process, input).await };
    beside(process, work, hear).await.unwrap_or_else(|failure| failure.answer(None))
}

/// The same for one of the other tools.
pub(crate) async fn drive_tool(
    process: &Process,
    entry: ToolEntry,
    arguments: Map<String, Value>,
    hear: Option<&mut (dyn FnMut(Event) + Send)>,
) -> Said {
    let work = |process: Process| async move { tools::call(&entry, &process, arguments).await };
    beside(process, work, hear).await.unwrap_or_else(|failure| entry.refused(&failure))
}

/// A panic in the work is a fault of ours, and an answer all the same.
async fn beside<T, F>(
    process: &Process,
    work: impl FnOnce(Process) -> F,
    hear: Option<&mut (dyn FnMut(Event) + Send)>,
) -> Result<T, Failure>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let Some(hear) = hear else { return tokio::spawn(work(process.clone())).await.map_err(Failure::internal) };
    let (progress, mut events) = Progress::channel();
    let mut work = tokio::spawn(work(process.for_call(process.context.call.cancel.clone(), progress)));
    let answer = loop {
        tokio::select! {
            biased;
            Some(event) = events.recv() => hear(event),
            answer = &mut work => break answer.map_err(Failure::internal),
        }
    };
    while let Ok(Some(event)) = tokio::time::timeout(LATE, events.recv()).await {
        hear(event);
    }
    answer
}

/// A second signal so soon is the same one: `timeout` and shells send theirs to a process and then to its group.
const SAME: Duration = Duration::from_secs(1);

/// 128 and the number of the first signal that ended this process's call; 0 as long as there was none.
static ENDED_BY: AtomicU8 = AtomicU8::new(0);

/// The exit code of a call that was withdrawn: 143 after TERM, 129 after HUP, else that of Ctrl-C.
pub(crate) fn interrupted_code() -> u8 {
    match ENDED_BY.load(Ordering::Relaxed) {
        0 => 130,
        code => code,
    }
}

/// Fires at INT, TERM and HUP. Another signal later ends the process: clean-up hangs, and the person knows it.
pub(crate) fn cancel_on_signals(cancel: CancellationToken) -> std::io::Result<()> {
    let (sender, mut heard) = mpsc::unbounded_channel();
    let signals = [(SignalKind::interrupt(), 130_u8), (SignalKind::terminate(), 143), (SignalKind::hangup(), 129)];
    for (kind, code) in signals {
        let (mut signal, sender) = (signal(kind)?, sender.clone());
        tokio::spawn(async move { while signal.recv().await.is_some() && sender.send(code).is_ok() {} });
    }
    tokio::spawn(async move {
        let mut first = None;
        while let Some(code) = heard.recv().await {
            if first.get_or_insert_with(Instant::now).elapsed() > SAME {
                std::process::exit(i32::from(code));
            }
            let _ = ENDED_BY.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
            cancel.cancel();
        }
    });
    Ok(())
}

/// Writes what we log to standard error. Other people's libraries are heard from warnings on, and so are we on the
/// command line, where the person sees progress of its own.
pub(crate) fn log(cx: &Context) {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::prelude::*;

    use crate::config::Level;

    let level = match (cx.config.log.level, cx.call.mouth) {
        (Level::Off, _) => LevelFilter::OFF,
        (Level::Error, _) => LevelFilter::ERROR,
        (Level::Warn, _) | (Level::Info, Mouth::Cli) => LevelFilter::WARN,
        (Level::Info, _) => LevelFilter::INFO,
        (Level::Debug, _) => LevelFilter::DEBUG,
        (Level::Trace, _) => LevelFilter::TRACE,
    };
    let others = level.min(LevelFilter::WARN);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(cx.host.stderr_is_terminal);
    let targets = Targets::new().with_default(others).with_target("coracle", level);
    // A second one in the same process (a test) keeps the first.
    let _ = tracing_subscriber::registry().with(lines.with_filter(targets)).try_init();
}

#[cfg(test)]
mod tests {
    use super::beside;
    use crate::context::Context;
    use crate::process::Process;

    #[tokio::test]
    async fn a_panic_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::of(Context::for_tests(dir.path()));
        let work = |_: Process| async { assert_eq!(1, 2, "as planned") };
        let failure = beside(&process, work, None).await.unwrap_err();
        assert_eq!(failure.code.word(), "internal");
    }
}
