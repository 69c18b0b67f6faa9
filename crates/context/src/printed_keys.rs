//! Keys of providers that programs print. A program may ask a person, so for all calls of this process each runs at most once a
//! minute, or, if it failed, once in ten seconds.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use coracle_host::process::{self, Invocation, Stdin};
use coracle_types::Secret;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The largest key, in bytes.
const MAX_KEY: usize = 16 << 10;

/// Limit of the time that a program takes, which may ask a person.
const TIMEOUT: Duration = Duration::from_secs(30);

/// For how long a printed key is used again, and for how long a failure is.
const FRESH: Duration = Duration::from_secs(60);
const FAILURE_FRESH: Duration = Duration::from_secs(10);

/// A program and its arguments.
type Command = (PathBuf, Vec<String>);

/// What a program printed last. It is locked while the program runs, so that a second call waits for the first one's key.
type LastPrinted = Arc<Mutex<Option<(Instant, Option<Secret>)>>>;

/// The keys that programs have printed.
#[derive(Debug, Default)]
pub struct PrintedKeys(std::sync::Mutex<HashMap<Command, LastPrinted>>);

impl PrintedKeys {
    /// The key that a program prints; none if it fails, which the log says.
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
            // What it printed may be the key or a part of it.
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

/// The key in the content of a file or the output of a program: its text without white space at the end.
pub fn key_of(bytes: Vec<u8>) -> Option<Secret> {
    let text = String::from_utf8(bytes).ok().filter(|it| it.len() <= MAX_KEY)?;
    let key = text.trim_end();
    (!key.is_empty()).then(|| Secret::from(key))
}
