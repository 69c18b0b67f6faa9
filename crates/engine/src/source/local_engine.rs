//! Images of Docker and Podman on this machine, through their `save`.

use std::ffi::OsString;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use coracle_host::find_program::find_program_in;
use coracle_host::process::{Invocation, Stdin, exit_of, run, spawn};
use coracle_types::{Excerpt, ImageRef};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStderr;

use super::layout::unblock;
use super::scratch::{Scratch, ScratchFile};
use super::{ImageSource, Result, SourceError, open_archive};
use crate::options::RegistryOptions;

/// Maximum size of a saved image, in bytes.
const MAX_SAVED: u64 = 128 << 30;

/// How many bytes of the program's output are retained.
const MAX_OUTPUT: u64 = 8 << 10;

/// The time limit for finding the id of an image.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(60);

/// An engine that can save its images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalEngine {
    Docker,
    Podman,
}

impl LocalEngine {
    fn program(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// The arguments of `save`. Podman's own format would compress each layer.
    fn save_arguments(self, id: &str) -> Vec<OsString> {
        let words: &[&str] = match self {
            Self::Docker => &["image", "save", "--", id],
            Self::Podman => &["image", "save", "--format=docker-archive", "--", id],
        };
        words.iter().map(OsString::from).collect()
    }
}

/// Saves an image of another engine to a nameless file in `scratch`. `image` is its name or id in that engine.
///
/// # Errors
/// [`SourceError::Engine`] if the program is missing, [`SourceError::Program`] if it fails.
pub(crate) async fn save_from_engine(
    engine: LocalEngine,
    image: &ImageRef,
    options: &RegistryOptions,
    scratch: &Scratch,
) -> Result<Arc<dyn ImageSource>> {
    let program = find_program_in(engine.program(), &options.program_dirs)?;
    let invocation = |words: Vec<OsString>| {
        let invocation = Invocation::new(&program, words);
        Invocation { env: options.program_env.clone(), ..invocation }
    };
    // Saves it by id: for a name without a tag, Docker saves the images of all tags.
    let words = ["image", "inspect", "--format={{.Id}}", "--", &image.to_string()];
    let words = words.into_iter().map(OsString::from).collect();
    let output = run("image inspect", &invocation(words), Stdin::Empty, (INSPECT_TIMEOUT, MAX_OUTPUT as usize)).await?;
    if !output.ok() {
        let excerpt = Excerpt::from_bytes(&output.stderr.bytes());
        return Err(SourceError::Program { program: engine.program(), exit: output.exit, excerpt });
    }
    let invocation = invocation(engine.save_arguments(output.stdout.text().trim()));
    let file = scratch.create_file().map_err(SourceError::io("cannot save an image"))?;
    let file = save(engine, &invocation, file).await?;
    let scratch = scratch.clone();
    unblock(move || open_archive(file, None, &scratch)).await
}

async fn save(engine: LocalEngine, invocation: &Invocation, file: ScratchFile) -> Result<File> {
    let failed = || SourceError::io("cannot save an image");
    let mut child = spawn(invocation, Stdin::Empty)?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(failed()(std::io::ErrorKind::BrokenPipe.into()));
    };
    let ScratchFile { file, mut guard } = file;
    let mut file = tokio::fs::File::from_std(file);
    let mut limited = stdout.take(MAX_SAVED + 1);
    let copied = async {
        let (mut size, mut buffer) = (0, vec![0; 1 << 20]);
        loop {
            match limited.read(&mut buffer).await? {
                0 => break,
                count => {
                    file.write_all(&buffer[..count]).await?;
                    guard.written(count as u64)?;
                    size += count as u64;
                }
            }
        }
        file.flush().await?;
        Ok(size)
    };
    let words = tokio::spawn(error_output(stderr));
    let size = copied.await;
    let size = size.map_err(failed())?;
    if size > MAX_SAVED {
        return Err(SourceError::too_large("archive", MAX_SAVED));
    }
    let exit = exit_of(child.wait().await.map_err(failed())?);
    if exit != 0 {
        return Err(SourceError::Program {
            program: engine.program(),
            exit,
            excerpt: Excerpt::from_bytes(&words.await.unwrap_or_default()),
        });
    }
    Ok(file.into_std().await)
}

/// The beginning of a program's standard error. The rest is read and discarded.
async fn error_output(mut stderr: ChildStderr) -> Vec<u8> {
    let mut output = Vec::new();
    let _ = (&mut stderr).take(MAX_OUTPUT).read_to_end(&mut output).await;
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    output
}
