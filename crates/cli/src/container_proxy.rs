//! The process that runs the proxy of one container, which commands start and leave behind.

use clap::{Arg, ArgMatches, Command};
use coracle_context::container_proxy;
use coracle_context::proxy_process::COMMAND;
use coracle_context::{Failure, Host, Options};

use super::startup;

/// The subcommand.
pub(super) fn command() -> Command {
    let container = Arg::new("container").value_name("CONTAINER").required(true).help("Its name");
    Command::new(COMMAND).about("Run the proxy of a container until it stops").hide(true).arg(container)
}

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> Result<(), Failure> {
    // Ctrl-C at the terminal and its end concern the command that started this process. Fails for the leader of a
    // process group, as which a shell starts it.
    let _ = rustix::process::setsid();
    let cx = startup::open_configured(host, options)?.context;
    // The directory of the command may be removed, or its file system unmounted.
    std::env::set_current_dir("/").map_err(Failure::internal)?;
    let name = matches.get_one::<String>("container").map_or("", String::as_str);
    Box::pin(container_proxy::serve(&cx, name)).await
}
