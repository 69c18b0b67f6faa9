//! `coracle serve`: operations and tools for a program.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
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
    let settings = "Keys of the configuration over those of its file, such as '{\"max_containers\": 100}'";
    Command::new("serve")
        .about(about)
        .args([option("http", "ADDRESS:PORT", http), token_file(), option("settings", "JSON", settings), openapi])
        .arg(metrics::arg())
}

/// The option for the file of the token.
pub(super) fn token_file() -> Arg {
    let about = "What clients have to send, in a file of mode 0600; made if missing [default: in the state directory]";
    option("token-file", "FILE", about).value_parser(value_parser!(PathBuf)).requires("http")
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
    let http = http(matches);
    if http.is_none() && host.stdin_is_terminal {
        render::note("serving a program on standard input, one JSON object per line; Ctrl-D ends it");
    }
    exit::code(serve(matches, host, options, http.as_ref()).await)
}

async fn serve(matches: &ArgMatches, host: Host, options: &Options, http: Option<&Http>) -> Result<(), Failure> {
    // Reports a wrong address before anything is opened.
    http.map(Http::address).transpose()?;
    metrics::enable(matches)?;
    let process = Process::open(host, options, Frontend::Serve)?;
    logging::start(&process.context);
    signals::cancel_on_signals(process.context.call.cancel.clone()).map_err(Failure::internal)?;
    let _metrics = metrics::serve(matches, &process.context).await?;
    coracle_serve::run(&process, http).await
}

/// The HTTP server, unless clients use standard input and output.
pub(super) fn http(matches: &ArgMatches) -> Option<Http> {
    let token_file = matches.try_get_one::<PathBuf>("token-file").ok().flatten().cloned();
    matches.get_one::<String>("http").map(|address| Http { flag: "http", address: address.clone(), token_file })
}
