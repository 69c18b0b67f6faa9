//! Shows the progress of a call on standard error: one changing line on a terminal, a line for each step in a pipe.

use std::time::{Duration, Instant};

use coracle_context::document::sanitize;
use coracle_context::{Context, Event, Host, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::render;

/// Interval of lines with an amount in a pipe.
const AMOUNT_EVERY: Duration = Duration::from_secs(5);

/// Shows progress to the user.
#[derive(Debug)]
pub(super) struct Reporter {
    /// On a terminal only.
    line: Option<ProgressBar>,
    terminal: bool,
    /// The last line in a pipe, which is not repeated.
    last: String,
    amount_shown_at: Option<Instant>,
}

impl Reporter {
    pub(super) fn new(host: &Host) -> Self {
        let terminal = host.stderr_is_terminal;
        let line = terminal.then(|| {
            // Shortened to the width of the terminal, so that it stays on one line.
            let style = ProgressStyle::with_template("{spinner} {elapsed:.dim} {wide_msg}");
            let line = ProgressBar::new_spinner();
            line.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            line
        });
        Self { line, terminal, last: String::new(), amount_shown_at: None }
    }

    /// Shows an event that is not output of a command.
    pub(super) fn show_event(&mut self, event: &Event) {
        match event {
            Event::Message(text) => self.message(text),
            Event::Amount(amount) => {
                let due = self.amount_shown_at.is_none_or(|it| it.elapsed() >= AMOUNT_EVERY);
                if self.terminal || due {
                    self.amount_shown_at = Some(Instant::now());
                    self.message(&amount.to_string());
                }
            }
            Event::Step(_) | Event::Output(_) => {}
        }
    }

    /// Shows the current step.
    pub(super) fn message(&mut self, text: &str) {
        let text = &*sanitize(text);
        match &self.line {
            Some(line) => {
                line.enable_steady_tick(Duration::from_millis(100));
                line.set_message(text.to_owned());
            }
            None if !self.terminal && self.last != text => {
                render::note(text);
                text.clone_into(&mut self.last);
            }
            None => {}
        }
    }

    /// Prints to standard output, which may be the same terminal.
    pub(super) fn print(&self, text: &str) {
        match &self.line {
            Some(line) => line.suspend(|| render::print(text)),
            None => render::print(text),
        }
    }

    pub(super) fn is_on_terminal(&self) -> bool {
        self.terminal
    }

    /// Prints a permanent line above the progress line. Does nothing in a pipe, where lines stay anyway.
    pub(super) fn above(&self, text: &str) -> bool {
        let Some(line) = &self.line else { return false };
        line.suspend(|| render::note(text));
        true
    }

    /// Removes the line from the terminal. Later events are not shown.
    pub(super) fn clear(&mut self) {
        if let Some(line) = self.line.take() {
            line.finish_and_clear();
        }
    }
}

/// Runs work, and shows its progress.
pub(super) async fn with_progress<T>(cx: &Context, work: impl AsyncFnOnce(&Context) -> T) -> T {
    let mut reporter = Reporter::new(&cx.host);
    let result = with_events(cx, work, |event| reporter.show_event(&event)).await;
    reporter.clear();
    result
}

/// Runs work, and passes its events on.
pub(super) async fn with_events<T>(
    cx: &Context,
    work: impl AsyncFnOnce(&Context) -> T,
    mut on_event: impl FnMut(Event),
) -> T {
    let (progress, mut events) = Progress::channel();
    let working = async {
        let cx = cx.for_call(cx.call.cancel.clone(), progress);
        work(&cx).await
    };
    let mut working = Box::pin(working);
    let result = loop {
        tokio::select! {
            biased;
            Some(event) = events.recv() => on_event(event),
            result = &mut working => break result,
        }
    };
    // A background task may hold the sender, so this does not wait for the end of the channel.
    while let Ok(event) = events.try_recv() {
        on_event(event);
    }
    result
}
