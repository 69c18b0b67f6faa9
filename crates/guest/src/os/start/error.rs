//! Converts a child's last message to the caller's error.

use rustix::io::Errno;

use super::child::SpawnStage;
use super::program::{Program, SHELL};
use crate::os::machine::SpawnError;
use crate::protocol::{ErrorCode, RpcError};

/// Bytes of one word, with its NUL, that the kernel takes.
const MAX_ARGUMENT: usize = 128 << 10;

/// Why a child failed.
pub(super) fn explain(step: SpawnStage, errno: Errno, program: &Program, cwd: &str) -> SpawnError {
    match (step, errno) {
        (SpawnStage::Program, Errno::NOENT) if program.shell => {
            fault(ErrorCode::NoShell, format!("a script needs `{SHELL}`, and there is none"))
        }
        (SpawnStage::Program, Errno::NOENT) => SpawnError::NoProgram,
        (SpawnStage::Program, Errno::ACCESS) => SpawnError::NoPermission("permission denied".into()),
        (SpawnStage::Program, Errno::TOOBIG) => fault(ErrorCode::TooLong, too_long(program)),
        (SpawnStage::Program, Errno::AGAIN | Errno::NOMEM | Errno::IO | Errno::MFILE | Errno::NFILE) => {
            cannot("the program could not be loaded", errno)
        }
        (SpawnStage::Program, _) => SpawnError::NoPermission(describe(errno)),
        (SpawnStage::Interpreter, _) => {
            SpawnError::NoPermission("the interpreter or loader that the file names is missing".into())
        }
        (SpawnStage::Format, _) => SpawnError::NoPermission("the format of the file is unknown".into()),
        (SpawnStage::Directory, Errno::NOENT) => no_directory(cwd, "does not exist"),
        (SpawnStage::Directory, Errno::NOTDIR) => no_directory(cwd, "is not a directory"),
        (SpawnStage::Directory, Errno::ACCESS) => no_directory(cwd, "cannot be entered by the user"),
        (SpawnStage::Directory, _) => no_directory(cwd, &format!("cannot be entered: {}", describe(errno))),
        (SpawnStage::Session, _) => cannot("no session of its own", errno),
        (SpawnStage::Descriptors, _) => cannot("no input and output", errno),
        (SpawnStage::Terminal, _) => cannot("no terminal", errno),
        (SpawnStage::Limits, _) => cannot("its limits cannot be set", errno),
        (SpawnStage::User, _) => cannot("the guest may not change to that user", errno),
        (SpawnStage::Filter, _) => {
            cannot("the filter for system calls cannot be installed, and without it nothing runs", errno)
        }
    }
}

/// Why no child was created.
pub(super) fn no_child(errno: Errno) -> RpcError {
    let why = match errno {
        Errno::AGAIN => "the container has as many processes as it may".to_owned(),
        Errno::MFILE | Errno::NFILE => "the guest has as many files open as it may".to_owned(),
        other => describe(other),
    };
    RpcError::new(ErrorCode::CannotStart, format!("the command could not be started: {why}"))
}

fn too_long(program: &Program) -> String {
    let lengths = |all: &[std::ffi::CString]| all.iter().map(|it| it.as_bytes_with_nul().len()).collect::<Vec<_>>();
    let (words, environment) = (lengths(&program.words), lengths(&program.environment));
    let longest = words.iter().chain(&environment).copied().max().unwrap_or_default();
    if longest > MAX_ARGUMENT {
        let kind = if words.contains(&longest) { "an argument" } else { "an environment variable" };
        return format!("{kind} of {} bytes: the kernel takes less than {MAX_ARGUMENT} for one", longest - 1);
    }
    let sum = words.iter().chain(&environment).sum::<usize>();
    format!("arguments and environment of {sum} bytes: the kernel takes a quarter of the stack limit, at most 6 MiB")
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

/// The system's own words, as a fragment of a sentence.
fn describe(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text[..1].to_lowercase() + &text[1..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(word: usize, environment: usize) -> Program {
        Program::words(vec![vec![b'x'; word]], vec![vec![b'y'; environment]]).unwrap()
    }

    #[test]
    fn what_is_too_long_is_said() {
        for (it, expected) in [
            (program(200 << 10, 1), "an argument of 204800 bytes"),
            (program(1, 200 << 10), "an environment variable of 204800 bytes"),
            (program(1000, 500), "arguments and environment of 1502 bytes"),
        ] {
            let said = too_long(&it);
            assert!(said.starts_with(expected), "{said}");
        }
    }

    #[test]
    fn a_missing_program_is_no_fault_and_a_missing_shell_is() {
        let explained = |program: &Program| explain(SpawnStage::Program, Errno::NOENT, program, "/");
        assert_eq!(explained(&program(1, 1)), SpawnError::NoProgram);
        let script = Program::script(b"ls".to_vec(), Vec::new()).unwrap();
        let SpawnError::Fault(fault) = explained(&script) else { panic!("a fault") };
        assert_eq!((fault.code, &*fault.message), (ErrorCode::NoShell, "a script needs `/bin/sh`, and there is none"));
    }

    #[test]
    fn the_pids_limit_is_told_apart() {
        let fault = no_child(Errno::AGAIN);
        assert_eq!(fault.code, ErrorCode::CannotStart);
        assert!(fault.message.ends_with("the container has as many processes as it may"), "{fault}");
        assert!(no_child(Errno::NOMEM).message.ends_with("annot allocate memory"));
    }
}
