//! `run`: a container with a guest of its own, as another program than Coracle would make it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use coracle_engine::EmbeddedRuntime;
use coracle_runtime::host::fs::HostPath;
use coracle_runtime::{
    Access, Command, ContainerName, ContainerPath, ContainerRuntime as _, CreateSpec, Exec, Exit, GuestDelivery,
    HostEntry, Ids, ImageRef, ImageStore as _, Mount, NetworkAttachment, NetworkName, Networks as _, Policy, admit,
    random_hex,
};

/// Options whose values are not needed here: the engine gives every container the same.
const WITH_VALUE: &[&str] = &["--tmpfs", "--user", "--entrypoint"];

/// The words run in a container without a guest, which stops after them; with a guest they are the guest's.
///
/// `run|create [--name NAME] [--label=K=V] [--network=N] [--volume=HOST:AT[:ro]] [--add-host=NAME:host-gateway] IMAGE WORDS…`
pub(crate) async fn run(engine: &EmbeddedRuntime, words: &[&str]) -> Result<ExitCode> {
    let (verb, mut words) = (words[0], words[1..].iter().copied());
    let (mut entrypoint, mut detach) = (None, false);
    let (mut name, mut labels, mut network, mut volumes) = (None, Vec::new(), "default".to_owned(), Vec::new());
    let mut hosts = Vec::new();
    let image = loop {
        let word = words.next().context("an image is missing")?;
        if !word.starts_with('-') {
            break word;
        }
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, value.to_owned()),
            None if ["--name", "--label", "--network", "--volume"].contains(&word) || WITH_VALUE.contains(&word) => {
                (word, words.next().context("a value is missing")?.to_owned())
            }
            None => {
                detach |= word == "--detach";
                continue;
            }
        };
        match option {
            "--name" => name = Some(value),
            "--entrypoint" => entrypoint = Some(value),
            "--label" => labels.push(value),
            "--network" => network = value,
            "--volume" => volumes.push(value),
            "--add-host" => hosts.push(value),
            _ => {}
        }
    };
    let name = name.unwrap_or_else(|| format!("unnamed-{}", random_hex::<4>()));
    let mut spec = CreateSpec::new(ContainerName::parse(name)?, ImageRef::parse(image)?);
    spec.labels =
        labels.iter().filter_map(|it| it.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    spec.add_hosts = hosts.iter().map(|it| host_entry(it)).collect::<Result<_>>()?;
    let guest = guest(&volumes, &mut spec)?;
    let has_guest = guest.is_some();
    let found = engine.find_images(&[spec.image.clone()]).await?;
    let image = found.first().with_context(|| format!("no image `{image}`"))?.id.clone();
    let admitted = admit(spec, &Policy::everything())?.with_guest(guest);
    let id = engine.create(&admitted.with_image(image, attachment(engine, &network).await?)).await?;
    if verb == "run" {
        engine.start(&id).await?;
    }
    if verb == "create" || detach || has_guest {
        println!("{id}");
        return Ok(ExitCode::SUCCESS);
    }
    let argv = entrypoint.into_iter().chain(words.map(str::to_owned)).collect();
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
