//! `coracle-guest`: the supervisor inside a container.
#![expect(clippy::print_stderr, reason = "standard error is the only place for a message")]

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

use coracle_guest::applets::forward::{self, Forwarder};
use coracle_guest::exit_status;
use coracle_guest::init::ExitReason;
use coracle_guest::protocol::IDLE_EXIT_CODE;
use coracle_guest::run::RunOptions;

const USAGE: &str = "usage: coracle-guest init [--lifeline=SECONDS] [--exit-fd=N] | \
    run [--gate] [--exit-fd=N] [--log-max=BYTES] [--grace=SECONDS] [--user=UID:GID] [--workdir=DIR] -- PROGRAM [ARGS…] | connect | shell PROGRAM [ARGS…] | port [ADDRESS:]PORT | \
    pipe [ADDRESS:]PORT | git-credential ACTION | forward CONTAINER | sftp | sweep SINCE WITHIN DIR… | env | version";

/// Makes cargo link this program again after `cargo xtask guest` has linked it statically, and the other way round.
const _: Option<&str> = option_env!("CORACLE_STATIC_PROGRAM");

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|it| it == "run") {
        return run_program();
    }
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["init", options @ ..] => match InitOptions::parse(options) {
            Some(options) => return init(&options),
            None => Err(std::io::Error::other(USAGE)),
        },
        ["connect"] => run(coracle_guest::applets::connect::connect()),
        ["shell", program, more @ ..] => {
            coracle_guest::applets::login_shell::shell(program, more, &environment()).map(|never| match never {})
        }
        ["port", port] => run(coracle_guest::applets::check_port::port(port)),
        ["pipe", port] => run(coracle_guest::applets::tcp_stdio::pipe(port)),
        ["sweep", since_ms, within_ms, roots @ ..] => {
            match coracle_guest::applets::clear_suid::sweep(since_ms, within_ms, roots) {
                Ok(false) => return ExitCode::from(coracle_guest::applets::clear_suid::CUT),
                done => done.map(drop),
            }
        }
        ["git-credential", action] => run(coracle_guest::applets::git_credential::helper(action)),
        // The container's id is only for people who read the process list.
        ["forward", _id] => Forwarder::receive().and_then(|it| run(it.run())).inspect_err(forward::report),
        ["sftp"] => coracle_guest::applets::sftp::serve(),
        ["env"] => print(&environment()),
        ["version"] => {
            eprintln!("coracle-guest {}, protocol {}", env!("CARGO_PKG_VERSION"), coracle_guest::protocol::VERSION);
            Ok(())
        }
        _ => Err(std::io::Error::other(USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => failure(&err).into(),
    }
}

fn failure(error: &std::io::Error) -> u8 {
    eprintln!("coracle-guest: {error}");
    1
}

/// PID 1 with a supervisor.
fn init(options: &InitOptions) -> ExitCode {
    exit_status::report(options.exit_fd, || match run(coracle_guest::init::init(environment(), options.lifeline)) {
        Ok(ExitReason::Idle) => IDLE_EXIT_CODE,
        Ok(ExitReason::Stopped) => 0,
        Err(error) => failure(&error),
    })
}

/// PID 1 for a program of the image, whose arguments may be any bytes.
fn run_program() -> ExitCode {
    let Some(options) = RunOptions::parse(std::env::args_os().skip(2)) else {
        return failure(&std::io::Error::other(USAGE)).into();
    };
    exit_status::report(options.exit_fd(), || coracle_guest::run::run(&options).unwrap_or_else(|error| failure(&error)))
}

/// Prints each variable with a NUL after it: the host reads them to restore a session whose state it lost.
fn print(variables: &[Vec<u8>]) -> std::io::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    variables.iter().try_for_each(|it| out.write_all(it).and_then(|()| out.write_all(b"\0")))?;
    out.flush()
}

#[derive(Default)]
struct InitOptions {
    /// The idle timeout.
    lifeline: Option<Duration>,
    exit_fd: Option<i32>,
}

impl InitOptions {
    /// `None` for invalid arguments.
    fn parse(args: &[&str]) -> Option<Self> {
        let mut it = Self::default();
        for arg in args {
            match arg.split_once('=')? {
                ("--lifeline", value) => {
                    it.lifeline = Some(Duration::from_secs(value.parse().ok()?)).filter(|it| !it.is_zero());
                }
                ("--exit-fd", value) => it.exit_fd = Some(value.parse().ok()?),
                _ => return None,
            }
        }
        Some(it)
    }
}

/// The environment that the engine passed, as `NAME=value` each.
#[expect(clippy::disallowed_methods, reason = "the only place that reads the environment of the image")]
fn environment() -> Vec<Vec<u8>> {
    std::env::vars_os().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat()).collect()
}

/// Runs everything in one thread, except blocking file operations.
fn run<T>(work: impl Future<Output = std::io::Result<T>>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(8).build()?;
    let done = runtime.block_on(work);
    // A pending read of standard input must not delay the exit.
    runtime.shutdown_background();
    done
}
