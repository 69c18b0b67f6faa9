//! What set-id bits a guest takes off when its container was filled, and before it stops.

use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_client::Link;
use coracle_runtime::Access;
use coracle_types::{Command, ContainerPath, Exec, ExecLimits, Exit, Ids};

use crate::Record;

/// The guest's own program.
const GUEST: &str = "/.coracle/guest";

/// For all directories together.
const WITHIN: Duration = Duration::from_secs(5);

/// What was swept.
#[derive(Debug, Default)]
pub(crate) struct SetIdReport {
    /// Files that lost a bit, on the host.
    pub(crate) paths: Vec<PathBuf>,
    /// There was no time for all.
    pub(crate) cut: bool,
}

/// Takes the set-id bits off what root inside left in directories of the host since the container was made. The filter
/// of commands leaves nothing to do; that this could not be ensured is reported.
pub(crate) async fn take_off(link: &Link, record: &Record) -> SetIdReport {
    let binds: Vec<_> = record.mounts.iter().filter(|it| it.mode == Access::ReadWrite && it.host.is_dir()).collect();
    if binds.is_empty() {
        return SetIdReport::default();
    }
    let since = record.created.as_millisecond().max(0).to_string();
    let words = [GUEST.to_owned(), "sweep".to_owned(), since, WITHIN.as_millis().to_string()];
    let words = words.into_iter().chain(binds.iter().map(|it| it.container.to_string())).collect();
    let mut exec = Exec::new(Command::Argv(words), Ids::ROOT, ContainerPath::root());
    exec.limits = ExecLimits { total: Some(2 * WITHIN), ..ExecLimits::default() };
    match link.exec(exec).await {
        Ok(output) => {
            let text = output.stdout.text();
            let host = |inside: &str| {
                let of = |it: &&crate::RecordedMount| {
                    Path::new(inside).strip_prefix(it.container.as_str()).ok().map(|rest| it.host.join(rest))
                };
                binds.iter().rev().find_map(of)
            };
            let paths = text.split('\0').filter(|it| !it.is_empty()).filter_map(host).collect();
            // A guest that runs in a process of a test's has no program of its own.
            SetIdReport { paths, cut: !matches!(output.exit, Exit::Code(0 | 127)) }
        }
        Err(err) => {
            tracing::warn!(container = %record.name, %err, "what root inside left in host directories is not known");
            SetIdReport { paths: Vec::new(), cut: true }
        }
    }
}
