//! Containers: created, started, stopped and removed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::faults::{Faults, wait};
use crate::inside::{Entry, ISOLATED};
use crate::state::{Mount, State, StoredContainer, now, started_at};
use crate::words::{ParsedArgs, Usage, Words};
use crate::{Done, answers, images};

const POLL: Duration = Duration::from_millis(5);

/// Limit of the wait for a container to start or to end.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn create(state: &State, words: Words) -> Result<Done> {
    let valued = [
        "--name",
        "--label",
        "--cpus",
        "--memory",
        "--network",
        "--cap-drop",
        "--cap-add",
        "--ulimit",
        "--workdir",
        "--user",
        "--mount",
        "--volume",
        "--entrypoint",
    ];
    let args = words.read(&valued, &["--no-dns", "--read-only"], 1)?;
    let [reference, arguments @ ..] = args.names.as_slice() else { return Err(Usage("no image".into()).into()) };
    let (Some(name), Some(entry)) = (args.one("--name"), args.one("--entrypoint")) else {
        return Err(Usage("no name or entry point".into()).into());
    };
    let image = images::find(state, reference)?;
    let networks: Vec<_> = args.all("--network").filter(|it| *it != "none").map(str::to_owned).collect();
    let none = args.one("--network") == Some("none");
    let default = (networks.is_empty() && !none).then(|| "default".to_owned());
    if let Some(missing) = networks.iter().find(|it| !state.has("networks", it)) {
        bail!("network \"{missing}\" not found");
    }
    let stored = StoredContainer {
        id: name.to_owned(),
        created: now(),
        started: None,
        image: image.name.clone(),
        digest: image.digest.clone(),
        labels: args.pairs("--label"),
        env: image.config.env,
        command: std::iter::once(entry.to_owned()).chain(arguments.iter().cloned()).collect(),
        workdir: args.one("--workdir").unwrap_or("/").to_owned(),
        user: args.one("--user").map_or(image.config.user, str::to_owned),
        cpus: args.one("--cpus").map_or(Ok(4), str::parse).map_err(|_| Usage("--cpus is a whole number".into()))?,
        memory: memory(args.one("--memory").unwrap_or("1024M"))?,
        networks: networks.into_iter().chain(default).collect(),
        mounts: mounts(state, &args)?,
        capabilities: args.all("--cap-add").map(str::to_owned).collect(),
        read_only: args.has("--read-only"),
        ulimits: args.all("--ulimit").map(str::to_owned).collect(),
        process: None,
    };
    let _lock = state.lock()?;
    if state.has("containers", name) {
        bail!("container with id {name} already exists");
    }
    let mut copy = Command::new("/bin/cp");
    copy.arg("-a").arg(images::root_of(state, &stored.digest)).arg(state.root_of(name));
    if !copy.status()?.success() {
        bail!("the files of the image cannot be copied");
    }
    state.write("containers", name, &stored)?;
    Ok(Done::text(format!("{name}\n")))
}

/// Parses sizes in megabytes. A machine with less than 200 MB does not start.
fn memory(text: &str) -> Result<u64> {
    let megabytes = text.strip_suffix('M').and_then(|it| it.parse::<u64>().ok());
    match megabytes {
        Some(it @ 200..) => Ok(it << 20),
        _ => bail!("invalid memory \"{text}\""),
    }
}

fn mounts(state: &State, args: &ParsedArgs) -> Result<Vec<Mount>> {
    let mut mounts = Vec::new();
    for text in args.all("--mount") {
        mounts.push(mount(state, text)?);
    }
    for text in args.all("--volume") {
        let parts: Vec<_> = text.split(':').collect();
        let (source, target, read_only) = match parts[..] {
            [source, target] => (source, target, false),
            [source, target, "ro"] => (source, target, true),
            _ => bail!("invalid volume \"{text}\""),
        };
        mounts.push(Mount::Bind { source: source.into(), target: target.into(), read_only });
    }
    // Deeper targets are mounted later.
    mounts.sort_by_key(|it| match it {
        Mount::Bind { target, .. } | Mount::Tmpfs { target, .. } => target.matches('/').count(),
    });
    Ok(mounts)
}

fn mount(state: &State, text: &str) -> Result<Mount> {
    let field = |name: &str| text.split(',').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
    let target = field("target").unwrap_or_default().to_owned();
    let read_only = text.split(',').any(|it| it == "readonly");
    match (field("type"), field("source")) {
        (Some("bind"), Some(source)) if Path::new(source).is_dir() => {
            Ok(Mount::Bind { source: source.into(), target, read_only })
        }
        (Some("volume"), Some(name)) => {
            let volume: Value = state.read("volumes", name)?;
            let source = volume["configuration"]["source"].as_str().unwrap_or_default().into();
            Ok(Mount::Bind { source, target, read_only })
        }
        (Some("tmpfs"), None) => {
            let options = ["size", "mode"].iter().filter_map(|it| Some(format!("{it}={}", field(it)?)));
            Ok(Mount::Tmpfs { target, options: options.collect::<Vec<_>>().join(",") })
        }
        _ => bail!("invalid mount \"{text}\""),
    }
}

pub(crate) fn start(state: &State, words: Words) -> Result<Done> {
    let args = words.read(&[], &[], usize::MAX)?;
    let id = args.name()?;
    let _lock = state.lock()?;
    let mut stored: StoredContainer = state.read("containers", id)?;
    if stored.pid().is_some() {
        bail!("container {id} is already running");
    }
    let pid = spawn(state, &stored)?;
    stored.process = started_at(pid).map(|begun| (pid, begun));
    stored.started = Some(now());
    state.write("containers", id, &stored)?;
    Ok(Done::text(format!("{id}\n")))
}

/// Starts the first process, in namespaces of its own, and waits until its files are in place.
fn spawn(state: &State, stored: &StoredContainer) -> Result<u32> {
    let log = || {
        fs::File::options().create(true).append(true).open(state.at("containers").join(format!("{}.log", stored.id)))
    };
    let ready = state.at("containers").join(format!("{}.ready", stored.id));
    let _ = fs::remove_file(&ready);
    let network = stored.networks.is_empty().then_some("--net");
    let mut command = Command::new("/usr/bin/unshare");
    command.args(ISOLATED).args(network).args(["--fork", "--propagation", "private"]);
    command.arg(std::env::current_exe()?).arg("__init").arg(state.at("containers").join(format!("{}.json", stored.id)));
    command.args([state.root_of(&stored.id), ready.clone()]).env_clear();
    let mut between = command.stdin(Stdio::null()).stdout(log()?).stderr(log()?).process_group(0).spawn()?;
    let begun = Instant::now();
    while !ready.exists() {
        if between.try_wait()?.is_some() || begun.elapsed() > PATIENCE {
            let output =
                fs::read_to_string(state.at("containers").join(format!("{}.log", stored.id))).unwrap_or_default();
            bail!("container {} did not start: {}", stored.id, output.trim());
        }
        wait(POLL);
    }
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", between.id()))?;
    let pid: u32 = children.split_whitespace().next().unwrap_or_default().parse()?;
    // Until it becomes the command, its root is still that of this machine.
    let program = |pid: &str| fs::metadata(format!("/proc/{pid}/exe")).ok().map(|it| (it.dev(), it.ino()));
    while program(&pid.to_string()) == program("self") && between.try_wait()?.is_none() {
        wait(POLL);
    }
    Ok(pid)
}

pub(crate) fn stop(state: &State, words: Words) -> Result<Done> {
    let args = words.read(&["--time"], &[], usize::MAX)?;
    let grace = Duration::from_secs(args.one("--time").unwrap_or("5").parse()?);
    let stored: StoredContainer = state.read("containers", args.name()?)?;
    let Some(pid) = stored.pid() else { bail!("container {} is not running", stored.id) };
    // A container's machine has a first process of its own, so that even a mere `sleep` is signalled.
    let hears = stored.command[0].ends_with("/guest");
    signal(pid, if hears { Signal::TERM } else { Signal::KILL });
    let begun = Instant::now();
    while stored.pid().is_some() && begun.elapsed() < grace {
        wait(POLL);
    }
    end(&stored);
    Ok(Done::default())
}

pub(crate) fn kill(state: &State, words: Words) -> Result<Done> {
    let args = words.read(&["--signal"], &[], usize::MAX)?;
    let stored: StoredContainer = state.read("containers", args.name()?)?;
    if args.one("--signal") != Some("KILL") {
        return Err(Usage("only KILL is played".into()).into());
    }
    if stored.pid().is_none() {
        bail!("container {} is not running", stored.id);
    }
    end(&stored);
    Ok(Done::default())
}

/// Kills all its processes, and waits until they have ended.
pub(crate) fn end(stored: &StoredContainer) {
    let begun = Instant::now();
    while let Some(pid) = stored.pid() {
        signal(pid, Signal::KILL);
        if begun.elapsed() > PATIENCE {
            return;
        }
        wait(POLL);
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

pub(crate) fn delete(state: &State, words: Words, faults: &Faults) -> Result<Done> {
    let args = words.read(&[], &["--force"], usize::MAX)?;
    let _lock = state.lock()?;
    let stored: StoredContainer = state.read("containers", args.name()?)?;
    if faults.keeps() {
        bail!("container {} can not be deleted: a process is still there", stored.id);
    }
    if stored.pid().is_some() && !args.has("--force") {
        bail!("container {} can not be deleted: it is running", stored.id);
    }
    end(&stored);
    forget(state, &stored.id)?;
    Ok(Done::text(format!("{}\n", stored.id)))
}

pub(crate) fn forget(state: &State, id: &str) -> Result<()> {
    state.forget("containers", id)?;
    for file in ["log", "ready"] {
        let _ = fs::remove_file(state.at("containers").join(format!("{id}.{file}")));
    }
    Ok(fs::remove_dir_all(state.root_of(id))?)
}

pub(crate) fn inspect(state: &State, words: Words, faults: &Faults) -> Result<Done> {
    let stored: Vec<StoredContainer> =
        words.names()?.iter().map(|it| state.read("containers", it)).collect::<Result<_>>()?;
    Ok(Done::text(Value::from_iter(stored.iter().map(|it| answers::container(state, it, faults))).to_string()))
}

pub(crate) fn list(state: &State, words: Words, faults: &Faults) -> Result<Done> {
    words.listing(&["--all"])?;
    let stored: Vec<StoredContainer> = state.all("containers")?;
    Ok(Done::text(Value::from_iter(stored.iter().map(|it| answers::container(state, it, faults))).to_string()))
}

pub(crate) fn logs(state: &State, words: Words) -> Result<Done> {
    let args = words.read(&["-n"], &[], usize::MAX)?;
    let (stored, count): (StoredContainer, usize) =
        (state.read("containers", args.name()?)?, args.one("-n").unwrap_or("200").parse()?);
    let text = fs::read_to_string(state.at("containers").join(format!("{}.log", stored.id))).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    Ok(Done::text(lines[lines.len().saturating_sub(count)..].iter().map(|it| format!("{it}\n")).collect::<String>()))
}

pub(crate) fn stats(state: &State, words: Words) -> Result<Done> {
    let args = words.read(&["--format"], &["--no-stream"], usize::MAX)?;
    let stored: StoredContainer = state.read("containers", args.name()?)?;
    let Some(pid) = stored.pid() else { bail!("container {} is not running", stored.id) };
    let pages: u64 = fs::read_to_string(format!("/proc/{pid}/statm"))?.split(' ').nth(1).unwrap_or("0").parse()?;
    // Fields that a version does not know are missing.
    let it = json!([{ "id": stored.id, "memoryUsageBytes": pages * 4096, "memoryLimitBytes": stored.memory,
        "cpuUsageUsec": 1000, "numProcesses": 1 }]);
    Ok(Done::text(it.to_string()))
}

pub(crate) fn exec(state: &State, words: Words) -> Result<Done> {
    let args = words.read(&["--env", "--user", "--workdir"], &["--interactive"], 1)?;
    let [id, command @ ..] = args.names.as_slice() else { return Err(Usage("no container".into()).into()) };
    let stored: StoredContainer = state.read("containers", id)?;
    let Some(pid) = stored.pid() else { bail!("container {id} is not running") };
    // A variable without a value is this program's own.
    let given = args.all("--env").filter_map(|it| match it.contains('=') {
        true => Some(it.to_owned()),
        false => Some(format!("{it}={}", std::env::var(it).ok()?)),
    });
    let entry = Entry {
        root: format!("/proc/{pid}/root").into(),
        env: stored.env.iter().cloned().chain(given).collect(),
        user: args.one("--user").map_or(stored.user, str::to_owned),
        workdir: args.one("--workdir").unwrap_or("/").to_owned(),
        capabilities: stored.capabilities,
        command: command.to_vec(),
    };
    let mut enter = Command::new("/usr/bin/nsenter");
    enter.args(["--target", &pid.to_string()]).args(ISOLATED).args(stored.networks.is_empty().then_some("--net"));
    enter.arg(std::env::current_exe()?).arg("__enter").arg(serde_json::to_string(&entry)?).env_clear();
    if !args.has("--interactive") {
        enter.stdin(Stdio::null());
    }
    let status = enter.status()?;
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or(status.signal().map(|it| 128 + it)).unwrap_or(1);
    Ok(Done::code(u8::try_from(code).unwrap_or(1)))
}
