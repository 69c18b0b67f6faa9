//! The image's git, run inside as the session's user on a repository outside of the workspace.
//!
//! Git runs with our own configuration only, without hooks, and with every filter of the repository disabled: the user
//! could have written those files. Repositories in the workspace do not matter: none of them is opened.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use coracle_client::WriteFile;
use coracle_host::hardened as git;
use coracle_host::hardened::Side;
use coracle_protocol::{ErrorCode, FileRef, UserSpec};
use coracle_types::{Command, ContainerPath, Error, Excerpt, Exec, Exit, Input, random_hex};

use super::{FsError, GuestFs, Result};

/// The repository, in the user's home.
const REPOSITORY: &str = ".coracle/snapshots.git";

/// Limit for commands that read or write a whole workspace.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(600);

/// Bytes of names that are read.
const MAX_OUTPUT: usize = 16 << 20;

/// Files are stored byte for byte, under any name that Linux allows. These attributes win over a `.gitattributes` in
/// the workspace.
const ATTRIBUTES: &str = "* -text !eol !ident !filter !working-tree-encoding\n";
const SETTINGS: [&str; 9] = [
    "core.autocrlf=false",
    "core.safecrlf=false",
    "core.symlinks=true",
    "core.fileMode=true",
    "core.ignoreCase=false",
    "core.precomposeUnicode=false",
    "core.protectNTFS=false",
    "core.protectHFS=false",
    "core.sparseCheckout=false",
];

/// Takes away what is in no index: twice forced, also ignored files and whole repositories.
pub(super) const CLEAN: &[&str] = &["clean", "--quiet", "-d", "-x", "--force", "--force"];

/// How often the repository is searched for, and the pause after a failed creation.
const ATTEMPTS: u32 = 6;
const RETRY_PAUSE: Duration = Duration::from_millis(50);

const NO_GIT: &str = "there is no git in the image";

/// A git that works with an index of its own.
pub(super) struct IndexGit<'a> {
    fs: &'a GuestFs,
    /// The repository, without a slash at its start.
    repository: String,
    index: String,
    env: BTreeMap<String, String>,
}

impl<'a> IndexGit<'a> {
    /// Makes the repository if there is none.
    pub(super) async fn open(fs: &'a GuestFs) -> Result<Self> {
        let home = fs.home.get_or_try_init(|| home(fs)).await?;
        if home.is_beneath(fs.root.as_str()) {
            return Err(FsError::Unsupported("the user's home lies in the workspace"));
        }
        let repository = home.join(REPOSITORY).map_err(|_| FsError::Unsupported("the user's home has no path"))?;
        let repository = repository.as_str().trim_start_matches('/').to_owned();
        let index = format!("index-{}", random_hex::<8>());
        let mut it = Self { fs, repository, index, env: BTreeMap::new() };
        it.stand().await?;
        let content = Input::Bytes(ATTRIBUTES.into());
        let at = it.file("info/attributes");
        fs.link.put(WriteFile { at, mode: Some(0o644), exact: true, parents: true, replace: true, content }).await?;
        let filters = it.run("", git::LIST_FILTERS).await?;
        it.env = git::without_filters(&filters.stdout);
        Ok(it)
    }

    /// Sees to it that the repository is there, and outside of the workspace. Only what is not there is made: `init` rewrites
    /// a configuration, and two of them get into each other's way.
    async fn stand(&self) -> Result<()> {
        let mut left = ATTEMPTS;
        let (repository, top) = loop {
            let output = self.run("", &["rev-parse", "--absolute-git-dir", "--show-toplevel"]).await?;
            let places = String::from_utf8_lossy(&output.stdout).into_owned();
            if let Some((repository, top)) = places.trim_end().split_once('\n').filter(|_| output.ok()) {
                break (repository.to_owned(), top.to_owned());
            }
            let init = ["init", "--quiet", "--bare", "--template=", &self.from("")];
            let made = self.ended("", words(&[], &init)).await?;
            left -= 1;
            if left == 0 {
                made.good()?;
                return Err(FsError::Git("its repository cannot be made".into()));
            }
            if !made.ok() {
                // Another process is creating it, or was killed while doing so.
                tokio::time::sleep(RETRY_PAUSE).await;
                if left == 1 {
                    let _ = self.fs.link.remove(self.file("config.lock"), false).await;
                }
            }
        };
        if Path::new(&repository).starts_with(&top) {
            return Err(FsError::Unsupported("the user's home leads into the workspace"));
        }
        Ok(())
    }

    /// The repository as it is named in a directory of the workspace. Relative names are the same wherever the
    /// container's root lies.
    fn from(&self, dir: &str) -> String {
        let depth = self.fs.root.parts().count() + dir.split('/').filter(|it| !it.is_empty()).count();
        format!("{}{}", "../".repeat(depth), self.repository)
    }

    fn file(&self, name: &str) -> FileRef {
        let user = UserSpec::Ids { uid: self.fs.user.uid, gid: Some(self.fs.user.gid) };
        FileRef { user, path: format!("/{}/{name}", self.repository), follow: false }
    }

    fn argv(&self, dir: &str, arguments: &[&str]) -> Vec<String> {
        words(&[format!("--git-dir={}", self.from(dir)), "--work-tree=.".into()], arguments)
    }

    /// Runs it in a directory of the workspace, whose files it is about.
    pub(super) async fn run(&self, dir: &str, words: &[&str]) -> Result<GitOutput> {
        self.ended(dir, self.argv(dir, words)).await
    }

    /// The output of a successful git.
    pub(super) async fn printed(&self, dir: &str, words: &[&str]) -> Result<Vec<u8>> {
        self.run(dir, words).await?.good()
    }

    /// The same for a command that reports omissions on standard error, and exits with 0 all the same.
    pub(super) async fn printed_whole(&self, dir: &str, words: &[&str]) -> Result<Vec<u8>> {
        self.run(dir, words).await?.silent()
    }

    /// The same with an input, from the root of the workspace.
    pub(super) async fn fed(&self, words: &[&str], stdin: Vec<u8>) -> Result<Vec<u8>> {
        let exec = self.exec("", self.argv("", words))?;
        self.run_exec(Exec { stdin: Some(Input::Bytes(stdin)), ..exec }).await?.silent()
    }

    /// Takes away all that is in a repository of the workspace but what it is itself.
    pub(super) async fn empty(&self, dir: &str) -> Result<GitOutput> {
        let mut exec = self.exec(dir, self.argv(dir, CLEAN))?;
        exec.env.insert("GIT_INDEX_FILE".into(), format!("{}/{}-none", self.from(dir), self.index));
        self.run_exec(exec).await
    }

    async fn ended(&self, dir: &str, argv: Vec<String>) -> Result<GitOutput> {
        self.run_exec(self.exec(dir, argv)?).await
    }

    fn exec(&self, dir: &str, argv: Vec<String>) -> Result<Exec> {
        let workdir = self.fs.root.join(dir).map_err(|_| FsError::invalid(dir, "has a name that git is not given"))?;
        let mut exec = Exec::new(Command::Argv(argv), self.fs.user, workdir);
        let env = git::environment(Side::Inside).chain(git::as_ourselves());
        exec.env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        exec.env.extend(self.env.clone());
        exec.env.insert("GIT_INDEX_FILE".into(), format!("{}/{}", self.from(dir), self.index));
        exec.keep_bytes = 2 * MAX_OUTPUT;
        Ok(exec)
    }

    async fn run_exec(&self, exec: Exec) -> Result<GitOutput> {
        run(self.fs, exec).await
    }

    /// Removes the index. Errors are ignored: the next one has its own.
    pub(super) async fn close(self) {
        let _ = self.fs.link.remove(self.file(&self.index), false).await;
    }
}

/// A git about a place, with our settings.
fn words(place: &[String], arguments: &[&str]) -> Vec<String> {
    let settings = git::settings(Side::Inside).chain(SETTINGS).flat_map(|it| ["-c", it]);
    let fixed = ["git", "--no-pager"].into_iter().chain(place.iter().map(String::as_str));
    fixed.chain(settings).chain(arguments.iter().copied()).map(str::to_owned).collect()
}

/// The result of a git.
#[derive(Debug)]
pub(super) struct GitOutput {
    exit: Exit,
    pub(super) stdout: Vec<u8>,
    whole: bool,
    stderr: Vec<u8>,
}

impl GitOutput {
    pub(super) fn ok(&self) -> bool {
        self.exit == Exit::Code(0)
    }

    /// Its output, of which nothing is missing, and it complained of nothing.
    pub(super) fn silent(self) -> Result<Vec<u8>> {
        if self.ok() && !self.stderr.is_empty() {
            return Err(FsError::Git(Excerpt::from_bytes(&self.stderr).to_string()));
        }
        self.good()
    }

    /// Its output, of which nothing is missing.
    pub(super) fn good(self) -> Result<Vec<u8>> {
        match self.exit {
            Exit::Code(0) if self.whole => Ok(self.stdout),
            Exit::Code(0) => Err(FsError::Git(format!("it printed more than {MAX_OUTPUT} bytes"))),
            Exit::TimedOut(_) => Err(FsError::Git(format!("it took longer than {} s", TRANSFER_TIMEOUT.as_secs()))),
            _ => Err(FsError::Git(Excerpt::from_bytes(&self.stderr).to_string())),
        }
    }
}

async fn run(fs: &GuestFs, mut exec: Exec) -> Result<GitOutput> {
    exec.limits.total = Some(TRANSFER_TIMEOUT);
    let output = match fs.link.exec(exec).await {
        Ok(output) => output,
        Err(Error::Refused(fault)) if fault.code == ErrorCode::NoProgram => return Err(FsError::Unsupported(NO_GIT)),
        Err(Error::NoSuchPath(path)) => return Err(FsError::NotFound(path.to_string())),
        Err(err) => return Err(err.into()),
    };
    // The shell's code for a missing program.
    if output.exit == Exit::Code(127) {
        return Err(FsError::Unsupported(NO_GIT));
    }
    let whole = output.stdout.left_out() == 0;
    let mut stdout = output.stdout.head().to_vec();
    stdout.extend(output.stdout.tail());
    Ok(GitOutput { exit: output.exit, stdout, whole, stderr: output.stderr.text().into_bytes() })
}

/// The user's home, as git expands it: git is the one program that must be installed anyway.
async fn home(fs: &GuestFs) -> Result<ContainerPath> {
    const NONE: FsError = FsError::Unsupported("the user has no home");
    let argv = ["git", "-c", "coracle.home=~/", "config", "--type=path", "--get", "coracle.home"].map(str::to_owned);
    let mut exec = Exec::new(Command::Argv(argv.to_vec()), fs.user, ContainerPath::root());
    let env = git::environment(Side::Inside).filter(|it| it.0 != "HOME").chain([("GIT_DIR", "/nonexistent")]);
    exec.env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let output = run(fs, exec).await?;
    if !output.ok() {
        return Err(NONE);
    }
    let home = String::from_utf8(output.stdout).map_err(|_| NONE)?;
    ContainerPath::parse(home.trim_end_matches('\n')).map_err(|_| NONE)
}
