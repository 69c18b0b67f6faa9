//! `coracle completions SHELL`, and the man pages, generated from the command line.

use std::fs::create_dir_all;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use coracle_context::Failure;

use super::exit;
use super::stdio::write_stdout;

const MAN: &str = "man-pages";

/// The subcommand for users.
pub(super) fn command() -> Command {
    let shells = value_parser!(Shell);
    let shell = Arg::new("shell").value_name("SHELL").required(true).value_parser(shells).help("Your shell");
    Command::new("completions").about("Print the completions of a shell, for it to read").arg(shell)
}

/// The hidden subcommand for packages.
pub(super) fn man_command() -> Command {
    let dir = Arg::new("dir").value_name("DIR").required(true).value_parser(value_parser!(PathBuf));
    let dir = dir.help("Where they are written; it is made if missing");
    Command::new(MAN).about("Write a page for `man` for each command").arg(dir).hide(true)
}

/// Runs one of the two; `None` for another command. `root` returns the command line with all options.
pub(super) fn run(matches: &ArgMatches, root: impl FnOnce() -> Command) -> Option<ExitCode> {
    let done = match matches.subcommand()? {
        ("completions", matches) => {
            print(*matches.get_one::<Shell>("shell")?, root());
            Ok(())
        }
        (MAN, matches) => write_pages(matches.get_one::<PathBuf>("dir")?, root()),
        _ => return None,
    };
    Some(exit::code(done.map_err(Failure::internal)))
}

fn print(shell: Shell, mut root: Command) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root, "coracle", &mut script);
    let _ = write_stdout(&script);
}

fn write_pages(dir: &Path, root: Command) -> io::Result<()> {
    create_dir_all(dir)?;
    clap_mangen::generate_to(root, dir)
}
