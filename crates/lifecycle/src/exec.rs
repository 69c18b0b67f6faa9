//! User, directory, variables and limits of commands in managed containers.

use std::collections::BTreeMap;

use coracle_runtime::{Container, PolicyRefusal, Problem};
use coracle_types::{Command, ContainerPath, Exec, Ids};

use crate::record::Record;
use crate::{Error, ManagedContainer, Result};

/// Used when the image names no `PATH`: what engines give then is not the same.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The program that is PID 1 of a container with a guest.
const GUEST: &str = "/.coracle/guest";

/// Who runs commands in a container, where, and with which environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecContext {
    /// As whom.
    pub user: Ids,
    /// Where.
    pub workdir: ContainerPath,
    /// Variables of every command.
    pub env: BTreeMap<String, String>,
}

impl ExecContext {
    /// A command in this session.
    #[must_use]
    pub fn exec(&self, command: Command) -> Exec {
        let mut exec = Exec::new(command, self.user, self.workdir.clone());
        exec.env = self.env.clone();
        exec
    }
}

/// The session of a container's commands, as its exec user or as root.
///
/// # Errors
/// [`Error::UnknownUser`] when the record has no exec user: root is never used instead.
pub fn session(found: &ManagedContainer, as_root: bool) -> Result<ExecContext> {
    let mut session = exec_context(&found.record, as_root)?;
    session.env.extend(found.record.env_plain.clone());
    let of_image = environment(found.present()?, session.env.get("HOME"));
    session.env = of_image.into_iter().chain(session.env).collect();
    Ok(session)
}

/// The same where a guest runs the commands: it has the variables of the session, and knows those of the image.
///
/// # Errors
/// As [`session`].
pub fn guided_session(record: &Record, as_root: bool) -> Result<ExecContext> {
    let mut session = exec_context(record, as_root)?;
    // What a command is given wins over the session, in which the caller may have set these.
    session.env.retain(|name, _| !record.env_keys.contains(name));
    Ok(session)
}

/// Who runs commands, and what a process of that user finds in its environment.
fn exec_context(record: &Record, as_root: bool) -> Result<ExecContext> {
    let user = record.exec_user.ok_or_else(|| Error::UnknownUser(record.name.clone()))?;
    let user = if as_root { Ids::ROOT } else { user };
    let root_home = ContainerPath::parse("/root").expect("a plain path");
    let home = if user.is_root() && record.exec_user != Some(Ids::ROOT) {
        root_home
    } else {
        record.home.clone().unwrap_or_else(|| if user.is_root() { root_home } else { ContainerPath::root() })
    };
    let name = if user.is_root() { Some("root".to_owned()) } else { record.user_name.clone() };
    let mut env = BTreeMap::from([("HOME".to_owned(), home.to_string())]);
    env.extend(name.into_iter().flat_map(|it| [("USER".to_owned(), it.clone()), ("LOGNAME".to_owned(), it)]));
    env.extend(record.shell.as_ref().map(|it| ("SHELL".to_owned(), it.to_string())));
    Ok(ExecContext { user, workdir: record.workdir.clone(), env })
}

/// Whether commands may run as root in that container: not if its PID 1 runs as the exec user.
///
/// # Errors
/// [`Error::Refused`] under the rule `root.exec`.
pub fn may_be_root(record: &Record) -> Result<()> {
    if record.guest.as_ref().is_none_or(|it| it.own.is_none()) {
        return Ok(());
    }
    let value = record.name.to_string();
    let message = format!("no process in `{value}` can be root: it was created under `policy = \"strict\"`");
    Err(PolicyRefusal { problems: vec![Problem { rule: "root.exec", setting: None, value, message }] }.into())
}

/// What a guest adds by itself: the search path, and a language.
fn environment(container: &Container, home: Option<&String>) -> BTreeMap<String, String> {
    let of_image =
        |wanted: &str| container.env.iter().find_map(|it| Some(it.split_once('=')?).filter(|it| it.0 == wanted));
    let path = of_image("PATH").map_or(PATH, |it| it.1);
    let home = home.map_or("", |it| it.trim_end_matches('/'));
    let mut env = BTreeMap::from([("PATH".to_owned(), format!("{home}/.local/bin:{path}"))]);
    if of_image("LANG").is_none() {
        env.insert("LANG".into(), "C.UTF-8".into());
    }
    env
}

/// How a person gets a terminal in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Words of the engine's program.
    pub words: Vec<String>,
    /// The shell in it.
    pub shell: String,
    /// As whom.
    pub user: Ids,
}

/// The words that open a shell in a container with a guest, without the engine's program itself.
#[must_use]
pub fn guest_shell(container: &str, user: Ids, workdir: &str, shell: &str) -> Vec<String> {
    let user = user.to_string();
    ["exec", "-it", "--user", &user, "--workdir", workdir, container, GUEST, "shell", shell].map(String::from).into()
}

/// A program on a person's terminal.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnTerminal<'a> {
    /// As root, in place of the exec user.
    pub as_root: bool,
    /// Its words; without any it is the shell.
    pub words: &'a [String],
    /// Where, in place of the container's own place.
    pub workdir: Option<&'a ContainerPath>,
    /// The kind of the terminal; the engine's own when missing.
    pub kind: Option<&'a str>,
}

/// The same program as a command for the guest, which opens a terminal for it.
///
/// # Errors
/// As [`session`].
pub fn exec_on_terminal(found: &ManagedContainer, request: &OnTerminal<'_>) -> Result<Exec> {
    if request.as_root {
        may_be_root(&found.record)?;
    }
    let shell = found.record.shell.as_ref().map_or("/bin/sh", ContainerPath::as_str).to_owned();
    let words = if request.words.is_empty() { vec![shell] } else { request.words.to_vec() };
    let mut exec = guided_session(&found.record, request.as_root)?.exec(Command::Argv(words));
    if let Some(workdir) = request.workdir {
        exec.workdir = workdir.clone();
    }
    Ok(exec)
}

/// The words that open a shell in a container, without the engine's program itself. A guest tells the shell its
/// environment, so that no value stands on a command line; where there is none, the words have all of them.
///
/// # Errors
/// As [`session`].
pub fn hint(found: &ManagedContainer, as_root: bool) -> Result<Hint> {
    on_terminal(found, &OnTerminal { as_root, ..OnTerminal::default() })
}

/// The same for any program.
///
/// # Errors
/// As [`session`].
pub fn on_terminal(found: &ManagedContainer, request: &OnTerminal<'_>) -> Result<Hint> {
    let OnTerminal { as_root, words: program, workdir: place, kind } = *request;
    if as_root {
        may_be_root(&found.record)?;
    }
    let shell = found.record.shell.as_ref().map_or("/bin/sh", ContainerPath::as_str).to_owned();
    let (first, rest) = program.split_first().map_or((&shell, &[][..]), |it| it);
    let kind = kind.map(|it| format!("--env=TERM={it}"));
    if found.record.guest.is_some() {
        let ExecContext { user, workdir, .. } = guided_session(&found.record, as_root)?;
        let workdir = place.unwrap_or(&workdir);
        let mut words = guest_shell(found.record.name.as_str(), user, workdir.as_str(), first);
        words.splice(1..1, kind);
        words.extend(rest.iter().cloned());
        return Ok(Hint { words, shell, user });
    }
    let session = session(found, as_root)?;
    let mut words: Vec<String> = ["exec", "--interactive", "--tty"].map(String::from).into();
    words.push(format!("--user={}", session.user));
    words.push(format!("--workdir={}", place.unwrap_or(&session.workdir)));
    words.extend(kind);
    words.extend(session.env.iter().map(|(name, value)| format!("--env={name}={value}")));
    words.extend([found.record.name.to_string(), first.clone()]);
    words.extend(rest.iter().cloned());
    Ok(Hint { words, shell, user: session.user })
}
