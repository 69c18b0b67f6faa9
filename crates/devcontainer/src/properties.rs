//! The table of properties: how each is parsed, and which are refused.

use std::collections::BTreeMap;

use coracle_types::failure::Result;
use coracle_types::{ByteSize, Command, ContainerPath, ImageRef};
use serde_json::Value;

use crate::definition::{Build, Devcontainer, Hook, HostRequirements, LifecycleStage, MAX_BYTES};
use crate::feature::Feature;
use crate::refusal::{DeniedProperty, ignored, invalid, refused};
use crate::value::{line_of, list_of, object_of, text_of, variable};
use crate::variables::Variables;
use crate::{json, mounts};

/// Properties that only concern editors.
const WITHOUT_EFFECT: &[&str] =
    &["$schema", "name", "customizations", "portsAttributes", "waitFor", "shutdownAction", "postAttachCommand"];

/// Properties that are refused in every form, unless their value is empty.
const REFUSED: &[(&str, &str, &str)] = &[
    ("initializeCommand", "devcontainer.host_command", "it would run on the host"),
    ("privileged", "devcontainer.privileged", "a container that is privileged is no wall"),
    ("capAdd", "devcontainer.capabilities", "commands of a sandbox have no capability"),
    ("securityOpt", "devcontainer.security_opt", "what is filtered stays filtered"),
    ("appPort", "devcontainer.ports", "nothing of a sandbox is published"),
    ("dockerComposeFile", "devcontainer.compose", "it would be several containers, and one is made"),
    ("workspaceMount", "devcontainer.workspace_mount", "the worktree lies in the sandbox's own volume"),
];

/// Prefixes of variables that control Coracle's own programs inside.
const RESERVED_VARIABLES: &[&str] = &["GIT_", "CORACLE_", "LD_", "LLM_PROXY_URL"];

/// Reads a file.
///
/// # Errors
/// `devcontainer_invalid` with the line and the column, or `devcontainer_refused` with each property and rule.
pub fn read(bytes: &[u8], variables: &Variables) -> Result<Devcontainer> {
    if bytes.len() > MAX_BYTES {
        return Err(invalid(None, &format!("it has {} bytes; at most {MAX_BYTES} are read", bytes.len())));
    }
    let (places, mut all) = json::object(bytes)?;
    let usual = variables.container_folder.clone();
    let mut reader = PropertyReader { it: Devcontainer::default(), refusals: Vec::new(), usual };
    // Other values may refer to the worktree's folder, which may itself contain variables.
    let mut variables = variables.clone();
    if let Some(folder) = all.get_mut("workspaceFolder") {
        variables.fill(folder, &mut reader.it.warnings);
        if let Some(folder) = folder.as_str() {
            folder.clone_into(&mut variables.container_folder);
        }
    }
    let (mut container, mut remote) = (None, None);
    for (property, value) in &mut all {
        if REFUSED.iter().any(|it| it.0 == property) {
            reader.refuse_unless_empty(property, value);
            continue;
        }
        variables.fill(value, &mut reader.it.warnings);
        let taken = match property.as_str() {
            "containerUser" => text_of(value).map(|it| container = Some(it)),
            "remoteUser" => text_of(value).map(|it| remote = Some(it)),
            property => reader.take(property, value),
        };
        taken.map_err(|why| invalid(places.get(property).copied(), &format!("`{}` {why}", property.escape_debug())))?;
    }
    for property in ["containerEnv", "remoteEnv"] {
        let env = all.get(property).map_or_else(|| Ok(BTreeMap::new()), env_of);
        let env = env.map_err(|why| invalid(places.get(property).copied(), &format!("`{property}` {why}")))?;
        reader.env(property, env);
    }
    if reader.it.image.is_some() && reader.it.build.is_some() {
        return Err(invalid(places.get("image").copied(), "it has both `image` and `build`"));
    }
    reader.it.user = remote.or(container);
    if reader.refusals.is_empty() { Ok(reader.it) } else { Err(refused(&reader.refusals)) }
}

struct PropertyReader {
    it: Devcontainer,
    refusals: Vec<DeniedProperty>,
    /// The default folder of the workspace.
    usual: String,
}

impl PropertyReader {
    fn refuse_unless_empty(&mut self, property: &str, value: &Value) {
        let asks_for_nothing = match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(all) => all.is_empty(),
            Value::String(text) => text.is_empty(),
            _ => false,
        };
        let row = REFUSED.iter().find(|it| it.0 == property && !asks_for_nothing);
        self.refusals.extend(row.map(|(property, rule, why)| DeniedProperty::new(*property, rule, *why)));
    }

    /// Parses one property. An error describes what is wrong with its value.
    fn take(&mut self, property: &str, value: &Value) -> Result<(), String> {
        let it = &mut self.it;
        match property {
            "image" => it.image = Some(ImageRef::parse(text_of(value)?).map_err(|err| err.to_string())?),
            "build" => self.build(value)?,
            "features" => {
                for (name, options) in object_of(value)? {
                    it.features.push(Feature::read(name, options)?);
                }
            }
            "workspaceFolder" => self.workspace_folder(value)?,
            "mounts" => {
                for mount in list_of(value)? {
                    self.mount(mount)?;
                }
            }
            "forwardPorts" => it.forward_ports = list_of(value)?.iter().map(port_of).collect::<Result<_, _>>()?,
            "hostRequirements" => it.needs = needs_of(value)?,
            "runArgs" => self.run_args(value)?,
            // Parsed together, after all others.
            "containerEnv" | "remoteEnv" => {}
            property if WITHOUT_EFFECT.contains(&property) => {}
            property => match LifecycleStage::from_property(property) {
                Some(_) if value.is_null() => {}
                Some(stage) => drop(it.hooks.insert(stage, hook_of(value)?)),
                None => it.warnings.push(ignored(format!("`{}` has no effect here", property.escape_debug()))),
            },
        }
        Ok(())
    }

    fn build(&mut self, value: &Value) -> Result<(), String> {
        let mut build = Build { dockerfile: String::new(), context: ".".into(), ..Build::default() };
        for (key, value) in object_of(value)? {
            match key.as_str() {
                "dockerfile" => build.dockerfile = text_of(value)?,
                "context" => build.context = text_of(value)?,
                "target" => build.target = Some(line_of(value)?),
                "args" => {
                    for (name, value) in object_of(value)? {
                        build.args.insert(variable(name)?, line_of(value)?);
                    }
                }
                "options" if value.as_array().is_some_and(Vec::is_empty) => {}
                "options" => self.refusals.push(DeniedProperty::new(
                    "build.options",
                    "devcontainer.build_options",
                    "words for the engine are ours",
                )),
                key => self.it.warnings.push(ignored(format!("`build.{}` has no effect here", key.escape_debug()))),
            }
        }
        if build.dockerfile.is_empty() {
            return Err("has no `dockerfile`".into());
        }
        self.it.build = Some(build);
        Ok(())
    }

    /// A link to the worktree, which must not be in a directory where others read or replace links.
    fn workspace_folder(&mut self, value: &Value) -> Result<(), String> {
        let path = ContainerPath::parse(text_of(value)?).map_err(|err| err.to_string())?;
        let not_there = ["/proc", "/sys", "/dev", "/etc", "/run", "/.coracle"];
        if path.as_str() == "/" || not_there.iter().any(|it| path.is_beneath(it)) {
            return Err(format!("is `{path}`, where no worktree can be"));
        }
        let ours = ["/workspace/worktrees", "/workspace/repo.git", "/workspace/.volumes"];
        if path.as_str() == self.usual {
            return Ok(());
        }
        if path.as_str() == "/workspace" || ours.iter().any(|it| path.is_beneath(it)) {
            let message = format!(
                "`workspaceFolder` is `{path}`, which is the sandbox's own; the worktree is where it always is"
            );
            self.it.warnings.push(ignored(message));
        } else {
            self.it.workspace_folder = Some(path);
        }
        Ok(())
    }

    fn mount(&mut self, value: &Value) -> Result<(), String> {
        let mount = mounts::read(value)?;
        if !mounts::may_be_put_at(&mount.at) {
            let message = format!("nothing can be mounted at `{}`", mount.at);
            self.refusals.push(DeniedProperty::new("mounts", "mount.target", message));
        }
        self.it.mounts.push(mount);
        Ok(())
    }

    fn run_args(&mut self, value: &Value) -> Result<(), String> {
        let words = list_of(value)?.iter().map(text_of).collect::<Result<Vec<_>, _>>()?;
        if let Some(word) = words.iter().find(|it| *it != "--init") {
            let message = format!("`{}` is a word for the engine, and those are ours", word.escape_debug());
            self.refusals.push(DeniedProperty::new("runArgs", "devcontainer.run_args", message));
        }
        Ok(())
    }

    fn env(&mut self, property: &str, env: BTreeMap<String, Option<String>>) {
        for (name, value) in env {
            if RESERVED_VARIABLES.iter().any(|it| name.starts_with(it)) {
                let message = format!("`{property}` sets `{name}`, which is not a file's to set");
                self.it.warnings.push(ignored(message));
            } else {
                let layer = match property {
                    "containerEnv" => &mut self.it.container_env,
                    _ => &mut self.it.remote_env,
                };
                layer.insert(name, value);
            }
        }
    }
}

/// Parses variables. `null` unsets a variable.
fn env_of(value: &Value) -> Result<BTreeMap<String, Option<String>>, String> {
    let read = |(name, value): (&String, &Value)| {
        let value = if value.is_null() { None } else { Some(text_of(value)?) };
        Ok((variable(name)?, value))
    };
    object_of(value)?.iter().map(read).collect()
}

fn hook_of(value: &Value) -> Result<Hook, String> {
    match value {
        Value::Object(_) => {
            let named = |(name, value): (&String, &Value)| Ok((name.clone(), command_of(value)?));
            object_of(value)?.iter().map(named).collect::<Result<_, String>>().map(Hook::Together)
        }
        value => command_of(value).map(Hook::One),
    }
}

fn command_of(value: &Value) -> Result<Command, String> {
    match value {
        Value::String(_) => text_of(value).map(Command::Shell),
        Value::Array(words) if !words.is_empty() => {
            words.iter().map(text_of).collect::<Result<_, _>>().map(Command::Argv)
        }
        _ => Err("is neither a string, a list of strings, nor an object of these".into()),
    }
}

fn port_of(value: &Value) -> Result<String, String> {
    let number = |text: &str| text.parse::<u16>().ok().filter(|it| *it > 0);
    match value {
        Value::Number(it) => it.as_u64().and_then(|it| number(&it.to_string())).map(|it| it.to_string()),
        Value::String(text) => number(text.rsplit(':').next().unwrap_or_default()).map(|_| text.clone()),
        _ => None,
    }
    .ok_or_else(|| format!("has `{value}`, which is no port"))
}

fn needs_of(value: &Value) -> Result<HostRequirements, String> {
    let mut needs = HostRequirements::default();
    // Accepts `8gb` for `8g`.
    let size = |value: &Value| {
        let text = text_of(value)?.to_ascii_lowercase();
        let bytes = ByteSize::parse(text.trim_end_matches('b')).map_err(|err| err.to_string())?;
        Ok::<_, String>(bytes.0)
    };
    for (key, value) in object_of(value)? {
        match key.as_str() {
            "cpus" => needs.cpus = Some(value.as_f64().ok_or("has `cpus` that is no number")?),
            "memory" => needs.memory = Some(size(value)?),
            "storage" => needs.storage = Some(size(value)?),
            "gpu" => needs.gpu = !matches!(value, Value::Bool(false) | Value::Null) && value != "optional",
            _ => {}
        }
    }
    Ok(needs)
}

#[cfg(test)]
mod tests;
