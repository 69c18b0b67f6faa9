//! `coracle ssh-config`: a configuration for OpenSSH and editors to reach containers, and the server that it starts.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use coracle::person_terminal;
use coracle_context::planned_file::{PlannedFile, read};
use coracle_context::{Code, Context, Failure, Host, Options};
use coracle_lifecycle::{Record, Role};
use coracle_ssh::{ClientConfig, HostEntry, SshKeys, container_of_host, serve as serve_client};
use coracle_types::Handle;

use super::planned_file::FileConsent;
use super::program_path::program_path;
use super::startup;
use crate::render;

/// The server's subcommand, which clients start.
pub(super) const PROXY: &str = "ssh-proxy";

/// Options of this call that the server needs.
const PASSED_ON: [&str; 2] = ["engine", "session"];

const HINT: &str = "`--yes` writes it; without `--write` it is only printed";

/// The subcommand.
pub(super) fn command() -> Command {
    let names = Arg::new("names").value_name("CONTAINER").num_args(0..);
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let write = flag("write", "Install it for your own ssh: a file that `~/.ssh/config` includes; shows both first");
    Command::new("ssh-config").about("Print a configuration by which ssh and editors reach containers").args([
        names.help("Containers to list as hosts [default: all; others are reached all the same]"),
        write,
        flag("yes", "Write without asking").short('y').requires("write"),
    ])
}

/// The subcommand of the server.
pub(super) fn proxy_command() -> Command {
    let host = Arg::new("host").value_name("HOST").required(true).help("The container, with or without `.coracle`");
    Command::new(PROXY).about("Serve one ssh client on standard input and output").hide(true).arg(host)
}

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> Result<(), Failure> {
    let cx = startup::open_configured(host, options)?.context;
    let names: Vec<&String> = matches.get_many("names").into_iter().flatten().collect();
    let files = ConfigFiles::new(&cx, matches, &entries(&cx, &names).await?)?;
    if !matches.get_flag("write") {
        render::print(files.text.trim_end());
        return Ok(());
    }
    let consent = FileConsent { host: &cx.host, print: false, yes: matches.get_flag("yes"), hint: HINT };
    files.install(consent).map(drop)
}

/// Serves the client that started this process.
pub(super) async fn serve(matches: &ArgMatches, host: Host, options: &Options) -> Result<(), Failure> {
    if host.stdin_is_terminal {
        let failure = Failure::new(Code::InvalidInput, "`ssh-proxy` is started by ssh, and speaks its protocol");
        return Err(failure.hint("`coracle ssh-config` prints the configuration that starts it"));
    }
    let cx = startup::open_configured(host, options)?.context;
    let name = matches.get_one::<String>("host").map_or("", |it| container_of_host(it));
    let container = Handle::parse(name).map_err(|err| Failure::name("container", err))?;
    let keys = SshKeys::open(&cx.state()?.ssh())?;
    Box::pin(serve_client(&cx, &container, &keys, tokio::io::stdin(), tokio::io::stdout())).await
}

/// The named containers as hosts, or all containers.
pub(super) async fn entries(cx: &Context, names: &[&String]) -> Result<Vec<HostEntry>, Failure> {
    if names.is_empty() {
        let records = cx.store()?.records()?;
        let opened_by_people = records.iter().filter(|it| matches!(it.role, Role::Primary | Role::Adopted));
        return Ok(opened_by_people.map(|it| entry(it)).collect());
    }
    let mut entries = Vec::new();
    for name in names {
        let handle = Handle::parse(name).map_err(|err| Failure::name("container", err))?;
        entries.push(entry(&person_terminal::enter(cx, &handle, false).await?.record));
    }
    Ok(entries)
}

/// A container as a host.
fn entry(record: &Record) -> HostEntry {
    HostEntry { container: record.name.to_string(), user: record.user_name.clone() }
}

/// The configuration, and its files.
pub(super) struct ConfigFiles {
    text: String,
    path: PathBuf,
    person: PathBuf,
}

impl ConfigFiles {
    /// With the options of this call, which the server is started with.
    pub(super) fn new(cx: &Context, matches: &ArgMatches, hosts: &[HostEntry]) -> Result<Self, Failure> {
        let dir = cx.state()?.ssh();
        let keys = SshKeys::open(&dir)?;
        let program = program_path(&cx.host)?.display().to_string();
        // An editor starts the server without the variables of this shell.
        let mut proxy = vec![program, "--state-dir".to_owned(), cx.state()?.root().display().to_string()];
        let config = matches.get_one::<PathBuf>("config").or(cx.host.config_file.as_ref());
        if let Some(config) = config {
            proxy.extend(["--config".to_owned(), cx.host.path(config).display().to_string()]);
        }
        for name in PASSED_ON {
            let value = matches.get_raw(name).and_then(|mut it| it.next());
            proxy.extend(value.into_iter().flat_map(|it| [format!("--{name}"), it.to_string_lossy().into_owned()]));
        }
        proxy.push(PROXY.to_owned());
        let text = ClientConfig { keys: &keys, proxy: &proxy, hosts }.text()?;
        Ok(Self { text, path: dir.join("config"), person: cx.host.home.join(".ssh/config") })
    }

    fn include(&self) -> String {
        format!("Include \"{}\"", self.path.display())
    }

    /// Whether the user's ssh reads it, and it starts the server like this call. Its list of hosts may differ.
    pub(super) fn is_installed(&self) -> Result<bool, Failure> {
        let included = read(&self.person)?.is_some_and(|it| it.lines().any(|line| line.trim() == self.include()));
        Ok(included && read(&self.path)?.is_some_and(|it| for_all_hosts(&it) == for_all_hosts(&self.text)))
    }

    /// Shows both files, asks, and writes them. Returns whether the user's ssh reads it afterwards.
    pub(super) fn install(&self, consent: FileConsent<'_>) -> Result<bool, Failure> {
        let before = read(&self.path)?;
        if before.as_ref() != Some(&self.text) {
            let file = PlannedFile { path: &self.path, before: before.as_deref(), after: &self.text };
            if !consent.put("the hosts of containers", &file)? {
                return Ok(false);
            }
        }
        let before = read(&self.person)?;
        let text = before.as_deref().unwrap_or_default();
        if text.lines().any(|it| it.trim() == self.include()) {
            render::note(&format!("{} includes it", self.person.display()));
            return Ok(true);
        }
        // It comes first, because below a `Host` it would apply to that host alone.
        let after = format!("{}\n{}{text}", self.include(), if text.is_empty() { "" } else { "\n" });
        make_private(self.person.parent().unwrap_or(Path::new("/")))?;
        consent.put("includes it", &PlannedFile { path: &self.person, before: before.as_deref(), after: &after })
    }
}

/// The part of a configuration for all containers.
fn for_all_hosts(text: &str) -> Option<&str> {
    text.find("\nHost *").map(|at| &text[at..])
}

fn make_private(dir: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().mode(0o700).create(dir);
    match made {
        Err(err) if err.kind() != io::ErrorKind::AlreadyExists => {
            Err(Failure::new(Code::Internal, format!("cannot make `{}`: {err}", dir.display())))
        }
        _ => Ok(()),
    }
}
