//! `coracle-guest`: the supervisor inside a container.
#![expect(clippy::print_stderr, reason = "nothing else is there to say it")]

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

use coracle_guest::init::ExitReason;
use coracle_guest::protocol::LEFT_ALONE;

const USAGE: &str = "usage: coracle-guest init [--lifeline=SECONDS] | connect | shell PROGRAM [WORDS…] | port [ADDRESS:]PORT | \
    pipe [ADDRESS:]PORT | git-credential ACT | forward CONTAINER | sweep SINCE WITHIN DIR… | env | version";

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["init", lifeline @ ..] => match self::lifeline(lifeline) {
            Some(lifeline) => match run(coracle_guest::init::init(environment(), lifeline)) {
                Ok(ExitReason::Alone) => return ExitCode::from(LEFT_ALONE),
                left => left.map(|_| ()),
            },
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
        ["git-credential", act] => run(coracle_guest::applets::git_credential::helper(act)),
        // The container's id is there for a reader of the list of processes.
        ["forward", _id] => {
            coracle_guest::applets::forward::Forwarder::receive().and_then(|it| run(it.run()))
        }
        ["env"] => print(&environment()),
        ["version"] => {
            eprintln!("coracle-guest {}, protocol {}", env!("CARGO_PKG_VERSION"), coracle_guest::protocol::VERSION);
            Ok(())
        }
        _ => Err(std::io::Error::other(USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("coracle-guest: {err}");
            ExitCode::FAILURE
        }
    }
}

/// Each ended by a NUL: what a host has to know of a session that only this container still has.
fn print(variables: &[Vec<u8>]) -> std::io::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    variables.iter().try_for_each(|it| out.write_all(it).and_then(|()| out.write_all(b"\0")))?;
    out.flush()
}

/// The idle timeout of PID 1; the outer `None` for invalid arguments.
fn lifeline(words: &[&str]) -> Option<Option<Duration>> {
    match words {
        [] => Some(None),
        [word] => {
            let seconds: u64 = word.strip_prefix("--lifeline=")?.parse().ok()?;
            Some(Some(Duration::from_secs(seconds)).filter(|it| !it.is_zero()))
        }
        _ => None,
    }
}

/// `NAME=value` each, as the engine gave it.
#[expect(clippy::disallowed_methods, reason = "what the image says enters here, and nowhere else")]
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
