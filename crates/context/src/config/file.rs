//! Reads the configuration file. Errors have the key and the line.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::errors::faults;
use super::{Config, Preset, remote, strict};
use crate::failure::Failure;
use crate::host::Host;
use crate::suggest;

/// Maximum size of a configuration file.
const MAX_BYTES: u64 = 1 << 20;

impl Config {
    /// Reads `file`, else `$CORACLE_CONFIG`, else `$XDG_CONFIG_HOME/coracle/config.toml` if that exists. `settings` is
    /// a JSON object, whose keys override those of the file.
    ///
    /// # Errors
    /// `config_invalid`, with key and line.
    pub fn load(file: Option<&Path>, settings: Option<&str>, host: &Host) -> Result<Self, Failure> {
        let named = file.or(host.config_file.as_deref()).is_some();
        let path = Self::location(file, host);
        let json = path.extension().is_some_and(|it| it == "json");
        let config = match text(&path) {
            Ok(text) => Self::read_under(&text, json, settings),
            Err(err) if err.kind() == io::ErrorKind::NotFound && !named => Self::read_under("", false, settings),
            Err(err) => {
                Err(Failure::config("", None, format!("cannot read the configuration `{}`: {err}", path.display())))
            }
        };
        config.map_err(|it| it.detail("file", &path)).map(|it| it.with_real_paths(host))
    }

    /// The path of the configuration file, whether it exists or not.
    #[must_use]
    pub fn location(file: Option<&Path>, host: &Host) -> PathBuf {
        let named = file.or(host.config_file.as_deref()).map(|it| host.path(it));
        named.unwrap_or_else(|| host.config_home.join("coracle/config.toml"))
    }

    /// Parses TOML, or JSON with the same keys.
    ///
    /// # Errors
    /// `config_invalid`, with key and line.
    pub fn read(text: &str, json: bool) -> Result<Self, Failure> {
        let config: Self = if json { from_json(text)? } else { from_toml(text)? };
        // Parsed completely first, so that an error has the line of the user's own text.
        let defaults = match config.policy {
            Preset::Strict => Some(strict::defaults()),
            _ => config.has_remote_engine().then(remote::defaults),
        };
        let config = match defaults {
            Some(defaults) => with_defaults(defaults, text, json)?,
            None => config,
        };
        let faults = faults(&config);
        let Some((key, message)) = faults.first() else { return Ok(config) };
        let problem = |(key, message): &(&str, String)| json!({ "field": key, "message": message });
        let problems: Vec<_> = faults.iter().map(problem).collect();
        Err(invalid(key, line_of(text, key), message).detail("problems", problems))
    }

    fn read_under(text: &str, json: bool, settings: Option<&str>) -> Result<Self, Failure> {
        // Parsed without `settings` first, so that an error has its line.
        let config = Self::read(text, json)?;
        let Some(settings) = settings else { return Ok(config) };
        let over: Value = serde_json::from_str(settings)
            .ok()
            .filter(Value::is_object)
            .ok_or_else(|| invalid("", None, "the settings are no object in JSON"))?;
        Self::read(&strict::over(own_keys(text, json)?, over).to_string(), true)
    }

    /// Resolves directories to real paths, so that `admit` compares like with like. A directory that does not exist is
    /// not changed: it contains nothing.
    fn with_real_paths(mut self, host: &Host) -> Self {
        let real = |it: &PathBuf| {
            let path = host.path(it);
            path.canonicalize().unwrap_or(path)
        };
        self.workspace.root = self.workspace.root.as_ref().map(real);
        self.workspace.allow_roots = self.workspace.allow_roots.iter().map(real).collect();
        self.sandbox.worktree.shared_root = self.sandbox.worktree.shared_root.as_ref().map(real);
        self.sandbox.writable_mounts = self.sandbox.writable_mounts.iter().map(real).collect();
        self.auto_passthrough.ca_files = self.auto_passthrough.ca_files.iter().map(|it| host.path(it)).collect();
        self.state_dir = self.state_dir.as_ref().map(|it| host.path(it));
        self.engine_ssh_config = self.engine_ssh_config.as_ref().map(|it| host.path(it));
        self.engine_data = self.engine_data.as_ref().map(real);
        self
    }
}

fn text(path: &Path) -> io::Result<String> {
    let meta = path.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    if meta.len() > MAX_BYTES {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    std::fs::read_to_string(path)
}

fn from_json(text: &str) -> Result<Config, Failure> {
    let mut from = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut from);
    let read = read.map_err(|err| {
        let (key, line) = (err.path().to_string(), err.inner().line());
        invalid(&key, Some(line), &err.inner().to_string())
    })?;
    from.end().map_err(|err| invalid("", Some(err.line()), &err.to_string()))?;
    Ok(read)
}

fn from_toml(text: &str) -> Result<Config, Failure> {
    let line = |err: &toml::de::Error| err.span().map(|it| 1 + text[..it.start].matches('\n').count());
    let from = toml::Deserializer::parse(text).map_err(|err| invalid("", line(&err), err.message()))?;
    serde_path_to_error::deserialize(from).map_err(|err| {
        let (key, at) = (err.path().to_string(), line(err.inner()));
        let at = at.or_else(|| line_of(text, &key));
        invalid(&key, at, err.inner().message())
    })
}

fn own_keys(text: &str, json: bool) -> Result<Value, Failure> {
    match json {
        true => serde_json::from_str(text).map_err(|err| invalid("", None, &err.to_string())),
        false => toml::from_str(text).map_err(|err| invalid("", None, err.message())),
    }
}

fn with_defaults(defaults: Value, text: &str, json: bool) -> Result<Config, Failure> {
    let own = own_keys(text, json)?;
    serde_path_to_error::deserialize(strict::over(defaults, own)).map_err(|err| {
        let key = err.path().to_string();
        invalid(&key, line_of(text, &key), &err.inner().to_string())
    })
}

/// The path of the whole document is `.`.
fn invalid(key: &str, line: Option<usize>, message: &str) -> Failure {
    let key = if key == "." { "" } else { key };
    let place = match (key, line) {
        ("", None) => String::new(),
        ("", Some(line)) => format!(", line {line}"),
        (key, None) => format!(", `{key}`"),
        (key, Some(line)) => format!(", `{key}` in line {line}"),
    };
    // The engine for tests is not shown.
    let message = message.replace("`embedded`, `fake`", "`embedded`");
    let failure = Failure::config(key, line, format!("the configuration cannot be used{place}: {message}"));
    match meant(&message) {
        Some(meant) => failure.hint(format!("did you mean `{meant}`? `preflight` shows what is wrong with the file")),
        None => failure,
    }
}

/// Finds the intended key or word in the list of a message about an unknown one.
fn meant(message: &str) -> Option<String> {
    let unknown = ["unknown field `", "unknown variant `"].iter().find_map(|it| message.strip_prefix(it))?;
    let (word, rest) = unknown.split_once('`')?;
    let known: Vec<String> = rest.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    suggest::nearest(word, &known).map(str::to_owned)
}

/// Finds the first line that sets the last part of a key.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let word = key.rsplit('.').next().filter(|it| !it.is_empty())?;
    let sets = |line: &str| {
        let rest = line.trim_start().trim_start_matches('"').strip_prefix(word);
        rest.is_some_and(|it| it.trim_start_matches('"').trim_start().starts_with(['=', ':']))
    };
    text.lines().position(sets).map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use coracle_types::ByteSize;
    use insta::assert_snapshot;

    use super::Config;
    use crate::arg_types::Seconds;
    use crate::config::{CrossSession, Engine};
    use crate::host::Host;

    fn check(text: &str) -> String {
        let failure = Config::read(text, text.starts_with('{')).unwrap_err();
        assert_eq!(failure.code.word(), "config_invalid");
        format!("{} | {} {}", failure.message, failure.details["key"], failure.details["line"])
    }

    #[test]
    fn a_key_that_is_nearly_right_is_suggested() {
        let hint = |text: &str| Config::read(text, text.starts_with('{')).unwrap_err().into_inner().hint.unwrap();
        assert!(hint("engin = 1\n").starts_with("did you mean `engine`?"));
        assert!(hint("{\"exec\": {\n\"grce\": 1}}").starts_with("did you mean `grace`?"));
        assert!(hint("engine = \"podmann\"\n").starts_with("did you mean `podman`?"));
        assert!(hint("zzz = 1\n").starts_with("correct the configuration file"));
    }

    #[test]
    fn an_empty_file_gives_the_defaults() {
        assert_eq!(Config::read("", false).unwrap(), Config::default());
        assert_eq!(Config::read("{}", true).unwrap(), Config::default());
    }

    #[test]
    fn keys_are_read_in_both_formats() {
        let text = "engine = \"podman\"\n[security]\nmemory_max = \"8g\"\ncross_session = \"none\"\n[exec]\ntimeout = 60\nsilence_timeout = \"2m\"\n";
        let config = Config::read(text, false).unwrap();
        assert_eq!((config.engine, config.security.cross_session), (Engine::Podman, CrossSession::None));
        assert_eq!(config.security.memory_max, ByteSize::mib(8192));
        assert_eq!((config.exec.timeout, config.exec.silence_timeout), (Seconds::new(60), Seconds::new(120)));
        let json = r#"{"engine":"podman","security":{"memory_max":8589934592,"cross_session":"none"},
            "exec":{"timeout":60,"silence_timeout":120.0}}"#;
        assert_eq!(Config::read(json, true).unwrap(), config);
    }

    #[test]
    fn errors_have_key_and_line() {
        assert_snapshot!(check("engine = \"podman\"\nengin = 1\n"), @r#"the configuration cannot be used, `engin` in line 2: unknown field `engin`, expected one of `policy`, `engine`, `engine_data`, `engine_runtime`, `engine_path`, `engine_host`, `engine_ssh_config`, `allow_remote_engine`, `engine_api`, `guest`, `label_namespace`, `state_dir`, `default_image`, `max_containers`, `max_containers_total`, `kubernetes`, `workspace`, `copy`, `machine`, `mcp`, `run_code`, `sandbox`, `proxy`, `secrets`, `worker`, `auto_passthrough`, `dotfiles`, `profiles`, `security`, `images`, `exec`, `checkpoints`, `jobs`, `setup`, `compose`, `lifecycle`, `log` | "engin" 2"#);
        assert_snapshot!(check("[security]\nmemory_max = \"lots\"\n"), @r#"the configuration cannot be used, `security.memory_max` in line 2: `lots` is not a size: bytes as an integer, or text such as `512m` or `4g` | "security.memory_max" 2"#);
        assert_snapshot!(check("[exec]\n\ntimeout = \"soon\"\n"), @r#"the configuration cannot be used, `exec.timeout` in line 3: invalid value: string "soon", expected seconds as a number, or text such as `90s`, `10m`, `24h`, `7d` | "exec.timeout" 3"#);
        assert_snapshot!(check("[security]\nimages = [\"[\"]\n"), @r#"the configuration cannot be used, `security.images` in line 2: `[` is not a pattern | "security.images" 2"#);
        assert_snapshot!(check("[sandbox.profiles.a.provider]\nkind = \"openai\"\n"), @"the configuration cannot be used, `sandbox.profiles.provider`: needs `base_url` | \"sandbox.profiles.provider\" null");
        assert_snapshot!(check("engine = \"warp\"\n"), @r#"the configuration cannot be used, `engine` in line 1: unknown variant `warp`, expected one of `auto`, `docker`, `podman`, `container`, `embedded`, `kubernetes`, `fake` | "engine" 1"#);
        assert_snapshot!(check("x ="), @r#"the configuration cannot be used, line 1: string values must be quoted, expected literal string | "" 1"#);
        assert_snapshot!(check("{\"exec\": {\n\"max_parallel\": 0}}"), @r#"the configuration cannot be used, `exec.max_parallel` in line 2: must be at least 1 | "exec.max_parallel" 2"#);
        assert_snapshot!(check("{\"exec\": {\n\"grce\": 1}}"), @r#"the configuration cannot be used, `exec.grce` in line 2: unknown field `grce`, expected one of `timeout`, `timeout_max`, `silence_timeout`, `grace`, `inline`, `inline_mcp`, `keep_bytes`, `keep_total`, `keep_for`, `max_parallel`, `redact` at line 2 column 6 | "exec.grce" 2"#);
        assert_snapshot!(check("[workspace]\nroot = \"here\""), @r#"the configuration cannot be used, `workspace.root` in line 2: must be absolute, or begin with `~/` | "workspace.root" 2"#);
    }

    #[test]
    fn r02_a_program_for_snippets_is_checked_when_it_is_read() {
        let read = |text: &str| Config::read(&format!("[run_code]\npreload = {text}\n"), false);
        for fine in [
            "{ command = [\"bun\", \"run\"] }",
            "{ command = [\"/opt/x\"], languages = [\"python\", \"bash\"] }",
            "{ command = [\"~/bin/x\"] }",
        ] {
            assert!(read(fine).is_ok(), "{fine}: {:?}", read(fine));
        }
        for bad in [
            "{ command = [] }",
            "{ command = [\"\"] }",
            "{ command = [\"./x\"] }",
            "{ command = [\"bin/x\"] }",
            "{ command = [\"x\"], languages = [] }",
            "{ command = [\"x\"], languages = [\"ruby\"] }",
            "{ command = [\"x\"], shell = true }",
            "{ languages = [\"bash\"] }",
            "\"x\"",
        ] {
            let fault = read(bad).expect_err(bad).into_inner().message;
            assert!(fault.contains("run_code.preload"), "{fault}");
        }
        let strict = Config::read("policy = \"strict\"\nrun_code.preload.command = [\"x\"]\n", false).unwrap_err();
        assert!(strict.details["problems"].to_string().contains("nothing keeps the snippets in"), "{strict:?}");
    }

    #[test]
    fn a_given_file_has_to_exist_and_the_default_one_need_not() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::below(dir.path());
        assert!(Config::load(None, None, &host).is_ok());
        assert!(Config::load(Some(Path::new("/nowhere.toml")), None, &host).is_err());
        let named = Host { config_file: Some("/nowhere.toml".into()), ..host.clone() };
        assert!(Config::load(None, None, &named).is_err());
        let over = |settings: &str| Config::load(None, Some(settings), &host);
        let config = over(r#"{ "max_containers": 100, "workspace": { "allow_roots": ["/tmp"] } }"#).unwrap();
        assert_eq!((config.max_containers, config.workspace.allow_roots.len()), (100, 1));
        for (settings, why) in [("[]", "no object"), (r#"{ "max_container": 1 }"#, "max_container")] {
            assert!(over(settings).unwrap_err().message.contains(why), "{settings}");
        }
    }
}
