//! Verbs on containers.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use coracle_engine::EmbeddedRuntime;
use coracle_runtime::{Container, ContainerRuntime as _, LabelFilter, Stacks as _};
use coracle_types::{Command, ContainerPath, Exec, Exit, Handle, Ids};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{option, plain};

pub(crate) async fn run(engine: &EmbeddedRuntime, data: &Path, (verb, words): (&str, &[&str])) -> Result<()> {
    if verb == "ps" {
        return list(engine, words).await;
    }
    let names = plain(words, &["-t", "--time", "--format"]);
    for name in &names {
        let found = engine.inspect(&Handle::parse(name)?).await?;
        match verb {
            "inspect" => inspect(&found, data, option(words, "format"))?,
            "pause" => pause(&found, data)?,
            "kill" => kill(engine, &found).await?,
            "stop" => engine.stop(&found.id, Duration::ZERO).await?,
            "start" => engine.start(&found.id).await?,
            "restart" => {
                engine.stop(&found.id, Duration::ZERO).await?;
                engine.start(&found.id).await?;
            }
            "rm" => _ = engine.remove(&found.id).await?,
            "logs" => std::io::stdout().write_all(&engine.logs(&found.id, 1 << 20).await?)?,
            other => bail!("`{other}` is not done on the embedded engine"),
        }
    }
    if names.is_empty() { bail!("a name is missing") } else { Ok(()) }
}

/// Freezes its processes by their control group, which the record of its start names: of version 2 if it has one.
fn pause(found: &Container, data: &Path) -> Result<()> {
    let run = std::fs::read(data.join("containers").join(found.id.as_str()).join("run.json"))?;
    let group = serde_json::from_slice::<Value>(&run)?["group"].take();
    let (dir, file, word) = match group["unified"].as_str() {
        Some(dir) => (dir, "cgroup.freeze", "1"),
        None => (group["by_controller"]["freezer"].as_str().context("no group")?, "freezer.state", "FROZEN"),
    };
    Ok(std::fs::write(Path::new(dir).join(file), word)?)
}

/// Ends PID 1 as the kernel does, and waits until the engine says so.
async fn kill(engine: &EmbeddedRuntime, found: &Container) -> Result<()> {
    let pid = found.pid.and_then(|it| Pid::from_raw(it.cast_signed())).context("it does not run")?;
    kill_process(pid, Signal::KILL)?;
    while engine.inspect(&Handle::from(&found.id)).await?.running() {
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn list(engine: &EmbeddedRuntime, words: &[&str]) -> Result<()> {
    let filters = words.iter().filter_map(|it| it.strip_prefix("--filter=").unwrap_or(it).strip_prefix("label="));
    let pair = |it: &str| match it.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (it.to_owned(), None),
    };
    for it in engine.list(&LabelFilter(filters.map(pair).collect())).await? {
        println!("{}", it.id);
    }
    Ok(())
}

/// A template of Docker's, as far as tests use it; else all that is stored about the container.
fn inspect(found: &Container, data: &Path, format: Option<&str>) -> Result<()> {
    let dir = data.join("containers").join(found.id.as_str());
    if let Some(format) = format {
        println!("{}", filled(found, &dir, format)?);
        return Ok(());
    }
    let mut stored = Vec::new();
    for entry in std::fs::read_dir(&dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "json") {
            stored.push(serde_json::from_slice::<Value>(&std::fs::read(&path)?).context("a stored file")?);
        }
    }
    let config: Value = serde_json::from_slice(&std::fs::read(dir.join("config.json"))?)?;
    let memory = found.limits.memory.map(|it| it.0);
    // The limit of memory includes swap: there is no additional swap.
    let host = json!({
        "NetworkMode": found.networks.join(","), "ReadonlyRootfs": config["read_only"],
        "Memory": memory, "MemorySwap": memory, "PidsLimit": found.limits.pids,
    });
    let config = json!({ "Labels": found.labels });
    println!("{:#}", json!([{ "Id": found.id.as_str(), "Config": config, "HostConfig": host, "Stored": stored }]));
    Ok(())
}

fn filled(found: &Container, dir: &Path, format: &str) -> Result<String> {
    let config: Value = serde_json::from_slice(&std::fs::read(dir.join("config.json"))?)?;
    let values = [
        ("{{.Id}}", found.id.to_string()),
        ("{{.Image}}", found.image.to_string()),
        ("{{.Config.User}}", found.user.clone()),
        ("{{json .Config.Labels}}", serde_json::to_string(&found.labels)?),
        ("{{.HostConfig.NetworkMode}}", found.networks.join(",")),
        ("{{.HostConfig.ReadonlyRootfs}}", config["read_only"].to_string()),
        ("{{json .State}}", format!("{:?} {:?} {:?}", found.status, found.pid, found.started_at)),
        ("{{.State.ExitCode}}", found.exit_code.unwrap_or(0).to_string()),
        ("{{.State.Pid}}", found.pid.unwrap_or(0).to_string()),
        ("{{.State.Running}}", found.running().to_string()),
        ("{{.State.StartedAt}}", found.started_at.clone().unwrap_or_else(|| "-".to_owned())),
        ("{{.State.Status}}", format!("{:?}", found.status).to_lowercase()),
    ];
    let text = values.iter().fold(format.to_owned(), |text, (name, value)| text.replace(name, value));
    ensure!(!text.contains("{{"), "`{text}` is not known");
    Ok(text)
}

pub(crate) async fn exec(engine: &EmbeddedRuntime, words: &[&str]) -> Result<ExitCode> {
    let mut words = words.iter().copied().peekable();
    let mut user = Ids::ROOT;
    while let Some(option) = words.next_if(|it| it.starts_with('-')) {
        if option == "-u" {
            let (uid, gid) = words.next().and_then(|it| it.split_once(':')).context("-u UID:GID")?;
            user = Ids { uid: uid.parse()?, gid: gid.parse()? };
        }
    }
    let name = words.next().context("a name is missing")?;
    let found = engine.inspect(&Handle::parse(name)?).await?;
    let command = Command::Argv(words.map(str::to_owned).collect());
    let output = engine.exec(&found.id, Exec::new(command, user, ContainerPath::root())).await?;
    std::io::stdout().write_all(&output.stdout.bytes())?;
    std::io::stderr().write_all(&output.stderr.bytes())?;
    Ok(match output.exit {
        Exit::Code(code) => ExitCode::from(code),
        _ => ExitCode::FAILURE,
    })
}
