//! No key is inside while an agent works: files, processes and their memory are searched from the host, whose root can read
//! all of it, and from inside as root (X56).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use memchr::memmem;
use regex::bytes::Regex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::process::Child;

use super::{Bench, Given, with_bench_of};
use crate::engines::{is_root, ran};
use crate::servers::model::{call, calls, held, says};
use crate::tool::canary::{Canaries, files_below, stored_bytes};
use crate::tool::eventually;

/// Memory is read in overlapping pieces, so that no value is split.
const PIECE: usize = 1 << 20;
const OVERLAP: usize = 512;

/// Characters of a token: 32 bytes in base64url.
const TOKEN: usize = 43;

/// A text long enough to search for: only the worker receives it.
const PROMPT: &str = "Push it, and say that the heron has landed on the seventh roof.";

/// A process of a container, seen from the host.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// Its command line.
    words: String,
}

impl Process {
    pub(super) fn is_worker(&self) -> bool {
        self.words.starts_with("/.coracle/worker")
    }

    fn proc(&self, name: &str) -> Vec<u8> {
        std::fs::read(format!("/proc/{}/{name}", self.pid)).unwrap_or_default()
    }

    /// Shows all of its memory that can be read at all.
    fn memory(&self, look: impl FnMut(&[u8])) {
        memory(self.pid, look);
    }

    fn holds(&self, what: &[u8]) -> bool {
        let (finder, mut found) = (memmem::Finder::new(what), false);
        self.memory(|piece| found |= finder.find(piece).is_some());
        found
    }
}

fn memory(pid: u32, mut look: impl FnMut(&[u8])) {
    // An exited process has no memory.
    let Ok(maps) = std::fs::read_to_string(format!("/proc/{pid}/maps")) else { return };
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return };
    let mut piece = vec![0; PIECE];
    let hex = |it: &str| u64::from_str_radix(it, 16).unwrap();
    for line in maps.lines() {
        let mut words = line.split(' ');
        let (range, rights) = (words.next().unwrap(), words.next().unwrap());
        let (from, to) = range.split_once('-').unwrap();
        let (mut at, to) = (hex(from), hex(to));
        while rights.starts_with('r') && at < to {
            let wanted = PIECE.min(usize::try_from(to - at).unwrap());
            // Some of the kernel's own mappings are unreadable.
            let Ok(read @ 1..) = memory.read_at(&mut piece[..wanted], at) else { break };
            look(&piece[..read]);
            let step = if at + read as u64 >= to || read <= OVERLAP { read } else { read - OVERLAP };
            at += step as u64;
        }
    }
}

/// Every process of the container with this PID 1, which is the first.
pub(super) fn processes(pid1: u32) -> Vec<Process> {
    let space = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = space(pid1);
    assert!(own.is_some(), "PID 1 of the container is there");
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|it| it.unwrap().file_name().to_str()?.parse().ok());
    let mut all: Vec<_> = pids.filter(|it| space(*it) == own).map(of).collect();
    all.sort_by_key(|it| (it.pid != pid1, it.pid));
    all
}

fn of(pid: u32) -> Process {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    Process { pid, words: String::from_utf8_lossy(&words).replace('\0', " ") }
}

/// Every file that the container sees, in memory or not, with its name. The kernel's virtual files are read for each
/// process.
fn files(pid1: u32) -> Vec<u8> {
    let root = PathBuf::from(format!("/proc/{pid1}/root"));
    let mut all = vec![];
    for entry in std::fs::read_dir(&root).unwrap().flatten() {
        let name = entry.file_name();
        if ["proc", "sys"].iter().all(|it| name != *it) && entry.file_type().is_ok_and(|it| it.is_dir()) {
            all.extend(files_below(&entry.path()));
        } else if entry.file_type().is_ok_and(|it| it.is_file()) {
            all.extend(std::fs::read(entry.path()).unwrap_or_default());
        }
    }
    all
}

/// Hashes of the tokens in processes. The host itself has only hashes.
fn tokens(holders: &[&Process], hashes: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let run = Regex::new(&format!("(?-u)[A-Za-z0-9_-]{{{TOKEN},}}")).unwrap();
    for holder in holders {
        holder.memory(|piece| {
            for token in run.find_iter(piece).flat_map(|it| it.as_bytes().windows(TOKEN)) {
                // 32 random bytes contain all of these; most other long texts do not.
                let kinds = [u8::is_ascii_uppercase, u8::is_ascii_lowercase, u8::is_ascii_digit];
                if !kinds.iter().all(|it| token.iter().any(it)) {
                    continue;
                }
                let hash = hex::encode(Sha256::digest(token));
                if hashes.contains(&hash) {
                    found.insert(hash, String::from_utf8(token.to_vec()).unwrap());
                }
            }
        });
    }
    found
}

/// Hashes of tokens on the host: those of connections and of workers.
fn hashes(bench: &Bench<'_>) -> (String, Vec<String>) {
    let dirs = std::fs::read_dir(bench.tool.state().join("sandboxes")).unwrap().flatten();
    let record = dirs.filter_map(|it| std::fs::read(it.path().join("record.json")).ok()).next().unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    (text(&record["ready"]["net"]), record["ready"]["llm"].as_array().unwrap().iter().map(text).collect())
}

impl Bench<'_> {
    pub(super) async fn pid1(&self) -> u32 {
        let reported = self.tool.engine_says(&["inspect", "--format={{.State.Pid}}", &self.container().await]).await;
        reported.parse().unwrap()
    }

    /// Looks for keys and tokens everywhere, and gives what the processes were that it looked into.
    async fn searched(&self, when: &str, canaries: &Canaries) -> Vec<String> {
        let pid1 = self.pid1().await;
        let all = processes(pid1);
        let (guest, worker) = (&all[0], all.iter().find(|it| it.is_worker()).expect("a worker runs"));
        // Positive control: the search finds what a process received.
        assert!(worker.holds(PROMPT.as_bytes()), "{when}: the worker knows what it is to do");
        for process in &all {
            for name in ["environ", "cmdline", "maps"] {
                canaries.absent(&format!("{when}: {name} of {process:?}"), &process.proc(name));
            }
            process.memory(|piece| canaries.absent(&format!("{when}: memory of {process:?}"), piece));
        }
        let id = self.container().await;
        let container = self.tool.engine_says(&["inspect", &id]).await.into_bytes();
        let root = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/maps 2>/dev/null; env; \
                    find /.coracle /tmp /workspace /etc /root /home /run /var /dev/shm -type f -exec cat {} + 2>/dev/null";
        let seen = self.tool.engine(&["exec", "-u", "0:0", &id, "sh", "-c", root]).await.1.into_bytes();
        assert!(memmem::find(&seen, b"insteadOf").is_some(), "{when}: git's configuration is seen as root");
        let surfaces = [
            ("files inside", files(pid1)),
            ("what root sees inside", seen),
            ("inspect", container),
            ("the engine's own files", stored_bytes(self.tool, &id)),
            ("what is remembered on the host", files_below(&self.tool.state())),
        ];
        for (name, bytes) in &surfaces {
            canaries.absent(&format!("{when}: {name}"), bytes);
        }

        let (net, workers) = hashes(self);
        let found = tokens(&[guest, worker], &workers.iter().cloned().chain([net.clone()]).collect());
        let net = found.get(&net).expect("the guest holds the token of its relays");
        let llm: Vec<_> = workers.iter().filter_map(|it| found.get(it)).collect();
        assert!(guest.holds(net.as_bytes()) && !worker.holds(net.as_bytes()), "{when}");
        assert!(
            !llm.is_empty() && llm.iter().all(|it| worker.holds(it.as_bytes())),
            "{when}: the worker holds its token"
        );
        for token in llm.into_iter().chain([net]) {
            let others = all.iter().filter(|it| it.pid != guest.pid && it.pid != worker.pid);
            let holders: Vec<_> = others.filter(|it| it.holds(token.as_bytes())).collect();
            assert!(holders.is_empty(), "{when}: a token is in {holders:?}");
            for process in &all {
                let reported = ["environ", "cmdline", "maps"].map(|it| process.proc(it)).concat();
                assert!(memmem::find(&reported, token.as_bytes()).is_none(), "{when}: {process:?} tells of a token");
            }
            for (name, bytes) in &surfaces {
                assert!(memmem::find(bytes, token.as_bytes()).is_none(), "{when}: a token lies in {name}");
            }
        }
        all.into_iter().map(|it| it.words).collect()
    }

    /// An agent that works, until its process is waited for.
    fn begins(&self, id: &str) -> Child {
        let mut command = self.tool.command(["worker", "run", "--json", "--worktree", id, "--prompt", PROMPT]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
    }
}

/// The server blocks every push until a file exists. Returns that file, and the file that shows a waiting push.
pub(super) fn holds_pushes(repository: &Path) -> (PathBuf, PathBuf) {
    let (waits, go) = (repository.join("waits"), repository.join("go"));
    for left in [&waits, &go] {
        let _ = std::fs::remove_file(left);
    }
    let hook = repository.join("hooks/pre-receive");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    crate::tool::person::program(&hook, ": > waits; while [ ! -e go ]; do sleep 0.05; done");
    (waits, go)
}

#[tokio::test]
async fn x56_no_key_is_inside_even_in_memory_during_a_model_call_and_a_push() {
    let mut canaries = Canaries::default();
    let (key, password) = (canaries.hatch("key of the models"), canaries.hatch("password of the git server"));
    with_bench_of(Given { in_env: &key, ..Given::USUAL }, "", async |bench| {
        if !is_root() {
            return bench.tool.case.left_out(); // who may not look into the processes of another user
        }
        bench.server.requires("me", &password);
        let helper = format!("!f() {{ test \"$1\" = get && printf 'username=me\\npassword={password}\\n'; }}; f");
        bench.tool.at_home(".gitconfig", &format!("[credential]\n\thelper = {helper:?}\n"));
        let id = bench.id("searched");
        bench.created(&id).await;
        let push = format!(
            "git fetch -q origin && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && \
             git push -q origin HEAD:refs/heads/coracle/{id} 2>&1; echo pushed $?"
        );
        let requests = bench.model.requests().len();
        let (first, go_on) = held(calls([call("shell_execute", json!({ "command": ["sh", "-c", push] }))]));
        bench.model.then([first, says("done")]);
        let (waits, go) = holds_pushes(&bench.server.dir("web"));
        let agent = bench.begins(&id);
        let soon = Duration::from_secs(30);
        eventually("a model is called", soon, async || bench.model.requests().len() > requests).await;
        // Positive control: the search finds a process with the key.
        let host = agent.id().unwrap();
        let mut hits = BTreeSet::new();
        memory(host, |piece| hits.extend(canaries.hits(piece)));
        assert!(hits.iter().any(|it| it.starts_with("key of the models")), "the host's process has the key: {hits:?}");

        bench.searched("in a model call", &canaries).await;
        go_on.notify_one();
        eventually("git pushes", soon, async || waits.exists()).await;
        let looked_into = bench.searched("in a push", &canaries).await;
        assert!(looked_into.iter().any(|it| it.contains("remote-http")), "git was looked into: {looked_into:?}");
        std::fs::write(go, "").unwrap();
        let output = tokio::time::timeout(soon, agent.wait_with_output()).await.unwrap().unwrap();
        let reported = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && reported.contains("pushed 0"), "{reported}");
        canaries.absent("the report of the run", reported.as_bytes());
        let sent = bench.server.requests();
        assert!(sent.iter().any(|it| it.path.ends_with("receive-pack") && it.headers.contains_key("authorization")));
        assert!(bench.model.requests().iter().all(|it| it.headers["authorization"] == format!("Bearer {key}")));
        std::fs::remove_file(bench.server.dir("web").join("hooks/pre-receive")).unwrap();
        ran("x56", bench.tool.case.engine());
    })
    .await;
}
