//! API keys that programs print. A program may prompt the user, so each runs at most once a minute for all calls of
//! this process, or once in ten seconds if it failed.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use coracle_host::process::{self, Invocation, Stdin};
use coracle_types::Secret;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Maximum size of a key.
const MAX_KEY: usize = 16 << 10;

/// Timeout of a program, which may prompt the user.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long a printed key is reused, and how long a failure is.
const FRESH: Duration = Duration::from_secs(60);
const FAILURE_FRESH: Duration = Duration::from_secs(10);

/// A program and its arguments.
type Command = (PathBuf, Vec<String>);

/// The last output of a program. Locked while the program runs, so that a second call waits for its key.
type LastPrinted = Arc<Mutex<Option<(Instant, Option<Secret>)>>>;

/// The API keys that programs have printed.
#[derive(Debug, Default)]
pub struct PrintedKeys(std::sync::Mutex<HashMap<Command, LastPrinted>>);

impl PrintedKeys {
    /// Returns the key that a program prints; none if it fails, which is logged.
    pub async fn of_program(&self, program: &Path, args: &[String], env: BTreeMap<String, OsString>) -> Option<Secret> {
        let command = (program.to_owned(), args.to_owned());
        let last = Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(command).or_default());
        let mut last = last.lock().await;
        if let Some((since, key)) = &*last
            && since.elapsed() < if key.is_some() { FRESH } else { FAILURE_FRESH }
        {
            return key.clone();
        }
        let key = Self::print(program, args, env).await;
        *last = Some((Instant::now(), key.clone()));
        key
    }

    async fn print(program: &Path, args: &[String], env: BTreeMap<String, OsString>) -> Option<Secret> {
        let invocation = Invocation { env, ..Invocation::new(program, args.iter().map(OsString::from)) };
        let output = match process::run("key_command", &invocation, Stdin::Empty, (TIMEOUT, MAX_KEY)).await {
            Ok(output) if output.ok() && output.stdout.total_bytes() <= MAX_KEY as u64 => output,
            // The output may be the key or a part of it, so it is not logged.
            Ok(output) => {
                tracing::warn!(
                    exit = output.exit,
                    "the program that prints a provider's key failed, or printed more than a key"
                );
                return None;
            }
            Err(err) => {
                tracing::warn!(%err, "the program that prints a provider's key cannot be run");
                return None;
            }
        };
        key_of(output.stdout.bytes())
    }
}

/// Returns the key in a file or in the output of a program: the text without white space at the end.
pub fn key_of(bytes: Vec<u8>) -> Option<Secret> {
    let text = String::from_utf8(bytes).ok().filter(|it| it.len() <= MAX_KEY)?;
    let key = text.trim_end();
    (!key.is_empty()).then(|| Secret::from(key))
}
