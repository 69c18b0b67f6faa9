//! Converts a child's status to the error for the caller.

use rustix::io::Errno;

use super::child::SpawnStage;
use super::program::{Program, SHELL};
use crate::os::machine::SpawnError;
use crate::protocol::{ErrorCode, RpcError};

/// Longest argument in bytes, with its NUL, that the kernel accepts.
const MAX_ARGUMENT: usize = 128 << 10;

pub(super) fn explain(step: SpawnStage, errno: Errno, program: &Program, cwd: &str) -> SpawnError {
    match (step, errno) {
        (SpawnStage::Program, Errno::NOENT) if program.shell => {
            fault(ErrorCode::NoShell, format!("a script needs `{SHELL}`, which does not exist"))
        }
        (SpawnStage::Program, Errno::NOENT) => SpawnError::NoProgram,
        (SpawnStage::Program, Errno::ACCESS) => SpawnError::NoPermission("permission denied".into()),
        (SpawnStage::Program, Errno::TOOBIG) => fault(ErrorCode::TooLong, too_long(program)),
        (SpawnStage::Program, Errno::AGAIN | Errno::NOMEM | Errno::IO | Errno::MFILE | Errno::NFILE) => {
            cannot("the program could not be loaded", errno)
        }
        (SpawnStage::Program, _) => SpawnError::NoPermission(describe(errno)),
        (SpawnStage::Interpreter, _) => {
            SpawnError::NoPermission("the interpreter or loader named in the file is missing".into())
        }
        (SpawnStage::Format, _) => SpawnError::NoPermission("the format of the file is unknown".into()),
        (SpawnStage::Directory, Errno::NOENT) => no_directory(cwd, "does not exist"),
        (SpawnStage::Directory, Errno::NOTDIR) => no_directory(cwd, "is not a directory"),
        (SpawnStage::Directory, Errno::ACCESS) => no_directory(cwd, "cannot be entered by the user"),
        (SpawnStage::Directory, _) => no_directory(cwd, &format!("cannot be entered: {}", describe(errno))),
        (SpawnStage::Session, _) => cannot("a new session could not be created", errno),
        (SpawnStage::Descriptors, _) => cannot("its input and output could not be opened", errno),
        (SpawnStage::Terminal, _) => cannot("its terminal could not be set", errno),
        (SpawnStage::Limits, _) => cannot("its limits cannot be set", errno),
        (SpawnStage::User, _) => cannot("the guest may not change to that user", errno),
        (SpawnStage::Filter, _) => cannot("the required seccomp filter cannot be installed", errno),
    }
}

pub(super) fn no_child(errno: Errno) -> RpcError {
    let why = match errno {
        Errno::AGAIN => "the container has reached its limit of processes".to_owned(),
        Errno::MFILE | Errno::NFILE => "the guest has reached its limit of open files".to_owned(),
        other => describe(other),
    };
    RpcError::new(ErrorCode::CannotStart, format!("the command could not be started: {why}"))
}

fn too_long(program: &Program) -> String {
    let lengths = |strings: &[std::ffi::CString]| {
        strings.iter().map(|string| string.as_bytes_with_nul().len()).collect::<Vec<_>>()
    };
    let (argv, environment) = (lengths(&program.argv), lengths(&program.environment));
    let longest = argv.iter().chain(&environment).copied().max().unwrap_or_default();
    if longest > MAX_ARGUMENT {
        let kind = if argv.contains(&longest) { "an argument" } else { "an environment variable" };
        return format!("{kind} of {} bytes; the kernel's limit is {MAX_ARGUMENT} bytes", longest - 1);
    }
    let sum = argv.iter().chain(&environment).sum::<usize>();
    format!(
        "arguments and environment of {sum} bytes: the kernel's limit is a quarter of the stack limit, at most 6 MiB"
    )
}

fn no_directory(cwd: &str, why: &str) -> SpawnError {
    fault(ErrorCode::NoDirectory, format!("the directory `{cwd}` {why}"))
}

fn cannot(what: &str, errno: Errno) -> SpawnError {
    fault(ErrorCode::CannotStart, format!("the command could not be started: {what} ({})", describe(errno)))
}

fn fault(code: ErrorCode, message: String) -> SpawnError {
    SpawnError::Fault(RpcError::new(code, message))
}

/// The system's text, as a fragment of a sentence.
fn describe(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text[..1].to_lowercase() + &text[1..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(argument: usize, environment: usize) -> Program {
        Program::from_argv(vec![vec![b'x'; argument]], vec![vec![b'y'; environment]]).unwrap()
    }

    #[test]
    fn the_error_names_the_part_that_is_too_long() {
        for (program, expected) in [
            (program(200 << 10, 1), "an argument of 204800 bytes"),
            (program(1, 200 << 10), "an environment variable of 204800 bytes"),
            (program(1000, 500), "arguments and environment of 1502 bytes"),
        ] {
            let message = too_long(&program);
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn only_a_missing_shell_is_a_fault() {
        let explained = |program: &Program| explain(SpawnStage::Program, Errno::NOENT, program, "/");
        assert_eq!(explained(&program(1, 1)), SpawnError::NoProgram);
        let script = Program::script(b"ls".to_vec(), Vec::new()).unwrap();
        let SpawnError::Fault(fault) = explained(&script) else { panic!("a fault") };
        assert_eq!(
            (fault.code, &*fault.message),
            (ErrorCode::NoShell, "a script needs `/bin/sh`, which does not exist")
        );
    }

    #[test]
    fn the_error_for_the_limit_of_processes_is_specific() {
        let fault = no_child(Errno::AGAIN);
        assert_eq!(fault.code, ErrorCode::CannotStart);
        assert!(fault.message.ends_with("the container has reached its limit of processes"), "{fault}");
        assert!(no_child(Errno::NOMEM).message.ends_with("annot allocate memory"));
    }
}
