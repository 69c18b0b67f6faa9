//! Setup without a guest: files are read and written by the engine's archive calls, so that root runs none of the
//! image's programs. Only the exec user's own shell is started, to test that user's access.

use std::fs::File;
use std::io::Read as _;
use std::time::{Duration, Instant};

use coracle_archive::tar::{EntryKind, Reader};
use coracle_archive::transfer::{Error as ArchiveError, Limits, Writer};
use coracle_runtime::{ContainerRuntime, PathKind, path_kind};
use coracle_types::{Command, ContainerId, ContainerPath, Error as Engine, Exec, ExecLimits, ExecOutput, Exit, Ids};

use super::accounts_file::{PasswdEntry, add_group, add_user, find_user};
use super::{UserProbe, UserSetupReport, Workspace, prepared};
use crate::{Error, Result};

/// Maximum size of a passwd or group file.
const MAX_TABLE: u64 = 1 << 20;

/// Login shells in the order of preference.
const SHELLS: [&str; 3] = ["/bin/bash", "/bin/zsh", "/bin/sh"];

/// Runs as the exec user, in `/`: prints the user's ids, and its access to the work directory `$1`.
const PROBE: &str = r#"while read -r key first _; do
  case $key in Uid:) uid=$first ;; Gid:) gid=$first ;; esac
done </proc/self/status
printf '%s\n' "$uid:$gid" "$HOME"
if [ -r ".$1" ] && [ -x ".$1" ]; then if [ -w ".$1" ]; then echo rw; else echo ro; fi; else echo no; fi"#;

pub(super) async fn prepare(
    runtime: &dyn ContainerRuntime,
    id: &ContainerId,
    user: Ids,
    workspace: &Workspace,
) -> Result<UserSetupReport> {
    let begun = Instant::now();
    let files = EngineFiles { runtime, id };
    let account = files.ensure_account(user).await?;
    let home = path(&account.home)?;
    files.ensure_dir(&home, 0o700, user).await?;
    files.ensure_dir(&workspace.path, 0o755, user).await?;
    let mut probe = exec(PROBE, &[workspace.path.to_string()], user);
    probe.env.insert("HOME".into(), account.home.clone());
    let output = runtime.exec(id, probe).await?;
    let lines = answered(&output).map_err(Error::User)?;
    let [ids, probed_home, access] = lines.as_slice() else {
        return Err(Error::User("the probe is incomplete".into()));
    };
    if *probed_home != account.home {
        return Err(Error::User(format!("a process has the home `{probed_home}`")));
    }
    let PasswdEntry { name, home, shell } = account;
    prepared(user, workspace, UserProbe { ids: ids.clone(), name, home: &home, shell: &shell, access }, begun)
}

/// The files of a container, accessed by the engine's archive calls.
struct EngineFiles<'a> {
    runtime: &'a dyn ContainerRuntime,
    id: &'a ContainerId,
}

/// A passwd or group file, with the permission bits to write it back with.
struct AccountTable {
    text: Vec<u8>,
    mode: u32,
}

impl EngineFiles<'_> {
    /// Returns the user's entry, after adding missing entries of user and group.
    async fn ensure_account(&self, user: Ids) -> Result<PasswdEntry> {
        let mut passwd = self.table("passwd").await?;
        let (known, is_new) = match find_user(&passwd.text, user.uid) {
            Some(known) => (known, false),
            None => (add_user(&mut passwd.text, user, &self.shell("").await?), true),
        };
        let mut group = self.table("group").await?;
        let is_new_group = add_group(&mut group.text, user.gid, &known.name);
        let changed = [("passwd", passwd, is_new), ("group", group, is_new_group)];
        let changed: Vec<_> = changed.into_iter().filter(|(_, _, is_changed)| *is_changed).collect();
        if !changed.is_empty() {
            self.ensure_dir(&path("/etc")?, 0o755, Ids::ROOT).await?;
            let mut tar = writer(Ids::ROOT)?;
            for (name, table, _) in &changed {
                tar.file(name, table.mode, &table.text).map_err(Engine::from)?;
            }
            self.upload("/etc", tar).await?;
        }
        Ok(PasswdEntry { shell: self.shell(&known.shell).await?, ..known })
    }

    /// Reads a passwd or group file; an empty one if it is missing.
    async fn table(&self, name: &str) -> Result<AccountTable> {
        let at = path(&format!("/etc/{name}"))?;
        let spool = tempfile::tempfile().map_err(spooled)?;
        let into = spool.try_clone().map_err(spooled)?;
        match self.runtime.download(self.id, &at, into, MAX_TABLE + 4096).await {
            Ok(()) => {}
            // Engines report a missing file like any other error, and an unreadable file must not be replaced by an
            // empty one.
            Err(failure @ Engine::Engine { .. }) => {
                return match path_kind(self.runtime, self.id, &ContainerPath::root()).await? {
                    Some(_) => Ok(AccountTable { text: Vec::new(), mode: 0o644 }),
                    None => Err(failure.into()),
                };
            }
            Err(err) => return Err(err.into()),
        }
        read_table(spool).map_err(spooled)?.ok_or_else(|| Error::User(format!("`{at}` is no regular file")))
    }

    /// Returns the entry's shell if it exists, else the best existing one; `/bin/sh` if there is none at all.
    async fn shell(&self, of_entry: &str) -> Result<String> {
        let of_entry = Some(of_entry).filter(|shell| !shell.ends_with("/nologin") && !shell.ends_with("/false"));
        for shell in of_entry.into_iter().chain(SHELLS) {
            let Ok(at) = path(shell) else { continue };
            if path_kind(self.runtime, self.id, &at).await? == Some(PathKind::File { executable: true }) {
                return Ok(shell.to_owned());
            }
        }
        Ok(SHELLS[2].to_owned())
    }

    /// Creates a missing directory with its parents. The last one is given to `owner`; existing ones are not changed.
    async fn ensure_dir(&self, dir: &ContainerPath, mode: u32, owner: Ids) -> Result<()> {
        let (mut above, mut missing) = (dir.clone(), Vec::new());
        while above != ContainerPath::root() {
            match path_kind(self.runtime, self.id, &above).await? {
                Some(PathKind::Dir) => break,
                Some(_) => return Err(Error::User(format!("`{above}` is no directory"))),
                None => missing.push(above.file_name().to_owned()),
            }
            above = above.parent().unwrap_or_else(ContainerPath::root);
        }
        // The engine unpacks with the owners of the archive, so root's directories come first.
        for (at, name) in missing.iter().enumerate().rev() {
            let is_last = at == 0;
            let (mode, owner) = if is_last { (mode, owner) } else { (0o755, Ids::ROOT) };
            let mut tar = writer(owner)?;
            tar.dir(name, mode, None).map_err(Engine::from)?;
            self.upload(above.as_str(), tar).await?;
            above = above.join(name).map_err(|err| Error::User(err.to_string()))?;
        }
        Ok(())
    }

    async fn upload(&self, at: &str, tar: Writer) -> Result<()> {
        let (tar, _) = tar.finish().map_err(Engine::from)?;
        Ok(self.runtime.upload(self.id, &path(at)?, tar).await?)
    }
}

/// Returns the only file of an archive; `None` for anything else.
fn read_table(spool: File) -> std::io::Result<Option<AccountTable>> {
    let mut reader = Reader::open(spool)?;
    while let Some(entry) = reader.next_entry()? {
        if matches!(entry.kind, EntryKind::File { extents: None, .. }) {
            let mut text = Vec::new();
            reader.take(MAX_TABLE).read_to_end(&mut text)?;
            return Ok(Some(AccountTable { text, mode: entry.mode & 0o777 }));
        }
    }
    Ok(None)
}

fn writer(owner: Ids) -> Result<Writer> {
    let limits = Limits { max_bytes: 4 * MAX_TABLE, max_entries: 16 };
    Ok(Writer::new(tempfile::tempfile().map_err(spooled)?, owner, limits))
}

fn path(text: &str) -> Result<ContainerPath> {
    ContainerPath::parse(text).map_err(|err| Error::User(err.to_string()))
}

fn spooled(source: std::io::Error) -> Error {
    Engine::from(ArchiveError::Io { path: "files of accounts".into(), source }).into()
}

fn exec(program: &str, arguments: &[String], user: Ids) -> Exec {
    let argv = ["/bin/sh", "-c", program, "coracle"].map(str::to_owned).into_iter().chain(arguments.iter().cloned());
    let mut exec = Exec::new(Command::Argv(argv.collect()), user, ContainerPath::root());
    exec.limits = ExecLimits { total: Some(Duration::from_secs(30)), ..ExecLimits::default() };
    exec
}

/// Returns the lines that a constant program printed, or why it failed.
fn answered(output: &ExecOutput) -> Result<Vec<String>, String> {
    if output.exit == Exit::Code(0) {
        return Ok(output.stdout.text().lines().map(str::to_owned).collect());
    }
    let words = output.stderr.text();
    let reason = words.lines().last().unwrap_or("it printed no reason");
    Err(format!("{reason} ({:?})", output.exit))
}
