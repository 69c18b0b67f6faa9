//! Creates a container, runs a command in it, prints the output, and removes the container: `embedder [IMAGE]`.

use std::time::Duration;

use coracle_engine::{EmbeddedRuntime, EngineOptions};
use coracle_runtime::{ContainerRuntime as _, CreateSpec, NetworkAttachment, Policy, admit, find_or_pull};
use coracle_types::{Command, ContainerName, ContainerPath, Exec, Ids, ImageRef};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = std::env::home_dir().ok_or("no home directory")?;
    let image = std::env::args().nth(1).unwrap_or_else(|| "docker.io/library/alpine:3".to_owned());

    let engine = EmbeddedRuntime::open(EngineOptions::new(home.join(".local/share/embedder"), &home))?;
    let image = ImageRef::parse(image)?;
    let found = find_or_pull(&engine, &image, Duration::from_secs(300)).await?;
    let admitted = admit(CreateSpec::new(ContainerName::parse("embedder")?, image), &Policy::permissive(home))?;

    let id = engine.create(&admitted.with_image(found.id, NetworkAttachment::None)).await?;
    let command = Exec::new(Command::shell("echo hello from $(hostname)"), Ids::ROOT, ContainerPath::root());
    let ran = match engine.start(&id).await {
        Ok(()) => engine.exec(&id, command).await,
        Err(err) => Err(err),
    };
    engine.remove(&id).await?;
    print!("{}", ran?.stdout.text());
    Ok(())
}
