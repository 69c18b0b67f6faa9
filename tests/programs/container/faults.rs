//! Faults of the scenario.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::containers;
use crate::state::{Fault, State, StoredContainer};
use crate::words::Words;

#[derive(Debug)]
pub(crate) struct Faults {
    now: Vec<Fault>,
    fails: bool,
}

impl Faults {
    pub(crate) fn of(state: &State, verb: &str) -> Result<Self> {
        let call = state.count(verb)?;
        let mine: Vec<_> = state.scenario.faults.iter().filter(|it| it.verb == verb).collect();
        let now = mine.iter().filter(|it| it.nth.is_none_or(|nth| nth == call)).map(|it| (*it).clone()).collect();
        let fails = mine.iter().any(|it| {
            let first = it.nth.unwrap_or(1);
            (first..first + it.delete_fails_times).contains(&call)
        });
        Ok(Self { now, fails })
    }

    /// A status to exit with instead of executing the verb.
    pub(crate) fn before(&self, state: &State, words: &Words) -> Result<Option<u8>> {
        let down = state.scenario.service_down || self.now.iter().any(|it| it.service_down);
        if down && !words.verb().starts_with("system ") {
            bail!("XPC connection error: Connection invalid. Ensure the container system service has been started");
        }
        for fault in &self.now {
            if fault.hang {
                wait(Duration::from_secs(86_400));
            }
            wait(Duration::from_millis(fault.delay_ms));
            if fault.vanish {
                vanish(state, words)?;
            }
            std::io::stderr().write_all(fault.stderr.as_bytes())?;
            if let Some(signal) = fault.signal.and_then(rustix::process::Signal::from_named_raw) {
                rustix::process::kill_process(rustix::process::getpid(), signal)?;
                wait(Duration::from_secs(10));
            }
            if let Some(code) = fault.exit {
                return Ok(Some(code));
            }
        }
        Ok(None)
    }

    /// An answer as it is printed.
    pub(crate) fn cut(&self, text: &[u8]) -> Vec<u8> {
        let flood = self.now.iter().map(|it| it.flood_bytes).sum();
        let most = self.now.iter().filter_map(|it| it.truncate_json).min().unwrap_or(text.len());
        [&vec![b'x'; flood], &text[..most.min(text.len())]].concat()
    }

    /// The state that is reported in place of "stopped".
    pub(crate) fn reported_state(&self) -> Option<&str> {
        let stale = |it: &Fault| it.stale_running.then_some("running");
        self.now.iter().find_map(|it| it.state.as_deref().or(stale(it)))
    }

    /// A removal fails.
    pub(crate) fn keeps(&self) -> bool {
        self.fails
    }
}

/// The first container that an argument names.
fn vanish(state: &State, words: &Words) -> Result<()> {
    let named = |it: &&String| state.has("containers", it);
    let Some(id) = words.all().find(named) else { return Ok(()) };
    let stored: StoredContainer = state.read("containers", id)?;
    containers::end(&stored);
    containers::forget(state, id)
}

#[expect(clippy::disallowed_methods, reason = "there is no runtime that this could block")]
pub(crate) fn wait(duration: Duration) {
    std::thread::sleep(duration);
}
