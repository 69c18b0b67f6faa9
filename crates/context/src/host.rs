//! The host we were started on, inspected once. The only file that reads the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use coracle_types::Secret;

/// The environment of the process. Tests build one; nothing else in the program asks the system for these values.
#[derive(Clone, Debug)]
pub struct Host {
    /// The environment variables.
    pub env: BTreeMap<String, Secret>,
    /// The user's home directory.
    pub home: PathBuf,
    /// The current directory at the start, as a real path; a path that does not exist if it was removed.
    pub cwd: PathBuf,
    /// The user's uid.
    pub uid: u32,
    /// The user's gid.
    pub gid: u32,
    /// `$XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, else `~/.config`.
    pub config_home: PathBuf,
    /// `$XDG_STATE_HOME`, else `~/.local/state`.
    pub state_home: PathBuf,
    /// The socket of the SSH agent.
    pub ssh_agent: Option<PathBuf>,
    /// The default data directory of the embedded engine: below `/var/lib/coracle` for root, else
    /// `$XDG_DATA_HOME/coracle` or `~/.local/share/coracle`.
    pub engine_data: PathBuf,
    /// `$TMPDIR`, else `/tmp`.
    pub temp_dir: PathBuf,
    /// `$CORACLE_CONFIG`.
    pub config_file: Option<PathBuf>,
    /// `$CORACLE_SESSION`.
    pub session: Option<String>,
    /// `$EXECUTION_MODE`: where snippets run.
    pub execution_mode: Option<String>,
    /// `$TERM`, for a shell that a user opens.
    pub terminal_kind: String,
    /// Standard input is a terminal.
    pub stdin_is_terminal: bool,
    /// Standard output is a terminal.
    pub stdout_is_terminal: bool,
    /// Standard error is a terminal.
    pub stderr_is_terminal: bool,
}

/// The user's files cannot be located.
#[derive(Debug, thiserror::Error)]
pub enum NoHost {
    /// There is no home directory.
    #[error("neither `HOME` nor the user's passwd entry names an absolute home directory")]
    Home,
    /// The current directory has no path.
    #[error("the current directory cannot be read")]
    Cwd(#[source] std::io::Error),
}

impl Host {
    /// Reads the process's environment, directory and user.
    ///
    /// # Errors
    /// [`NoHost`].
    pub fn detect() -> Result<Self, NoHost> {
        let home = std::env::home_dir().filter(|it| it.is_absolute()).ok_or(NoHost::Home)?;
        let cwd = current_dir().map_err(NoHost::Cwd)?;
        let vars = variables();
        let dir = |name: &str| vars.get(name).map(PathBuf::from).filter(|it| it.is_absolute());
        let data_home = dir("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"));
        Ok(Self {
            engine_data: engine_data(rustix::process::getuid().is_root(), &data_home),
            runtime_dir: dir("XDG_RUNTIME_DIR"),
            config_home: dir("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
            state_home: dir("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state")),
            ssh_agent: dir("SSH_AUTH_SOCK"),
            temp_dir: dir("TMPDIR").unwrap_or_else(|| "/tmp".into()),
            config_file: vars.get("CORACLE_CONFIG").filter(|it| !it.is_empty()).map(PathBuf::from),
            session: vars.get("CORACLE_SESSION").and_then(|it| it.to_str()).filter(|it| !it.is_empty()).map(Into::into),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            execution_mode: vars.get("EXECUTION_MODE").map(|it| it.to_string_lossy().into_owned()),
            terminal_kind: vars.get("TERM").and_then(|it| it.to_str()).unwrap_or("xterm").to_owned(),
            stdin_is_terminal: std::io::stdin().is_terminal(),
            stdout_is_terminal: std::io::stdout().is_terminal(),
            stderr_is_terminal: std::io::stderr().is_terminal(),
            env: vars.into_iter().map(|(name, value)| (name, Secret::new(value.into_vec()))).collect(),
            home,
            cwd,
        })
    }

    /// A host without files: everything is below one directory, and there is no terminal. For tests and embedding.
    #[must_use]
    pub fn below(dir: &Path) -> Self {
        Self {
            env: BTreeMap::new(),
            home: dir.join("home"),
            cwd: dir.join("work"),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            runtime_dir: None,
            config_home: dir.join("config"),
            state_home: dir.join("state"),
            engine_data: dir.join("data/coracle/engine"),
            ssh_agent: None,
            temp_dir: dir.join("tmp"),
            config_file: None,
            session: None,
            execution_mode: None,
            terminal_kind: "xterm".to_owned(),
            stdin_is_terminal: false,
            stdout_is_terminal: false,
            stderr_is_terminal: false,
        }
    }

    /// The name of this program in traces, if the variables of OpenTelemetry set a collector.
    #[must_use]
    pub fn trace_service(&self) -> Option<String> {
        let text = |name: &str| self.env.get(name).map(|it| String::from_utf8_lossy(it.reveal()).into_owned());
        let set = |name: &str| text(name).filter(|it| !it.is_empty());
        let has_collector = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"].map(set);
        let is_disabled = set("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"));
        let is_traced = !is_disabled && has_collector.iter().any(Option::is_some);
        is_traced.then(|| set("OTEL_SERVICE_NAME").unwrap_or_else(|| "coracle".to_owned()))
    }

    /// Resolves a path as the user writes it: `~/` is the home, and a relative path starts at the current directory.
    #[must_use]
    pub fn path(&self, text: &Path) -> PathBuf {
        match text.strip_prefix("~") {
            Ok(rest) => self.home.join(rest),
            Err(_) => self.cwd.join(text),
        }
    }
}

/// Returns the current directory. For one that was removed, the kernel adds ` (deleted)` to the path, which does not
/// exist; errors of calls that need it show this path.
fn current_dir() -> std::io::Result<PathBuf> {
    let found = std::env::current_dir().and_then(|it| it.canonicalize());
    found.or_else(|err| std::fs::read_link("/proc/self/cwd").map_err(|_| err))
}

/// For root, the directory is one of the system, like Docker's. Links are resolved, since policies compare real paths.
fn engine_data(root: bool, data_home: &Path) -> PathBuf {
    let coracle = if root { PathBuf::from("/var/lib/coracle") } else { data_home.join("coracle") };
    coracle.canonicalize().unwrap_or(coracle).join("engine")
}

/// Returns the variables with names in UTF-8; others cannot be requested.
#[expect(clippy::disallowed_methods, reason = "the environment enters here")]
fn variables() -> BTreeMap<String, OsString> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Host, engine_data};

    #[test]
    fn data_of_the_engine_is_the_systems_for_root_and_else_the_users() {
        assert_eq!(engine_data(true, Path::new("/h/data")), Path::new("/var/lib/coracle/engine"));
        assert_eq!(engine_data(false, Path::new("/h/data")), Path::new("/h/data/coracle/engine"));
    }

    #[test]
    fn paths_are_resolved_as_a_user_writes_them() {
        let host = Host::below(Path::new("/h"));
        let shown = |text: &str| host.path(Path::new(text)).display().to_string();
        assert_eq!(shown("~/x"), "/h/home/x");
        assert_eq!(shown("x"), "/h/work/x");
        assert_eq!(shown("/x"), "/x");
        assert_eq!(shown("~x"), "/h/work/~x");
    }
}
