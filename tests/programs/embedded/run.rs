//! `run`: a container that another program than Coracle would create.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use coracle_engine::EmbeddedRuntime;
use coracle_host::fs::HostPath;
use coracle_runtime::{
    Access, Capabilities, ContainerRuntime as _, CreateSpec, GuestDelivery, HostEntry, ImageStore as _, Mount,
    NetworkAttachment, Networks as _, Policy, admit,
};
use coracle_types::{Command, ContainerName, ContainerPath, Exec, Exit, Ids, ImageRef, NetworkName, random_hex};

/// Options with a value, which may be the next argument.
const WITH_VALUE: &[&str] =
    &["--add-host", "--entrypoint", "--label", "--name", "--network", "--tmpfs", "--user", "--volume"];

/// The options of `run`.
#[derive(Default)]
struct Options {
    name: Option<String>,
    entrypoint: Option<String>,
    labels: Vec<String>,
    network: Option<String>,
    volumes: Vec<String>,
    hosts: Vec<String>,
    user: Option<String>,
    detach: bool,
}

impl Options {
    /// Up to the image, which is given as well.
    fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<(Self, &'a str)> {
        let mut it = Self::default();
        loop {
            let word = words.next().context("an image is missing")?;
            if !word.starts_with('-') {
                return Ok((it, word));
            }
            let (option, value) = match word.split_once('=') {
                Some((option, value)) => (option, value.to_owned()),
                None if WITH_VALUE.contains(&word) => (word, words.next().context("a value is missing")?.to_owned()),
                None => {
                    it.detach |= word == "--detach";
                    continue;
                }
            };
            match option {
                "--name" => it.name = Some(value),
                "--entrypoint" => it.entrypoint = Some(value),
                "--label" => it.labels.push(value),
                "--network" => it.network = Some(value),
                "--volume" => it.volumes.push(value),
                "--add-host" => it.hosts.push(value),
                "--user" => it.user = Some(value),
                _ => {}
            }
        }
    }

    fn spec(&self, image: &str) -> Result<CreateSpec> {
        let name = self.name.clone().unwrap_or_else(|| format!("unnamed-{}", random_hex::<4>()));
        let mut spec = CreateSpec::new(ContainerName::parse(name)?, ImageRef::parse(image)?);
        let labels = self.labels.iter().filter_map(|it| it.split_once('='));
        spec.labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        spec.add_hosts = self.hosts.iter().map(|it| host_entry(it)).collect::<Result<_>>()?;
        if let Some(user) = self.user.as_deref().filter(|it| *it != "0:0") {
            let (uid, gid) = user.split_once(':').context("--user=UID:GID")?;
            spec.exec_user = Ids { uid: uid.parse()?, gid: gid.parse()? };
            spec.capabilities = Capabilities::None;
        }
        Ok(spec)
    }
}

/// The words run in a container without a guest, which stops after them; with a guest they are the guest's.
///
/// `run|create [--name NAME] [--label=K=V] [--network=N] [--volume=HOST:AT[:ro]] [--add-host=NAME:host-gateway]
/// [--user=UID:GID] IMAGE WORDS…`
pub(crate) async fn run(engine: &EmbeddedRuntime, words: &[&str]) -> Result<ExitCode> {
    let (verb, mut words) = (words[0], words[1..].iter().copied());
    let (options, image) = Options::parse(&mut words)?;
    let mut spec = options.spec(image)?;
    let guest = guest(&options.volumes, &mut spec)?;
    let has_guest = guest.is_some();
    let found = engine.find_images(&[spec.image.clone()]).await?;
    let image = found.first().with_context(|| format!("no image `{image}`"))?.id.clone();
    let admitted = admit(spec, &Policy::everything())?.with_guest(guest);
    let network = attachment(engine, options.network.as_deref().unwrap_or("default")).await?;
    let id = engine.create(&admitted.with_image(image, network)).await?;
    if verb == "run" {
        engine.start(&id).await?;
    }
    if verb == "create" || options.detach || has_guest {
        println!("{id}");
        return Ok(ExitCode::SUCCESS);
    }
    let argv = options.entrypoint.into_iter().chain(words.map(str::to_owned)).collect();
    let output = engine.exec(&id, Exec::new(Command::Argv(argv), Ids::ROOT, ContainerPath::root())).await?;
    print!("{}", output.stdout.text());
    eprint!("{}", output.stderr.text());
    engine.stop(&id, Duration::ZERO).await?;
    Ok(if output.exit == Exit::Code(0) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The guest and its link are binds of their own; all others become mounts.
fn guest(volumes: &[String], spec: &mut CreateSpec) -> Result<Option<GuestDelivery>> {
    let (mut program, mut link) = (None, None);
    for volume in volumes {
        let parts: Vec<&str> = volume.split(':').collect();
        ensure!(parts.len() >= 2, "`{volume}` is no volume");
        match parts[1] {
            "/.coracle/guest" => program = Some(PathBuf::from(parts[0])),
            "/.coracle/link" => link = Some(PathBuf::from(parts[0])),
            at => {
                let access = if parts.get(2) == Some(&"ro") { Access::ReadOnly } else { Access::ReadWrite };
                let host = HostPath::open(parts[0].as_ref())?;
                spec.mounts.push(Mount { host, at: ContainerPath::parse(at)?, access });
            }
        }
    }
    Ok(program.zip(link).map(|(program, link)| GuestDelivery::Bound { program, link }))
}

/// `NAME:host-gateway`.
fn host_entry(text: &str) -> Result<HostEntry> {
    let name = text.strip_suffix(":host-gateway").with_context(|| format!("`{text}` is no name of this host"))?;
    Ok(HostEntry { name: name.to_owned(), address: None })
}

async fn attachment(engine: &EmbeddedRuntime, network: &str) -> Result<NetworkAttachment> {
    Ok(match network {
        "none" => NetworkAttachment::None,
        "host" => NetworkAttachment::Host,
        "bridge" | "default" => NetworkAttachment::EngineDefault,
        name => {
            let found = engine.find_network(&NetworkName::parse(name)?).await?;
            NetworkAttachment::Id(found.with_context(|| format!("no network `{name}`"))?.id)
        }
    })
}
