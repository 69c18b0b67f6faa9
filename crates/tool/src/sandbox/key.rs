//! Where the key of a provider is. It is looked for at use: a new one counts at once, one that a program prints within a
//! minute.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use coracle_runtime::Secret;
use coracle_runtime::host::process::{self, Invocation, Stdin};
use coracle_sandbox::proxy::KeySource;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::config;
use crate::context::Context;
use crate::failure::Failure;

/// A key longer than that is none.
const MAX_KEY: usize = 16 << 10;

/// A program that asks a person is given up after that time.
const PATIENCE: Duration = Duration::from_secs(30);

/// So long what a program printed is used again: each model call would start it else.
const FRESH: Duration = Duration::from_secs(60);

/// Where it is.
#[derive(Clone, Debug)]
enum KeyLocation {
    Variable(String),
    File(PathBuf),
    Program(PathBuf, Vec<String>),
    Nothing,
}

/// Where a key that is missing should be.
pub(super) struct KeyPlace {
    /// The setting that names it.
    pub(super) setting: &'static str,
    pub(super) missing: String,
    pub(super) hint: String,
}

#[derive(Debug)]
pub(super) struct ProviderKey {
    cx: Context,
    from: KeyLocation,
    printed: Mutex<Option<(Instant, Secret)>>,
}

impl ProviderKey {
    pub(super) fn from_config(cx: &Context, own: &config::Provider) -> Result<Self, Failure> {
        // The configuration was held against naming two.
        let from = match (&own.key_env, &own.key_file, &own.key_command) {
            (Some(name), ..) => KeyLocation::Variable(name.clone()),
            (_, Some(file), _) => KeyLocation::File(cx.host.path(file)),
            (_, _, Some(words)) => command(cx, words)?,
            _ => KeyLocation::Nothing,
        };
        Ok(Self { cx: cx.clone(), from, printed: Mutex::default() })
    }

    /// Where it should be.
    pub(super) fn place(&self) -> KeyPlace {
        match &self.from {
            KeyLocation::Variable(name) => KeyPlace {
                setting: "key_env",
                missing: format!("the variable `{name}` is not set"),
                hint: format!("set it, as by `export {name}=…`, for the program that you start"),
            },
            KeyLocation::File(path) => KeyPlace {
                setting: "key_file",
                missing: format!("the file `{}` has none, or cannot be read", path.display()),
                hint: "write the key into it, in one line".to_owned(),
            },
            KeyLocation::Program(program, _) => KeyPlace {
                setting: "key_command",
                missing: format!("the program `{}` fails, or prints none", program.display()),
                hint: "run it yourself to see why".to_owned(),
            },
            KeyLocation::Nothing => KeyPlace {
                setting: "key_env",
                missing: "the configuration does not say where it is".to_owned(),
                hint: "name it with `key_env`, `key_file` or `key_command`".to_owned(),
            },
        }
    }

    async fn printed(&self, program: &Path, words: &[String]) -> Option<Secret> {
        let mut printed = self.printed.lock().await;
        if let Some((_, key)) = printed.as_ref().filter(|(since, _)| since.elapsed() < FRESH) {
            return Some(key.clone());
        }
        let env = super::handles::person(&self.cx);
        let asked = Invocation { env, ..Invocation::new(program, words.iter().map(OsString::from)) };
        let told = match process::run("key_command", &asked, Stdin::Empty, (PATIENCE, MAX_KEY)).await {
            Ok(told) if told.ok() && told.stdout.total_bytes() <= MAX_KEY as u64 => told,
            // What it printed may be the key or a part of it.
            Ok(told) => {
                tracing::warn!(
                    exit = told.exit,
                    "the program that prints a provider's key failed, or printed more than a key"
                );
                return None;
            }
            Err(err) => {
                tracing::warn!(%err, "the program that prints a provider's key cannot be run");
                return None;
            }
        };
        let key = key_of(told.stdout.bytes())?;
        *printed = Some((Instant::now(), key.clone()));
        Some(key)
    }
}

#[async_trait]
impl KeySource for ProviderKey {
    async fn key(&self) -> Option<Secret> {
        match &self.from {
            KeyLocation::Variable(name) => self.cx.host.env.get(name).cloned(),
            KeyLocation::File(path) => key_of(tokio::fs::read(path).await.ok()?),
            KeyLocation::Program(program, words) => self.printed(program, words).await,
            KeyLocation::Nothing => None,
        }
    }
}

fn command(cx: &Context, words: &[String]) -> Result<KeyLocation, Failure> {
    let wrong = |message: String| Failure::config("sandbox.profiles.NAME.provider.key_command", None, message);
    let Some((name, words)) = words.split_first() else { return Err(wrong("it names no program".into())) };
    // A search path may lead to a directory that others write to.
    if !name.starts_with(['/', '~']) {
        return Err(wrong(format!("`{name}` is no whole path: begin it with `/` or `~/`")));
    }
    Ok(KeyLocation::Program(cx.host.path(Path::new(name)), words.to_vec()))
}

/// The line that was kept, without its end.
fn key_of(bytes: Vec<u8>) -> Option<Secret> {
    let text = String::from_utf8(bytes).ok().filter(|it| it.len() <= MAX_KEY)?;
    let key = text.trim_end();
    (!key.is_empty()).then(|| Secret::from(key))
}
