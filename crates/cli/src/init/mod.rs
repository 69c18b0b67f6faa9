//! `coracle init`: writes a commented configuration, and the entry in the MCP clients of the user.
//!
//! **Invariant:** every change is shown first, and nothing is written without a yes. The old text of a file is saved
//! beside it.

mod clients;
mod entry;
mod template;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use coracle_context::config::Config;
use coracle_context::planned_file::{PlannedFile, diff, read};
use coracle_context::{Code, Failure, Host, Options};

use self::clients::McpClient;
use self::entry::{EntryPlan, ServerProgram};
use super::consent;
use super::exit;
use super::operation_args::option;
use super::planned_file::FileConsent;
use super::program_path::{is_found, program_path};
use crate::render;

/// The subcommand.
pub(super) fn command() -> Command {
    let names = PossibleValuesParser::new(clients::ALL.iter().map(|it| it.name));
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let about = "Write a commented configuration, and the MCP entry of the programs that you use; shows each first";
    Command::new("init").about(about).args([
        option("client", "NAME", "Only the MCP entry of that program; may be given several times")
            .value_parser(names)
            .action(ArgAction::Append),
        option(
            "network",
            "NETWORK",
            "What containers reach: `proxy`, package registries and GitHub; `open`, everything",
        )
        .value_parser(["proxy", "open"]),
        flag("print", "Print what would be written, and write nothing"),
        flag("force", "Replace a configuration that is there; its text stays beside it"),
        flag("yes", "Write without asking").short('y').conflicts_with("print"),
    ])
}

/// The user's answers.
#[derive(Clone, Copy)]
struct InitOptions<'a> {
    host: &'a Host,
    print: bool,
    force: bool,
    yes: bool,
    /// Whether the configuration has the rules of a proxy. None: the user decides.
    proxy: Option<bool>,
}

/// Shown before the question.
const PROXY: &str = "\
Containers can reach everything, or only what a list allows, through a proxy. The list can begin with npm, PyPI, crates.io,
Go's proxy, Debian and GitHub. What is refused is listed, and you can allow it: `coracle approvals`. For agents, that is recommended.";

pub(super) fn run(matches: &ArgMatches, host: &Host, options: &Options) -> ExitCode {
    let init = InitOptions {
        host,
        print: matches.get_flag("print"),
        force: matches.get_flag("force"),
        yes: matches.get_flag("yes"),
        proxy: matches.get_one::<String>("network").map(|it| it == "proxy"),
    };
    let named: Vec<&String> = matches.get_many("client").into_iter().flatten().collect();
    exit::code(init.work(&named, options))
}

impl InitOptions<'_> {
    fn work(self, named: &[&String], options: &Options) -> Result<(), Failure> {
        if named.is_empty() {
            self.configuration(&Config::location(options.config.as_deref(), self.host))?;
        }
        let program = program_path(self.host)?.display().to_string();
        let wanted = |it: &&McpClient| match named.is_empty() {
            true => it.is_used(self.host),
            false => named.iter().any(|name| *name == it.name),
        };
        let wanted: Vec<&McpClient> = clients::ALL.iter().filter(wanted).collect();
        if wanted.is_empty() {
            let names: Vec<&str> = clients::ALL.iter().map(|it| it.name).collect();
            render::note(&format!("no program with MCP servers was found; `--client` names one: {}", names.join(", ")));
        }
        let (mut refused, mut hints) = (Vec::new(), BTreeSet::new());
        for client in wanted {
            if let Some(hint) = self.client(client, &program)? {
                refused.push(client.name);
                hints.insert(hint);
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        let hints: Vec<&str> = hints.into_iter().collect();
        Err(Failure::new(Code::Partial, format!("left alone: {}", refused.join(", "))).hint(hints.join("; ")))
    }

    fn configuration(self, path: &Path) -> Result<(), Failure> {
        let before = read(path)?;
        let is_new = before.is_none() || self.force;
        let text = template::configuration(if is_new { self.proxies() } else { self.proxy == Some(true) });
        match before.as_deref() {
            Some(before) if before == text => {
                render::note(&format!("{} is there, as it would be written", path.display()));
                Ok(())
            }
            Some(before) if !self.force => {
                render::print(&diff(path, before, &text));
                let shown = path.display();
                render::note(&format!(
                    "{shown} is there and stays; `coracle init --force` replaces it by the new text"
                ));
                Ok(())
            }
            before => {
                let keys = text.lines().filter(|it| it.starts_with('#') && !it.starts_with("# ")).count();
                let set = text.lines().filter(|it| !it.is_empty() && !it.starts_with('#')).count();
                let settings = if set == 0 { "no setting" } else { "the settings of the proxy" };
                let what = format!("the configuration, with {keys} keys as comments and {settings}");
                self.put(&what, &PlannedFile { path, before, after: &text })
            }
        }
    }

    /// Whether a new configuration has the rules of a proxy.
    fn proxies(self) -> bool {
        self.proxy.unwrap_or_else(|| {
            let asks = self.host.stdin_is_terminal && !self.yes && !self.print;
            asks && {
                render::note(PROXY);
                consent::is_confirmed("Use the proxy for all containers? [y/N] ")
            }
        })
    }

    /// What the user must do by hand if the client's file is not changed.
    fn client(self, client: &McpClient, program: &str) -> Result<Option<&'static str>, Failure> {
        let path = client.file(self.host);
        let before = read(&path)?;
        let title = client.title;
        let server = ServerProgram { path: program, is_found: &|it| is_found(it, self.host) };
        match entry::plan(client, before.as_deref().unwrap_or_default(), server) {
            EntryPlan::Present => render::note(&format!("{title} has the server: {}", path.display())),
            EntryPlan::Write(text) => {
                let planned = PlannedFile { path: &path, before: before.as_deref(), after: &text };
                self.put(&format!("the server `coracle` for {title}"), &planned)?;
            }
            EntryPlan::Refuse(why) => {
                render::note(&format!("{title}: {} is left alone, since {why}. Its lines would be:", path.display()));
                render::print(&entry::snippet(client, program));
                return Ok(Some("add the lines above by hand"));
            }
            EntryPlan::ChangeByHand(what) => {
                render::note(&format!("{title}: {} is left alone. {what}", path.display()));
                return Ok(Some("change by hand what is named above"));
            }
        }
        Ok(None)
    }

    fn put(self, what: &str, file: &PlannedFile<'_>) -> Result<(), Failure> {
        let hint = "`coracle init --yes` writes it, `coracle init --print` only shows it";
        let consent = FileConsent { host: self.host, print: self.print, yes: self.yes, hint };
        consent.put(what, file).map(drop)
    }
}
