//! `coracle serve`: operations and tools for a program.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use coracle_context::config::Toolset;
use coracle_context::{Failure, Frontend, Host, Options};
use coracle_prepare::Process;
use coracle_transport::Http;

use super::operation_args::option;
use super::{exit, logging, metrics, render, signals};

/// Tools of programs besides operations, regardless of the toolsets for agents: packages are generated for these.
const TOOLSETS: [Toolset; 4] = [Toolset::Classic, Toolset::Workspace, Toolset::Code, Toolset::Worktrees];

/// The subcommand.
pub(super) fn command() -> Command {
    let about = "Serve operations and tools to a program, one JSON object per line on standard input and output";
    let openapi = Arg::new("openapi").long("openapi").action(ArgAction::SetTrue);
    let openapi = openapi.help("Print the OpenAPI document of requests and answers, and serve nothing");
    let http = "Serve programs of this machine over HTTP instead, at 127.0.0.1:PORT; they share one session";
    let e2b = "Serve E2B's API to its SDKs over HTTP instead, at 127.0.0.1:PORT";
    let settings = "Keys of the configuration over those of its file, such as '{\"max_containers\": 100}'";
    Command::new("serve")
        .about(about)
        .args([option("http", "ADDRESS:PORT", http), option("e2b", "ADDRESS:PORT", e2b), token_file("address")])
        .group(ArgGroup::new("address").args(["http", "e2b"]))
        .args([option("settings", "JSON", settings), openapi])
        .arg(metrics::arg())
}

/// The option for the file of the token, which makes sense with another option or group only.
pub(super) fn token_file(requires: &'static str) -> Arg {
    let about = "What clients have to send, in a file of mode 0600; made if missing [default: in the state directory]";
    option("token-file", "FILE", about).value_parser(value_parser!(PathBuf)).requires(requires)
}

/// Serves a program until its input ends or a signal arrives; over HTTP until a signal arrives.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let settings = matches.get_one::<String>("settings").cloned();
    let options = &Options { toolsets: Some(TOOLSETS.to_vec()), settings, ..options.clone() };
    if matches.get_flag("openapi") {
        return match Process::open(host, options, Frontend::Serve) {
            Ok(process) => {
                render::print(&format!("{:#}", coracle_serve::document(&process)));
                ExitCode::SUCCESS
            }
            Err(failure) => exit::failed(&failure),
        };
    }
    if http(matches).is_none() && e2b(matches).is_none() && host.stdin_is_terminal {
        render::note("serving a program on standard input, one JSON object per line; Ctrl-D ends it");
    }
    exit::code(serve(matches, host, options).await)
}

async fn serve(matches: &ArgMatches, host: Host, options: &Options) -> Result<(), Failure> {
    let (http, e2b) = (http(matches), e2b(matches));
    // Reports a wrong address before anything is opened.
    http.as_ref().or(e2b.as_ref()).map(Http::address).transpose()?;
    metrics::enable(matches)?;
    let mut options = options.clone();
    if e2b.is_some() {
        // Sandboxes outlive the server until their time is over.
        options.session.get_or_insert_with(|| "e2b".to_owned());
    }
    let process = Process::open(host, &options, Frontend::Serve)?;
    logging::start(&process.context);
    signals::cancel_on_signals(process.context.call.cancel.clone()).map_err(Failure::internal)?;
    let _metrics = metrics::serve(matches, &process.context).await?;
    match e2b {
        Some(e2b) => coracle_e2b::run(&process, &e2b).await,
        None => coracle_serve::run(&process, http.as_ref()).await,
    }
}

/// The HTTP server, unless clients use standard input and output.
pub(super) fn http(matches: &ArgMatches) -> Option<Http> {
    address_of(matches, "http")
}

/// The server of E2B's API.
fn e2b(matches: &ArgMatches) -> Option<Http> {
    address_of(matches, "e2b")
}

/// The server of an option that names its address.
fn address_of(matches: &ArgMatches, flag: &'static str) -> Option<Http> {
    let token_file = matches.try_get_one::<PathBuf>("token-file").ok().flatten().cloned();
    matches.get_one::<String>(flag).map(|address| Http { flag, address: address.clone(), token_file })
}
