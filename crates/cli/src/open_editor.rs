//! `coracle open`: opens the user's editor on a container over ssh.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use coracle::person_terminal;
use coracle_context::{Code, Failure, Host, Options};
use coracle_host::process::{Invocation, exit_of};
use coracle_ssh::HOST_SUFFIX;
use coracle_types::Handle;

use super::operation_args::option;
use super::planned_file::FileConsent;
use super::ssh_config::{ConfigFiles, entries};
use super::startup;
use crate::render;

/// An editor with support for ssh hosts.
struct Editor {
    /// Its program.
    program: &'static str,
    kind: EditorKind,
}

enum EditorKind {
    /// Visual Studio Code and its derivatives.
    Code,
    /// Zed.
    Zed,
    /// JetBrains Gateway, where the user selects the host.
    Gateway,
}

/// In order of preference.
static EDITORS: [Editor; 7] = [
    Editor { program: "code", kind: EditorKind::Code },
    Editor { program: "code-insiders", kind: EditorKind::Code },
    Editor { program: "cursor", kind: EditorKind::Code },
    Editor { program: "windsurf", kind: EditorKind::Code },
    Editor { program: "codium", kind: EditorKind::Code },
    Editor { program: "zed", kind: EditorKind::Zed },
    Editor { program: "gateway", kind: EditorKind::Gateway },
];

/// The subcommand.
pub(super) fn command() -> Command {
    let name = Arg::new("name").value_name("CONTAINER").required(true).help("Its name, or an id of at least 12 digits");
    let path = Arg::new("path").value_name("PATH").help("What to open [default: where commands run]");
    let editor = option("editor", "PROGRAM", "The editor [default: the first one that is found here]");
    let yes = Arg::new("yes").long("yes").short('y').action(ArgAction::SetTrue);
    Command::new("open").about("Open an editor on a container, by ssh").args([
        name,
        path,
        editor.value_parser(PossibleValuesParser::new(EDITORS.iter().map(|it| it.program))),
        yes.help("Install the ssh configuration without asking"),
    ])
}

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> Result<(), Failure> {
    let cx = startup::open_configured(host, options)?.context;
    let name = matches.get_one::<String>("name").map_or("", String::as_str);
    let handle = Handle::parse(name).map_err(|err| Failure::name("container", err))?;
    let found = person_terminal::enter(&cx, &handle, false).await?;
    let path = match matches.get_one::<String>("path") {
        Some(path) => found.record.workdir.join(path)?,
        None => found.record.workdir.clone(),
    };
    let host_name = format!("{}{HOST_SUFFIX}", found.record.name);
    let (editor, program) = find(&cx.host, matches.get_one::<String>("editor").map(String::as_str), &host_name)?;
    let words = editor.words(&host_name, path.as_str());
    let files = ConfigFiles::new(&cx, matches, &entries(&cx, &[]).await?)?;
    let hint = "`--yes` writes it; `coracle ssh-config` prints it";
    let consent = FileConsent { host: &cx.host, print: false, yes: matches.get_flag("yes"), hint };
    if !files.is_installed()? && !files.install(consent)? {
        render::note(&format!("without it: `coracle ssh-config > ssh.conf`, then `ssh -F ssh.conf {host_name}`"));
        return Ok(());
    }
    if matches!(editor.kind, EditorKind::Gateway) {
        render::note(&format!("in Gateway choose SSH, the host {host_name} and the directory {path}"));
    }
    let mut invocation = Invocation::new(program, words);
    invocation.env =
        cx.host.env.iter().map(|(name, value)| (name.clone(), OsStr::from_bytes(value.reveal()).to_owned())).collect();
    start(editor, invocation).await
}

impl Editor {
    fn words(&self, host: &str, path: &str) -> Vec<String> {
        match self.kind {
            EditorKind::Code => ["--remote".into(), format!("ssh-remote+{host}"), path.to_owned()].into(),
            EditorKind::Zed => [format!("ssh://{host}{path}")].into(),
            EditorKind::Gateway => Vec::new(),
        }
    }
}

/// The named editor, or the first one found, with its program.
fn find(host: &Host, named: Option<&str>, host_name: &str) -> Result<(&'static Editor, PathBuf), Failure> {
    let mut wanted = EDITORS.iter().filter(|it| named.is_none_or(|name| name == it.program));
    let found = wanted.find_map(|it| Some((it, on_path(host, it.program)?)));
    found.ok_or_else(|| {
        let what = named.map_or("no editor that works by ssh".to_owned(), |it| format!("no program `{it}`"));
        let names: Vec<&str> = EDITORS.iter().map(|it| it.program).collect();
        Failure::new(Code::NotFound, format!("{what} is on the search path"))
            .detail("editors", names)
            .hint(format!("`coracle ssh-config --write`, then any editor reaches the host `{host_name}` by ssh"))
    })
}

fn on_path(host: &Host, program: &str) -> Option<PathBuf> {
    let is_program = |it: &PathBuf| it.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
    let path = host.env.get("PATH")?;
    std::env::split_paths(OsStr::from_bytes(path.reveal())).map(|it| it.join(program)).find(is_program)
}

/// Starts the editor's program, which ends when the editor has opened the directory.
async fn start(editor: &Editor, invocation: Invocation) -> Result<(), Failure> {
    let name = editor.program;
    match exit_of(invocation.run_on_terminal().await?) {
        0 => Ok(()),
        exit => Err(Failure::new(Code::CommandFailed, format!("`{name}` ended with {exit}"))
            .hint("it needs its extension for ssh: what it printed stands above")),
    }
}
