//! The program to execute: its arguments, and the candidates for its file.

use std::ffi::{CString, NulError};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::env;

/// The shell that runs scripts.
pub(crate) const SHELL: &str = "/bin/sh";

/// The kernel accepts arguments up to 128 KiB; longer scripts are read from a descriptor.
const MAX_SCRIPT: usize = 96 << 10;

/// The search path if the command's environment has none; the default of the C library.
const PATH: &[u8] = b"/bin:/usr/bin";

/// A program with its arguments and its environment.
#[derive(Debug)]
pub(crate) struct Program {
    /// Files to try in turn.
    pub(crate) candidates: Vec<CString>,
    pub(crate) argv: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    /// Opened as [`SCRIPT`](super::SCRIPT) in the child: a script, or a secret that only the child may read.
    pub(crate) script: Option<OwnedFd>,
    /// Whether the program is the shell for a script, not a program that the caller named.
    pub(crate) shell: bool,
}

impl Program {
    /// A program that is looked up in the `PATH` of its own environment.
    ///
    /// # Errors
    /// Fails if an argument or a variable contains a NUL.
    pub(crate) fn from_argv(argv: Vec<Vec<u8>>, environment: Vec<Vec<u8>>) -> Result<Self, NulError> {
        let path = env::value(&environment, b"PATH").unwrap_or(PATH);
        let candidates = candidates(argv.first().map_or(b"", Vec::as_slice), path);
        Ok(Self {
            candidates: strings(candidates)?,
            argv: strings(argv)?,
            environment: strings(environment)?,
            script: None,
            shell: false,
        })
    }

    /// Passes bytes that the program can read once, from a descriptor that cannot be opened through `/proc`, unlike a file
    /// or a pipe.
    ///
    /// # Errors
    /// Fails if the socket cannot be created.
    pub(crate) fn with_secret(mut self, secret: &[u8]) -> io::Result<Self> {
        let (mut ours, theirs) = UnixStream::pair()?;
        // The bytes fit into the socket's buffer, so the write does not block.
        ours.set_nonblocking(true)?;
        ours.write_all(secret)?;
        self.script = Some(theirs.into());
        Ok(self)
    }

    /// The shell with a script.
    ///
    /// # Errors
    /// Fails if the script contains a NUL, or if there is no memory for a long one.
    pub(crate) fn script(script: Vec<u8>, environment: Vec<Vec<u8>>) -> io::Result<Self> {
        let shell = SHELL.as_bytes().to_vec();
        let long = script.len() > MAX_SCRIPT;
        let file = if long { Some(sealed_file(&script)?) } else { None };
        let argv = match long {
            true => vec![shell.clone(), format!("/proc/self/fd/{}", super::SCRIPT).into_bytes()],
            false => vec![shell.clone(), b"-c".to_vec(), script],
        };
        Ok(Self {
            candidates: strings(vec![shell])?,
            argv: strings(argv)?,
            environment: strings(environment)?,
            script: file,
            shell: true,
        })
    }
}

/// Writes bytes to a file in memory that cannot be changed any more.
fn sealed_file(script: &[u8]) -> io::Result<OwnedFd> {
    let mut file: File = memfd_create("script", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into();
    file.write_all(script)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}

/// A name with a slash is a path; any other is looked up in every directory, where an empty one means the current one.
fn candidates(name: &[u8], path: &[u8]) -> Vec<Vec<u8>> {
    if name.is_empty() {
        return Vec::new();
    }
    if name.contains(&b'/') {
        return vec![name.to_vec()];
    }
    let directories = path.split(|byte| *byte == b':').map(|dir| if dir.is_empty() { b"." } else { dir });
    directories.map(|it| [it, b"/", name].concat()).collect()
}

fn strings(all: Vec<Vec<u8>>) -> Result<Vec<CString>, NulError> {
    all.into_iter().map(CString::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_in_the_path() {
        for (name, path, expected) in [
            ("ls", "/a:/b", &["/a/ls", "/b/ls"][..]),
            ("ls", ":/b:", &["./ls", "/b/ls", "./ls"]),
            ("ls", "", &["./ls"]),
            ("./ls", "/a", &["./ls"]),
            ("/bin/ls", "/a", &["/bin/ls"]),
            ("", "/a", &[]),
        ] {
            let found = candidates(name.as_bytes(), path.as_bytes());
            let found: Vec<_> = found.iter().map(|it| str::from_utf8(it).unwrap()).collect();
            assert_eq!(found, expected, "{name} {path}");
        }
    }

    #[test]
    fn a_script_is_one_argument_until_it_is_too_long() {
        let short = Program::script(vec![b'x'; MAX_SCRIPT], Vec::new()).unwrap();
        assert!(short.script.is_none() && short.argv[2].as_bytes().len() == MAX_SCRIPT);
        let long = Program::script(vec![b'x'; MAX_SCRIPT + 1], Vec::new()).unwrap();
        assert!(long.script.is_some() && long.argv.len() == 2);
    }
}
