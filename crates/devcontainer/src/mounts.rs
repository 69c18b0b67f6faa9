//! Parses `mounts`, in both forms.

use coracle_types::ContainerPath;
use serde_json::Value;

/// A requested mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountRequest {
    /// Its kind and source.
    pub kind: MountKind,
    /// Its path inside.
    pub at: ContainerPath,
    /// Whether it is read-only.
    pub read_only: bool,
}

/// Kinds of mounts, with their sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountKind {
    /// A directory or file of the host.
    Bind(String),
    /// A named directory that lasts as long as the sandbox.
    Volume(String),
    /// A directory in memory.
    Tmpfs,
}

/// Paths at or below which nothing may be mounted: those of the kernel and the guest, the system's settings, and the
/// agents' work.
const COVERED: [&str; 7] = ["/.coracle", "/proc", "/sys", "/dev", "/etc", "/run", "/workspace"];

/// Whether a path may be a mount point.
pub(super) fn may_be_put_at(at: &ContainerPath) -> bool {
    let is_invalid = at.as_str() == "/" || at.as_str().contains([',', ':']);
    !is_invalid && !COVERED.iter().any(|it| at.is_beneath(it))
}

/// Parses a mount.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(value: &Value) -> Result<MountRequest, String> {
    let pairs: Vec<(String, String)> = match value {
        Value::String(text) => text
            .split(',')
            .map(|it| it.split_once('=').unwrap_or((it, "true")))
            .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
            .collect(),
        Value::Object(all) => {
            all.iter().map(|(key, value)| Ok((key.clone(), word(value)?))).collect::<Result<_, String>>()?
        }
        _ => return Err("is neither a string nor an object".into()),
    };
    let (mut source, mut target, mut kind, mut read_only) = (None, None, None, false);
    for (key, value) in pairs {
        match key.as_str() {
            "source" | "src" => source = Some(value),
            "target" | "destination" | "dst" => target = Some(value),
            "type" => kind = Some(value),
            "readonly" | "ro" => read_only = value != "false",
            // Copy options of Docker Desktop are ignored; Coracle sets the size of memory.
            "consistency" | "external" | "tmpfs-size" | "tmpfs-mode" | "bind-propagation" => {}
            other => return Err(format!("has `{other}`, which is not known")),
        }
    }
    let at = target.ok_or("has no `target`")?;
    let at = ContainerPath::parse(at).map_err(|err| err.to_string())?;
    let from = |it: Option<String>| it.filter(|it| !it.is_empty()).ok_or_else(|| "has no `source`".to_owned());
    let kind = match kind.as_deref().unwrap_or("volume") {
        "bind" => MountKind::Bind(from(source)?),
        "volume" => MountKind::Volume(match source.filter(|name| !name.is_empty()) {
            Some(name) => volume_name(name)?,
            None => volume_name(anonymous_name(&at))?,
        }),
        "tmpfs" => MountKind::Tmpfs,
        other => return Err(format!("has the type `{other}`, which is not known")),
    };
    Ok(MountRequest { kind, at, read_only })
}

fn word(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(it) => Ok(it.to_string()),
        Value::Number(it) => Ok(it.to_string()),
        _ => Err("has a value that is no text".into()),
    }
}

/// Names an anonymous volume after its path, since a container has one volume there.
fn anonymous_name(at: &ContainerPath) -> String {
    let mut name = String::from("anonymous-");
    for byte in at.as_str().trim_start_matches('/').bytes() {
        match byte {
            b'.' | b'-' => name.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => name.push(byte.into()),
            _ => name.push_str(&format!("_{byte:02x}")),
        }
    }
    name
}

/// Validates the name of a volume, which becomes that of a directory.
fn volume_name(name: String) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    let fits = name.len() <= 128 && name.bytes().all(plain) && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if fits { Ok(name) } else { Err(format!("has a volume `{}`, which is no name of one", name.escape_debug())) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mounts_are_parsed_as_text_and_as_objects() {
        let mount = |kind, at: &str, read_only| MountRequest { kind, at: ContainerPath::parse(at).unwrap(), read_only };
        let cases = [
            (json!("source=/a,target=/b,type=bind,readonly"), mount(MountKind::Bind("/a".into()), "/b", true)),
            (json!("src=cache,dst=/home/x/.cache"), mount(MountKind::Volume("cache".into()), "/home/x/.cache", false)),
            (
                json!({ "source": "v1", "target": "/v", "type": "volume" }),
                mount(MountKind::Volume("v1".into()), "/v", false),
            ),
            (
                json!({ "type": "volume", "target": "/app/node_modules" }),
                mount(MountKind::Volume("anonymous-app_2fnode_5fmodules".into()), "/app/node_modules", false),
            ),
            (json!("target=/app-x"), mount(MountKind::Volume("anonymous-app-x".into()), "/app-x", false)),
            (json!("type=tmpfs,target=/scratch"), mount(MountKind::Tmpfs, "/scratch", false)),
            (
                json!("type=bind,source=/,target=/host,consistency=cached"),
                mount(MountKind::Bind("/".into()), "/host", false),
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(read(&value), Ok(expected), "{value}");
        }
        for bad in [
            json!(7),
            json!("type=bind,target=/x"),
            json!("source=a"),
            json!("source=../x,target=/x"),
            json!("source=a,target=x"),
            json!("source=a,target=/x,type=npipe"),
            json!("source=a,target=/x,uid=0"),
        ] {
            assert!(read(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_mount_covers_paths_of_coracle_or_the_kernel() {
        for at in ["/", "/proc/x", "/.coracle", "/etc/ssh", "/workspace/worktrees", "/run", "/a:b", "/a,b"] {
            assert!(!may_be_put_at(&ContainerPath::parse(at).unwrap()), "{at}");
        }
        for at in ["/home/vscode/.cache", "/data", "/workspaces", "/etcetera"] {
            assert!(may_be_put_at(&ContainerPath::parse(at).unwrap()), "{at}");
        }
    }
}
