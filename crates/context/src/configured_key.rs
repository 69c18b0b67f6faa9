//! The source of a key or another secret. It is read at each use: a new one in a file or variable applies at once, one
//! that a program prints within a minute.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use coracle_proxy::policy::KeySource;
use coracle_types::Secret;

use crate::config::{Provider, SecretSource};
use crate::context::Context;
use crate::failure::Failure;
use crate::printed_keys::key_of;
use crate::user_environment::user_environment;

/// Where a key is.
#[derive(Clone, Debug)]
enum KeyLocation {
    Variable(String),
    File(PathBuf),
    Program(PathBuf, Vec<String>),
    Nothing,
}

/// The expected source of a key that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPlace {
    /// The setting that configures it.
    pub setting: &'static str,
    /// What is not there.
    pub missing: String,
    /// What to do.
    pub hint: String,
}

/// A key or a secret, where the configuration says that it is.
#[derive(Debug)]
pub struct ConfiguredKey {
    cx: Context,
    from: KeyLocation,
}

impl ConfiguredKey {
    /// The key of a provider of models.
    pub fn of_provider(cx: &Context, own: &Provider) -> Result<Self, Failure> {
        let setting = "sandbox.profiles.NAME.provider.key_command";
        let from = (own.key_env.as_deref(), own.key_file.as_deref(), own.key_command.as_deref());
        Self::new(cx, from, setting)
    }

    /// The secret of that name.
    pub fn of_secret(cx: &Context, name: &str, own: &SecretSource) -> Result<Self, Failure> {
        let is_named = own.key_file.is_some() || own.key_command.is_some();
        let variable = own.key_env.as_deref().or((!is_named).then_some(name));
        Self::new(cx, (variable, own.key_file.as_deref(), own.key_command.as_deref()), "secrets.NAME.key_command")
    }

    fn new(
        cx: &Context,
        from: (Option<&str>, Option<&Path>, Option<&[String]>),
        setting: &'static str,
    ) -> Result<Self, Failure> {
        // The validation of the configuration refuses two sources.
        let from = match from {
            (Some(name), ..) => KeyLocation::Variable(name.to_owned()),
            (_, Some(file), _) => KeyLocation::File(cx.host.path(file)),
            (_, _, Some(words)) => command(cx, words, setting)?,
            _ => KeyLocation::Nothing,
        };
        Ok(Self { cx: cx.clone(), from })
    }

    /// Returns the value of its variable, if it is in one that is set.
    pub fn variable(&self) -> Option<&Secret> {
        match &self.from {
            KeyLocation::Variable(name) => self.cx.host.env.get(name),
            KeyLocation::File(_) | KeyLocation::Program(..) | KeyLocation::Nothing => None,
        }
    }

    /// Describes where the key should be.
    pub fn place(&self) -> KeyPlace {
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
                hint: "set `key_env`, `key_file` or `key_command`".to_owned(),
            },
        }
    }
}

#[async_trait]
impl KeySource for ConfiguredKey {
    async fn key(&self) -> Option<Secret> {
        match &self.from {
            KeyLocation::Variable(_) => self.variable().cloned(),
            KeyLocation::File(path) => key_of(tokio::fs::read(path).await.ok()?),
            KeyLocation::Program(program, args) => {
                let env = user_environment(&self.cx);
                self.cx.printed_keys().of_program(program, args, env).await
            }
            KeyLocation::Nothing => None,
        }
    }
}

fn command(cx: &Context, words: &[String], setting: &'static str) -> Result<KeyLocation, Failure> {
    let wrong = |message: String| Failure::config(setting, None, message);
    let Some((name, words)) = words.split_first() else { return Err(wrong("it names no program".into())) };
    // A search path may lead to a directory that others write to.
    if !name.starts_with(['/', '~']) {
        return Err(wrong(format!("`{name}` is no whole path: begin it with `/` or `~/`")));
    }
    Ok(KeyLocation::Program(cx.host.path(Path::new(name)), words.to_vec()))
}
