//! Verbs on images.

use std::fs::File;

use anyhow::{Context as _, Result, bail, ensure};
use coracle_engine::EmbeddedRuntime;
use coracle_runtime::{
    ContainerRuntime as _, CreateSpec, Image, ImageCommit, ImageConfig, ImageImport, ImageStore as _, LabelFilter,
    NetworkAttachment, Policy, admit,
};
use coracle_types::{ContainerName, ContainerPath, Handle, ImageRef, random_hex};
use serde_json::{Value, json};
use tar::Header;

use super::{option, plain};

/// Bytes of an archive that is exported.
const MAX_BYTES: u64 = 8 << 30;

pub(crate) async fn run(engine: &EmbeddedRuntime, words: &[&str]) -> Result<()> {
    let names = plain(&words[1..], &["-o", "--output", "--format", "--message", "--change"]);
    match (words[0], names.as_slice()) {
        ("inspect", [name]) | ("image", ["inspect", name]) => {
            let image = find(engine, name).await?;
            match option(words, "format") {
                Some("{{json .Config.Labels}}") => println!("{}", serde_json::to_string(&image.labels)?),
                Some(format) => bail!("`{format}` is not known"),
                None => println!("{:#}", json!([described(&image)])),
            }
        }
        ("history", [name]) => println!("{:?}", find(engine, name).await?),
        ("rmi", names) => {
            for name in names {
                engine.untag_image(&ImageRef::parse(*name)?).await?;
            }
        }
        ("tag", [name, tag]) => engine.tag_image(&find(engine, name).await?.id, &ImageRef::parse(*tag)?).await?,
        ("import", [tar, tag]) => {
            let (tar, tag) = (File::open(tar)?, ImageRef::parse(*tag)?);
            // There is no history for a message.
            let labels = option(words, "message").map(|it| ("message".to_owned(), it.to_owned()));
            let labels = labels.into_iter().collect();
            engine.import_image(ImageImport { tar, tag, env: vec![], labels }).await?;
        }
        ("export", [name]) => {
            let found = engine.inspect(&Handle::parse(name)?).await?;
            engine.download(&found.id, &ContainerPath::root(), File::create(output(words)?)?, MAX_BYTES).await?;
        }
        ("save", [name]) => save(engine, name, output(words)?).await?,
        ("commit", [name, tag]) => commit(engine, (name, tag), words).await?,
        _ => bail!("`{}` is not done on the embedded engine", words.join(" ")),
    }
    Ok(())
}

async fn find(engine: &EmbeddedRuntime, name: &str) -> Result<Image> {
    let all = engine.list_images(&LabelFilter(Vec::new())).await?;
    if let Some(image) = all.into_iter().find(|it| it.id.as_str() == name) {
        return Ok(image);
    }
    let found = engine.find_images(&[ImageRef::parse(name)?]).await?;
    found.into_iter().next().with_context(|| format!("no image `{name}`"))
}

/// As Docker writes it.
fn described(image: &Image) -> Value {
    let ImageConfig { entrypoint, cmd, user, workdir } = &image.config;
    let volumes: Value = image.volumes.iter().map(|it| (it.clone(), json!({}))).collect();
    json!({
        "Id": image.id.as_str(), "RepoTags": image.tags, "Created": image.created,
        "Config": {
            "Env": image.env, "Labels": image.labels, "Entrypoint": entrypoint, "Cmd": cmd, "User": user,
            "WorkingDir": workdir, "Volumes": volumes,
        },
    })
}

fn output<'a>(words: &[&'a str]) -> Result<&'a str> {
    let at = words.iter().position(|it| ["-o", "--output"].contains(it));
    at.and_then(|at| words.get(at + 1)).copied().context("-o FILE is missing")
}

/// All files of an image, and what is known about it, for who looks for something in them.
async fn save(engine: &EmbeddedRuntime, name: &str, to: &str) -> Result<()> {
    let image = find(engine, name).await?;
    let container = ContainerName::parse(format!("save-{}", random_hex::<4>()))?;
    let spec = CreateSpec::new(container, ImageRef::parse(name)?);
    let placed = admit(spec, &Policy::everything())?.with_image(image.id.clone(), NetworkAttachment::None);
    let id = engine.create(&placed).await?;
    let files = format!("{to}.files");
    let saved = engine.download(&id, &ContainerPath::root(), File::create(&files)?, MAX_BYTES).await;
    engine.remove(&id).await?;
    saved?;
    let mut tar = tar::Builder::new(File::create(to)?);
    tar.append_path_with_name(&files, "layer.tar")?;
    std::fs::remove_file(files)?;
    let (mut header, text) = (Header::new_gnu(), format!("{image:?}"));
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, "config.json", text.as_bytes())?;
    Ok(tar.finish()?)
}

async fn commit(engine: &EmbeddedRuntime, (name, tag): (&str, &str), words: &[&str]) -> Result<()> {
    let found = engine.inspect(&Handle::parse(name)?).await?;
    let image = find(engine, found.image.as_str()).await?;
    let (mut labels, mut config) = (Vec::new(), image.config);
    let apart = words.windows(2).filter(|it| it[0] == "--change").map(|it| it[1]);
    for change in words.iter().filter_map(|it| it.strip_prefix("--change=")).chain(apart) {
        let (directive, value) = change.split_once(' ').context("a directive and its value")?;
        match directive {
            "LABEL" => {
                let (key, value) = value.split_once('=').context("LABEL KEY=VALUE")?;
                labels.push((unquoted(key), unquoted(value)));
            }
            "USER" => config.user = value.to_owned(),
            "WORKDIR" => config.workdir = value.to_owned(),
            "ENTRYPOINT" => config.entrypoint = serde_json::from_str(value)?,
            "CMD" => config.cmd = serde_json::from_str(value)?,
            other => bail!("`{other}` is not done on the embedded engine"),
        }
    }
    ensure!(!found.running(), "{name} runs");
    engine.commit_image(&ImageCommit { container: found.id, tag: Some(ImageRef::parse(tag)?), labels, config }).await?;
    Ok(())
}

fn unquoted(text: &str) -> String {
    serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())
}
