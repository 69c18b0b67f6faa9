//! What goes another way on Apple's engine: ids are names, listings are filtered here, and its word is checked.
//!
//! Its answers can be behind the truth, and a removal may meet a process that is ending: what shall be gone is asked for
//! until the listing lacks it. A failure tells nothing by its exit status, so the service is asked whether it is there.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use super::args::{self, Words, apple as words};
use super::client::{Client, Kept};
use super::{CliRuntime, deadline};
use crate::cli::read::{self, apple as answers};
use crate::host::process::{Finished, Stdin};
use crate::{
    Capability, Container, ContainerId, ContainerPath, Error, Excerpt, Handle, Image, ImageAct, ImageRef, Input,
    LabelFilter, Network, NetworkAct, Placed, Removed, Result, Usage, Volume, VolumeAct,
};

/// Between two looks at what is neither running nor stopped.
const SETTLES: Duration = Duration::from_millis(500);

/// How often it is looked at again.
const LOOKS: usize = 3;

/// After each attempt to remove something.
const REMOVAL: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// Two looks at the time that processors were used, this far apart, give a share.
const BETWEEN: Duration = Duration::from_millis(100);

/// Where the system tells its version.
const SYSTEM: &str = "/System/Library/CoreServices/SystemVersion.plist";

/// Version and state of the engine.
pub(super) async fn info(client: &Client) -> Result<crate::EngineInfo> {
    if let Ok(plist) = std::fs::read_to_string(SYSTEM) {
        answers::system(&plist)?;
    }
    let told = client.run("system version", words::system("version"), deadline::READ).await?;
    let told = told.stdout.bytes();
    answers::version(&told)?;
    is_up(client).await?;
    read::info(super::Dialect::Apple, &told, (client.endpoint(), client.home()))
}

/// Nothing, if its service runs.
async fn is_up(client: &Client) -> Result<()> {
    let told = client.run("system status", words::system("status"), deadline::READ).await?;
    if told.ok() && answers::is_up(&told.stdout.bytes()) { Ok(()) } else { Err(client.unavailable(&told)) }
}

/// Asks; when that fails, it is told whether the service is there at all.
async fn ask(client: &Client, verb: &'static str, it: Words, within: Duration) -> Result<Finished> {
    match client.ask(verb, it, within).await {
        Err(failure @ Error::Engine { .. }) => Err(is_up(client).await.err().unwrap_or(failure)),
        other => other,
    }
}

/// All containers, each in a state that will stay.
pub(super) async fn list(client: &Client, filter: &LabelFilter) -> Result<Vec<Container>> {
    let mut found = Vec::new();
    for look in 0..=LOOKS {
        let told = ask(client, "list", words::list(), deadline::READ).await?.stdout.bytes();
        found = answers::containers(&told)?;
        if look == LOOKS || !answers::unsettled(&told) {
            break;
        }
        tokio::time::sleep(SETTLES).await;
    }
    found.retain(|it| filter.admits(&it.labels));
    Ok(found)
}

/// The ids that a handle leads to: one at most.
pub(super) async fn ids_of(client: &Client, handle: &Handle) -> Result<Vec<String>> {
    let told = ask(client, "list", words::list(), deadline::READ).await?;
    let ids = answers::containers(&told.stdout.bytes())?.into_iter().map(|it| it.id.to_string());
    Ok(ids.filter(|it| it.eq_ignore_ascii_case(handle.as_str())).collect())
}

/// A container in a state that will stay.
pub(super) async fn inspect(client: &Client, handle: &Handle) -> Result<Container> {
    let ended = inspect_settled(client, handle).await?;
    let missing = || Error::NoSuchContainer(handle.to_string());
    if ended.ok() {
        return read::container_of(super::Dialect::Apple, handle, &ended.stdout.bytes())?.ok_or_else(missing);
    }
    if ids_of(client, handle).await?.is_empty() { Err(missing()) } else { Err(client.failed("inspect", &ended)) }
}

async fn inspect_settled(client: &Client, handle: &Handle) -> Result<Finished> {
    let one = || client.run("inspect", args::inspect(super::Dialect::Apple, handle.as_str()), deadline::READ);
    let mut told = one().await?;
    for _ in 0..LOOKS {
        if !told.ok() || !answers::unsettled(&told.stdout.bytes()) {
            break;
        }
        tokio::time::sleep(SETTLES).await;
        told = one().await?;
    }
    Ok(told)
}

/// The words of a container. The engine finds images by their names alone, so the one that was chosen is looked up.
pub(super) async fn create(client: &Client, placed: &Placed) -> Result<Words> {
    // What cannot be said is refused before any program starts.
    let asked = words::Base { reference: placed.spec().image.clone(), has_user: false };
    words::create(placed, &asked)?;
    let found = find_images(client, &[placed.image().as_str().to_owned()]).await?;
    let named = found.first().and_then(|it| Some((it, ImageRef::parse(it.tags.first()?).ok()?)));
    let Some((image, reference)) = named else {
        let excerpt = Excerpt::of(format!("no image has the digest {}", placed.image()).as_bytes());
        return Err(Error::Engine { verb: "create", exit: 1, excerpt });
    };
    words::create(placed, &words::Base { reference, has_user: !image.config.user.is_empty() })
}

/// Stops a container that runs. Its state decides whether that is done, and if not, it is killed.
pub(super) async fn stop(runtime: &CliRuntime, id: &ContainerId, grace: Duration) -> Result<()> {
    use crate::ContainerRuntime;
    if !runtime.inspect(&id.into()).await?.running() {
        return Ok(());
    }
    let it = args::stop(runtime.dialect, id, grace);
    let stopped = runtime.client.run("stop", it, deadline::REMOVE + grace).await?;
    for look in 0..LOOKS {
        if !runtime.inspect(&id.into()).await?.running() {
            return Ok(());
        }
        if look == 0 {
            runtime.client.run("kill", words::kill(id), deadline::REMOVE).await?;
        }
        tokio::time::sleep(SETTLES).await;
    }
    Err(runtime.client.failed("stop", &stopped))
}

/// Removes until the listing lacks it.
pub(super) async fn remove(client: &Client, id: &ContainerId) -> Result<Removed> {
    let handle = id.into();
    if ids_of(client, &handle).await?.is_empty() {
        return Ok(Removed::AlreadyGone);
    }
    let mut said = Excerpt::default();
    for (attempt, pause) in REMOVAL.into_iter().enumerate() {
        if attempt > 0 {
            // What stands in the way may be a process that does not end.
            client.run("kill", words::kill(id), deadline::REMOVE).await?;
        }
        let deleted = client.run("delete", words::delete(id), deadline::REMOVE).await?;
        if ids_of(client, &handle).await?.is_empty() {
            return Ok(Removed::Now);
        }
        said = Excerpt::of(&deleted.stderr.bytes());
        tokio::time::sleep(pause).await;
    }
    if ids_of(client, &handle).await?.is_empty() {
        return Ok(Removed::Now);
    }
    Err(Error::CleanupFailed { name: id.to_string(), excerpt: said })
}

/// What the engine counts itself: the machine that a container runs in is not one of this kernel.
pub(super) async fn usage(client: &Client, id: &ContainerId) -> Result<Option<Usage>> {
    let look = async || {
        let told = client.run("stats", words::stats(id), deadline::READ).await?;
        if told.ok() { answers::stats(&told.stdout.bytes()) } else { Ok(None) }
    };
    let begun = tokio::time::Instant::now();
    let Some(first) = look().await? else { return Ok(None) };
    tokio::time::sleep(BETWEEN).await;
    let Some(it) = look().await? else { return Ok(None) };
    let used = it.cpu_usage_usec.unwrap_or_default().saturating_sub(first.cpu_usage_usec.unwrap_or_default());
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a short while")]
    let cpu_percent = used as f64 / begun.elapsed().as_micros().max(1) as f64 * 100.0;
    let (memory, pids) = (it.memory_usage_bytes.unwrap_or_default(), it.num_processes.unwrap_or_default());
    Ok(Some(Usage { memory_bytes: memory, pids, cpu_percent, disk_bytes: None }))
}

/// Unpacks a tar of ours here, copies what lies at its top, and sets the owners that the copy cannot carry.
pub(super) async fn upload(client: &Client, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()> {
    let temp = client.temp_dir("copy")?;
    words::copy_in(temp.path(), id, at)?;
    let dir = temp.path().to_owned();
    let unpacked = tokio::task::spawn_blocking(move || unpack(tar, &dir)).await.map_err(std::io::Error::other);
    let owners = unpacked.and_then(|it| it).map_err(|source| host("cannot unpack the archive", source))?;
    let names = entries(temp.path())?;
    if names.is_empty() && ids_of(client, &id.into()).await?.is_empty() {
        return Err(Error::NoSuchContainer(id.to_string()));
    }
    into_directory(client, id, at).await?;
    for name in names {
        let it = words::copy_in(&temp.path().join(&name), id, at)?;
        ask(client, "upload", it, deadline::COPY).await?;
    }
    let at = at.as_str().trim_end_matches('/');
    let lines: String = owners.iter().map(|(owner, path)| format!("{owner}\n{at}/{path}\n")).collect();
    if !lines.is_empty() {
        client.feed("upload", words::own(id), Stdin::Input(Input::Bytes(lines.into_bytes())), deadline::COPY).await?;
    }
    Ok(())
}

/// A copy may make the directory that it is told, where it shall only be filled. In a container that does not run, or
/// has no shell, nobody can look.
async fn into_directory(client: &Client, id: &ContainerId, at: &ContainerPath) -> Result<()> {
    let look = args::is_dir(super::Dialect::Apple, id, crate::Ids::ROOT, at);
    if client.run("exec", look, deadline::READ).await?.exit != 1 {
        return Ok(());
    }
    let all = list(client, &LabelFilter::default()).await?;
    if !all.iter().any(|it| it.id == *id && it.running()) {
        return Ok(());
    }
    let excerpt = Excerpt::of(format!("no directory {at}").as_bytes());
    Err(Error::Engine { verb: "upload", exit: 1, excerpt })
}

/// Unpacks, and gives the owners that are not root, with their paths.
fn unpack(tar: File, into: &Path) -> std::io::Result<Vec<(String, String)>> {
    let (mut archive, mut owners) = (tar::Archive::new(std::io::BufReader::new(tar)), Vec::new());
    archive.set_preserve_permissions(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let (uid, gid) = (entry.header().uid().unwrap_or(0), entry.header().gid().unwrap_or(0));
        let path = entry.path()?.to_string_lossy().into_owned();
        if path.contains('\n') {
            return Err(std::io::Error::other("a name has a line break"));
        }
        if (uid, gid) != (0, 0) {
            owners.push((format!("{uid}:{gid}"), path));
        }
        entry.unpack_in(into)?;
    }
    Ok(owners)
}

fn entries(dir: &Path) -> Result<Vec<std::ffi::OsString>> {
    let read = || std::fs::read_dir(dir)?.map(|it| it.map(|it| it.file_name())).collect::<std::io::Result<Vec<_>>>();
    read().map_err(|source| host("cannot read what was copied", source))
}

/// Copies a path out and packs it, up to a limit.
pub(super) async fn download(
    client: &Client,
    id: &ContainerId,
    path: &ContainerPath,
    (into, max_bytes): (File, u64),
) -> Result<()> {
    let temp = client.temp_dir("copy")?;
    ask(client, "download", words::copy_out(id, path, temp.path())?, deadline::COPY).await?;
    let dir = temp.path().to_owned();
    let packed = tokio::task::spawn_blocking(move || pack(&dir, into, max_bytes)).await;
    match packed.map_err(std::io::Error::other).and_then(|it| it) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::TooLarge { max_bytes }),
        Err(source) => Err(host("cannot pack what was copied", source)),
    }
}

/// Whether it fitted.
fn pack(dir: &Path, into: File, max_bytes: u64) -> std::io::Result<bool> {
    let mut tar = tar::Builder::new(Kept { into, left: max_bytes });
    tar.follow_symlinks(false);
    let mut work = || {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type()?.is_dir() {
                tar.append_dir_all(&name, entry.path())?;
            } else {
                tar.append_path_with_name(entry.path(), &name)?;
            }
        }
        tar.finish()
    };
    match work() {
        Err(err) if err.kind() == std::io::ErrorKind::FileTooLarge => Ok(false),
        other => other.map(|()| true),
    }
}

fn host(what: &str, source: std::io::Error) -> Error {
    Error::Host { what: what.into(), source }
}

pub(super) async fn image(client: &Client, act: ImageAct) -> Result<Vec<Image>> {
    match act {
        ImageAct::Find(names) => find_images(client, &names.iter().map(ToString::to_string).collect::<Vec<_>>()).await,
        ImageAct::Pull { image, deadline } => {
            match ask(client, "pull", args::pull(super::Dialect::Apple, &image), deadline).await {
                Ok(_) => find_images(client, &[image.completed().to_string()]).await,
                Err(Error::Engine { excerpt, .. }) => Err(Error::PullFailed { image, excerpt }),
                Err(other) => Err(other),
            }
        }
        ImageAct::Import { tar, tag, env, labels } => {
            import(client, super::images::unpacked(tar)?, &tag, (&env, &labels)).await?;
            find_images(client, &[tag.to_string()]).await
        }
        ImageAct::Commit { .. } => {
            Err(Error::Unsupported { engine: crate::EngineKind::Container, capability: Capability::Commit })
        }
        ImageAct::Build(_) => {
            Err(Error::Unsupported { engine: crate::EngineKind::Container, capability: Capability::Build })
        }
        ImageAct::List(filter) => {
            let mut found = with_configuration(client, all_images(client).await?).await?;
            found.retain(|it| filter.admits(&it.labels));
            Ok(found)
        }
        ImageAct::Tag { image, tag } => {
            // It knows images by their names alone.
            let named = all_images(client).await?.into_iter().find(|it| it.id == image);
            let named = named.and_then(|it| it.tags.into_iter().next()).unwrap_or_else(|| image.to_string());
            ask(client, "tag", words::tag(&named, &tag)?, deadline::READ).await?;
            Ok(Vec::new())
        }
        ImageAct::Remove(id) => remove_names(client, |image, _| image.id == id).await.map(|()| Vec::new()),
        ImageAct::Untag(name) => {
            let name = name.completed().to_string();
            remove_names(client, |_, tag| tag == name).await.map(|()| Vec::new())
        }
    }
}

async fn all_images(client: &Client) -> Result<Vec<Image>> {
    answers::images(&ask(client, "image list", words::images(), deadline::READ).await?.stdout.bytes())
}

/// Images of these names, in their order; names of one image are one image.
async fn find_images(client: &Client, names: &[String]) -> Result<Vec<Image>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let all = all_images(client).await?;
    let named = |text: &String| {
        let name = ImageRef::parse(text).ok()?;
        all.iter().find(|it| it.is_named(&name)).cloned()
    };
    with_configuration(client, names.iter().filter_map(named).collect()).await
}

/// The listing may leave out how an image is configured.
async fn with_configuration(client: &Client, images: Vec<Image>) -> Result<Vec<Image>> {
    if images.is_empty() {
        return Ok(images);
    }
    let it = words::inspect_images(images.iter().flat_map(|it| it.tags.first()).map(String::as_str))?;
    let told = ask(client, "image inspect", it, deadline::READ).await?;
    answers::images(&told.stdout.bytes())
}

/// Names and values.
type Pairs<'a> = &'a [(String, String)];

/// There is no import: an image of one layer is built of the archive.
async fn import(client: &Client, mut tar: File, tag: &ImageRef, (env, labels): (Pairs<'_>, Pairs<'_>)) -> Result<()> {
    let temp = client.temp_dir("build")?;
    let (context, file) = (temp.path().to_owned(), temp.path().join("Dockerfile"));
    let text = words::dockerfile(env);
    let prepare = move || {
        std::fs::write(context.join("Dockerfile"), text)?;
        std::io::copy(&mut tar, &mut File::create(context.join(words::ROOT_FS))?).map(drop)
    };
    let prepared = tokio::task::spawn_blocking(prepare).await.map_err(std::io::Error::other).and_then(|it| it);
    prepared.map_err(|source| host("cannot prepare the image", source))?;
    ask(client, "import", words::build(temp.path(), &file, tag, labels)?, deadline::IMPORT).await.map(drop)
}

/// Removes every name of an image: the last one takes it along.
async fn remove_names(client: &Client, is_meant: impl Fn(&Image, &str) -> bool) -> Result<()> {
    let meant = async || -> Result<Vec<String>> {
        let all = all_images(client).await?;
        let names = |it: &Image| it.tags.iter().filter(|tag| is_meant(it, tag)).cloned().collect::<Vec<_>>();
        Ok(all.iter().flat_map(names).collect())
    };
    for name in meant().await? {
        match ask(client, "image delete", words::delete_image(&name)?, deadline::REMOVE).await {
            Err(failure) if meant().await?.contains(&name) => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}

pub(super) async fn network(client: &Client, act: NetworkAct) -> Result<Vec<Network>> {
    match act {
        NetworkAct::Find(name) => Ok(find_network(client, name.as_str()).await?.into_iter().collect()),
        NetworkAct::Create { reach: false, .. } => {
            Err(Error::Unsupported { engine: crate::EngineKind::Container, capability: Capability::PartedNetwork })
        }
        NetworkAct::Create { name, labels, internal, .. } => {
            let it = words::create_network(name.as_str(), &labels, internal)?;
            if find_network(client, name.as_str()).await?.is_some() {
                return Err(Error::NetworkTaken(name));
            }
            match ask(client, "network create", it, deadline::NETWORK).await {
                Ok(_) => Ok(find_network(client, name.as_str()).await?.into_iter().collect()),
                Err(_) if find_network(client, name.as_str()).await?.is_some() => Err(Error::NetworkTaken(name)),
                Err(failure) => Err(failure),
            }
        }
        NetworkAct::List(filter) => {
            let mut found = all_networks(client).await?;
            found.retain(|it| filter.admits(&it.labels));
            Ok(found)
        }
        NetworkAct::Remove(id) => {
            let it = words::delete_network(&id)?;
            let Some(_) = find_network(client, &id).await? else { return Ok(Vec::new()) };
            match ask(client, "network delete", it, deadline::NETWORK).await {
                Err(failure) if find_network(client, &id).await?.is_some() => Err(failure),
                _ => Ok(Vec::new()),
            }
        }
    }
}

async fn all_networks(client: &Client) -> Result<Vec<Network>> {
    answers::networks(&ask(client, "network list", words::networks(), deadline::NETWORK).await?.stdout.bytes())
}

async fn find_network(client: &Client, handle: &str) -> Result<Option<Network>> {
    Ok(all_networks(client).await?.into_iter().find(|it| it.id == handle || it.name == handle))
}

pub(super) async fn volume(client: &Client, act: VolumeAct) -> Result<Vec<Volume>> {
    let all =
        async || answers::volumes(&ask(client, "volume list", words::volumes(), deadline::READ).await?.stdout.bytes());
    match act {
        VolumeAct::Create { name, labels, size } => {
            let there = all().await?.into_iter().filter(|it| it.name == name.as_str()).collect::<Vec<_>>();
            if !there.is_empty() {
                return Ok(there);
            }
            let it = words::create_volume(name.as_str(), &labels, size)?;
            ask(client, "volume create", it, deadline::NETWORK).await?;
            Ok(all().await?.into_iter().filter(|it| it.name == name.as_str()).collect())
        }
        VolumeAct::List(filter) => {
            let mut found = all().await?;
            found.retain(|it| filter.admits(&it.labels));
            Ok(found)
        }
        VolumeAct::Remove(name) => {
            let it = words::delete_volume(&name)?;
            let there = async || Ok::<_, Error>(all().await?.iter().any(|it| it.name == name));
            if !there().await? {
                return Ok(Vec::new());
            }
            match ask(client, "volume delete", it, deadline::REMOVE).await {
                Err(failure) if there().await? => Err(failure),
                _ => Ok(Vec::new()),
            }
        }
    }
}
