//! The program to execute: its arguments, and the candidates for its file.

use std::ffi::{CString, NulError};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::env;

/// The shell that reads scripts.
pub(crate) const SHELL: &str = "/bin/sh";

/// The kernel takes 128 KiB for one word; longer scripts are read from a descriptor.
const MAX_SCRIPT: usize = 96 << 10;

/// The search path if the command's environment has none; the default of the C library.
const PATH: &[u8] = b"/bin:/usr/bin";

/// A program with its words and its environment.
#[derive(Debug)]
pub(crate) struct Program {
    /// Files to try in turn.
    pub(crate) candidates: Vec<CString>,
    pub(crate) words: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    /// Opened as [`SCRIPT`](super::SCRIPT) in the child: a script, or a secret that only the child may read.
    pub(crate) script: Option<OwnedFd>,
    /// It is the shell that reads a script, not a program that was asked for.
    pub(crate) shell: bool,
}

impl Program {
    /// Words as they are, looked up along the `PATH` of their own environment.
    ///
    /// # Errors
    /// A NUL in one of them.
    pub(crate) fn words(words: Vec<Vec<u8>>, environment: Vec<Vec<u8>>) -> Result<Self, NulError> {
        let path = env::value(&environment, b"PATH").unwrap_or(PATH);
        let candidates = candidates(words.first().map_or(b"", Vec::as_slice), path);
        Ok(Self {
            candidates: strings(candidates)?,
            words: strings(words)?,
            environment: strings(environment)?,
            script: None,
            shell: false,
        })
    }

    /// Passes bytes that it can read once, by a descriptor that cannot be opened through `/proc`, unlike a file or a
    /// pipe.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn with_secret(mut self, secret: &[u8]) -> io::Result<Self> {
        let (mut ours, theirs) = UnixStream::pair()?;
        // They fit into the socket, so the write does not block.
        ours.set_nonblocking(true)?;
        ours.write_all(secret)?;
        self.script = Some(theirs.into());
        Ok(self)
    }

    /// A script for [`SHELL`].
    ///
    /// # Errors
    /// A NUL in it, or no memory for a long one.
    pub(crate) fn script(script: Vec<u8>, environment: Vec<Vec<u8>>) -> io::Result<Self> {
        let shell = SHELL.as_bytes().to_vec();
        let long = script.len() > MAX_SCRIPT;
        let file = if long { Some(hold(&script)?) } else { None };
        let words = match long {
            true => vec![shell.clone(), format!("/proc/self/fd/{}", super::SCRIPT).into_bytes()],
            false => vec![shell.clone(), b"-c".to_vec(), script],
        };
        Ok(Self {
            candidates: strings(vec![shell])?,
            words: strings(words)?,
            environment: strings(environment)?,
            script: file,
            shell: true,
        })
    }
}

/// Bytes in memory that can be read like a file and not changed.
fn hold(script: &[u8]) -> io::Result<OwnedFd> {
    let mut file: File = memfd_create("script", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into();
    file.write_all(script)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}

/// A word with a slash is a path; any other is looked for in every directory, where an empty one means the current one.
fn candidates(word: &[u8], path: &[u8]) -> Vec<Vec<u8>> {
    if word.is_empty() {
        return Vec::new();
    }
    if word.contains(&b'/') {
        return vec![word.to_vec()];
    }
    let directories = path.split(|byte| *byte == b':').map(|it| if it.is_empty() { b"." } else { it });
    directories.map(|it| [it, b"/", word].concat()).collect()
}

fn strings(all: Vec<Vec<u8>>) -> Result<Vec<CString>, NulError> {
    all.into_iter().map(CString::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_looked_for_along_the_path() {
        for (word, path, expected) in [
            ("ls", "/a:/b", &["/a/ls", "/b/ls"][..]),
            ("ls", ":/b:", &["./ls", "/b/ls", "./ls"]),
            ("ls", "", &["./ls"]),
            ("./ls", "/a", &["./ls"]),
            ("/bin/ls", "/a", &["/bin/ls"]),
            ("", "/a", &[]),
        ] {
            let found = candidates(word.as_bytes(), path.as_bytes());
            let found: Vec<_> = found.iter().map(|it| str::from_utf8(it).unwrap()).collect();
            assert_eq!(found, expected, "{word} {path}");
        }
    }

    #[test]
    fn a_script_is_one_word_until_it_is_too_long() {
        let short = Program::script(vec![b'x'; MAX_SCRIPT], Vec::new()).unwrap();
        assert!(short.script.is_none() && short.words[2].as_bytes().len() == MAX_SCRIPT);
        let long = Program::script(vec![b'x'; MAX_SCRIPT + 1], Vec::new()).unwrap();
        assert!(long.script.is_some() && long.words.len() == 2);
    }
}
