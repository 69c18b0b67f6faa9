//! Images: each is a directory of files and a command.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Done;
use crate::state::{State, StoredContainer, now};
use crate::words::Words;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Image {
    pub(crate) name: String,
    pub(crate) digest: String,
    created: String,
    size: u64,
    pub(crate) config: Config,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Config {
    pub(crate) env: Vec<String>,
    pub(crate) user: String,
    pub(crate) working_dir: String,
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    labels: BTreeMap<String, String>,
}

pub(crate) fn arch() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// The image of a name, short or whole.
pub(crate) fn find(state: &State, reference: &str) -> Result<Image> {
    let whole = completed(reference);
    let all: Vec<Image> = state.all("images")?;
    all.into_iter().find(|it| it.name == whole).ok_or_else(|| anyhow!("image \"{reference}\" not found"))
}

/// The full name of a short one.
fn completed(reference: &str) -> String {
    let registry = reference.split_once('/').is_some_and(|it| it.0.contains(['.', ':']) || it.0 == "localhost");
    let named = match (registry, reference.contains('/')) {
        (true, _) => reference.to_owned(),
        (false, true) => format!("docker.io/{reference}"),
        (false, false) => format!("docker.io/library/{reference}"),
    };
    let last = named.rsplit('/').next().unwrap_or_default();
    if last.contains([':', '@']) { named } else { format!("{named}:latest") }
}

/// The file of a name.
fn key(name: &str) -> String {
    hex::encode(Sha256::digest(name.as_bytes()))
}

pub(crate) fn list(state: &State, words: Words) -> Result<Done> {
    words.listing(&[])?;
    let all: Vec<Image> = state.all("images")?;
    Ok(Done::text(Value::from_iter(all.iter().map(description)).to_string()))
}

pub(crate) fn inspect(state: &State, words: Words) -> Result<Done> {
    let found: Vec<_> = words.names()?.iter().map(|it| find(state, it)).collect::<Result<_>>()?;
    Ok(Done::text(Value::from_iter(found.iter().map(description)).to_string()))
}

fn description(it: &Image) -> Value {
    let attestation =
        json!({ "platform": { "os": "unknown", "architecture": "unknown" }, "digest": it.digest, "size": 1 });
    let variant = json!({ "platform": { "os": "linux", "architecture": arch() }, "digest": it.digest, "size": it.size,
        "config": { "architecture": arch(), "os": "linux", "config": it.config } });
    json!({ "id": it.digest, "variants": [attestation, variant],
        "configuration": { "name": it.name, "creationDate": it.created, "descriptor": { "digest": it.digest } } })
}

pub(crate) fn tag(state: &State, words: Words) -> Result<Done> {
    let names = words.names()?;
    let [from, to] = names.as_slice() else { bail!("two names are needed") };
    let _lock = state.lock()?;
    keep(state, &Image { name: completed(to), ..find(state, from)? })?;
    Ok(Done::default())
}

fn keep(state: &State, image: &Image) -> Result<()> {
    state.write("images", &key(&image.name), image)
}

pub(crate) fn delete(state: &State, words: Words) -> Result<Done> {
    let _lock = state.lock()?;
    for name in words.names()? {
        let image = find(state, &name)?;
        let users: Vec<StoredContainer> = state.all("containers")?;
        if users.iter().any(|it| it.digest == image.digest) {
            bail!("image \"{name}\" can not be deleted: a container uses it");
        }
        state.forget("images", &key(&image.name))?;
        let all: Vec<Image> = state.all("images")?;
        if all.iter().all(|it| it.digest != image.digest) {
            fs::remove_dir_all(root_of(state, &image.digest))?;
        }
    }
    Ok(Done::default())
}

pub(crate) fn root_of(state: &State, digest: &str) -> std::path::PathBuf {
    state.at("images").join(digest.trim_start_matches("sha256:"))
}

/// The supported build files: `FROM scratch`, `ADD`, `ENV`, `USER` and `WORKDIR`.
pub(crate) fn build(state: &State, words: Words) -> Result<Done> {
    let args = words.read(&["--progress", "--tag", "--file", "--label"], &[], usize::MAX)?;
    let (context, tag) = (Path::new(args.name()?).to_owned(), args.one("--tag").unwrap_or("untagged"));
    let file = args.one("--file").map_or_else(|| context.join("Dockerfile"), Into::into);
    let text = fs::read_to_string(file)?;
    let mut config = Config { labels: args.pairs("--label"), ..Config::default() };
    let (mut hash, mut archives) = (Sha256::new(), Vec::new());
    hash.update(&text);
    hash.update(serde_json::to_vec(&config)?);
    for line in text.lines().filter(|it| !it.trim().is_empty()) {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("FROM", "scratch") => {}
            ("ADD", what) => archives.push(context.join(what.split(' ').next().unwrap_or_default())),
            ("ENV", pair) => {
                let (name, value) = pair.split_once('=').context("ENV without a value")?;
                config.env.push(format!("{name}={}", unquoted(value)));
            }
            ("USER", user) => config.user = unquoted(user),
            ("WORKDIR", dir) => config.working_dir = unquoted(dir),
            _ => bail!("this build is not played: {line}"),
        }
    }
    let mut size = 0;
    for archive in &archives {
        let bytes = fs::read(archive)?;
        hash.update(&bytes);
        size += bytes.len() as u64;
    }
    let digest = format!("sha256:{}", hex::encode(hash.finalize()));
    let _lock = state.lock()?;
    let root = root_of(state, &digest);
    if !root.exists() {
        unpack(&archives, &root)?;
    }
    let name = completed(tag);
    keep(state, &Image { name: name.clone(), digest, created: now(), size, config })?;
    Ok(Done::text(format!("{name}\n")))
}

fn unpack(archives: &[std::path::PathBuf], root: &Path) -> Result<()> {
    let unfinished = root.with_extension("new");
    let _ = fs::remove_dir_all(&unfinished);
    fs::create_dir(&unfinished)?;
    for archive in archives {
        let mut tar = tar::Archive::new(BufReader::new(File::open(archive)?));
        tar.set_preserve_permissions(true);
        for entry in tar.entries().context("the archive cannot be unpacked")? {
            let mut entry = entry.context("the archive cannot be unpacked")?;
            // The default owner is root.
            let owner = (entry.header().uid().unwrap_or(0), entry.header().gid().unwrap_or(0));
            entry.unpack_in(&unfinished)?;
            let (uid, gid) = (u32::try_from(owner.0)?, u32::try_from(owner.1)?);
            std::os::unix::fs::lchown(unfinished.join(entry.path()?), Some(uid), Some(gid))?;
        }
    }
    Ok(fs::rename(unfinished, root)?)
}

/// A value of a build file.
fn unquoted(text: &str) -> String {
    let inner = text.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(text);
    let (mut plain, mut chars) = (String::new(), inner.chars());
    while let Some(it) = chars.next() {
        plain.push(if it == '\\' { chars.next().unwrap_or(it) } else { it });
    }
    plain
}
