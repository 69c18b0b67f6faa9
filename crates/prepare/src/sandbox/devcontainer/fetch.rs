//! Downloads features from registries and stores them by digest.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use coracle_archive::transfer::{Limits, Unpack};
use coracle_context::config::Pull;
use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_devcontainer::features::{Artifact, Registries};
use coracle_host::fs::HostPath;
use coracle_runtime::{PolicyRefusal, Problem};
use coracle_sandbox::devcontainer_state::lock_file;
use flate2::read::GzDecoder;

/// Maximum size of a feature's description.
const MAX_TEXT: u64 = 1 << 20;

/// Maximum size and number of a feature's files.
const MAX_FILES: Limits = Limits { max_bytes: 256 << 20, max_entries: 5000 };

/// The files of a feature, in a directory of Coracle.
#[derive(Debug)]
pub(super) struct FetchedFeature {
    pub(super) dir: PathBuf,
    /// The digest of its manifest, which identifies it permanently.
    pub(super) digest: String,
}

impl FetchedFeature {
    /// Reads its description.
    pub(super) fn about(&self) -> Result<Vec<u8>, Failure> {
        let file = std::fs::File::open(self.dir.join("devcontainer-feature.json")).map_err(Failure::internal)?;
        let mut bytes = Vec::new();
        file.take(MAX_TEXT).read_to_end(&mut bytes).map_err(Failure::internal)?;
        Ok(bytes)
    }
}

/// Returns the stored feature of that digest, else downloads the registry's current one.
pub(super) async fn fetch(
    cx: &Context,
    feature: &str,
    artifact: &Artifact,
    digest: Option<&String>,
) -> Result<FetchedFeature, Failure> {
    let all = cx.state()?.root().join("features");
    std::fs::create_dir_all(&all).map_err(Failure::internal)?;
    if let Some(digest) = digest.filter(|it| dir_of(&all, it).is_dir()) {
        return Ok(FetchedFeature { dir: dir_of(&all, digest), digest: digest.clone() });
    }
    if cx.config.images.pull == Pull::Never {
        let value = feature.to_owned();
        let message = format!("the feature `{value}` needs a registry, which the configuration does not allow");
        let problem = Problem { rule: "images.pull", setting: Some("images.pull"), value, message };
        return Err(PolicyRefusal { problems: vec![problem] }.into());
    }
    let registries = Registries::new()?;
    let artifact = digest.map_or_else(|| artifact.clone(), |it| artifact.at(it));
    let manifest = cx.unless_cancelled(async { Ok(registries.manifest(&artifact).await?) }).await?;
    let (dir, digest) = (dir_of(&all, &manifest.digest), manifest.digest.clone());
    let _alone = lock_file(all.join(format!("{}.lock", digest.trim_start_matches("sha256:")))).await?;
    if !dir.is_dir() {
        cx.call.progress.message("fetching a feature of devcontainer.json".to_owned()).await;
        let layer = cx.unless_cancelled(async { Ok(registries.layer(&artifact, &manifest).await?) }).await?;
        let digest = digest.clone();
        tokio::task::spawn_blocking(move || store_feature(&layer, &all, &digest))
            .await
            .map_err(Failure::internal)??;
    }
    Ok(FetchedFeature { dir, digest })
}

/// Unpacks a feature into a temporary directory, and renames that once it is complete and no link leads out of it.
fn store_feature(layer: &[u8], all: &Path, digest: &str) -> Result<(), Failure> {
    let invalid = |why: String| {
        let message = format!("the registry's artifact is not a feature: {why}");
        Failure::new(Code::DevcontainerInvalid, message).detail("digest", digest)
    };
    let mut tar = tempfile::tempfile_in(all).map_err(Failure::internal)?;
    if layer.starts_with(&[0x1f, 0x8b]) {
        let most = MAX_FILES.max_bytes + (16 << 20);
        let written = std::io::copy(&mut GzDecoder::new(layer).take(most + 1), &mut tar);
        if written.map_err(|err| invalid(err.to_string()))? > most {
            return Err(invalid(format!("it has more than {most} bytes")));
        }
    } else {
        tar.write_all(layer).map_err(Failure::internal)?;
    }
    let beside = tempfile::Builder::new().prefix(".feature-").tempdir_in(all).map_err(Failure::internal)?;
    let place = HostPath::open(beside.path()).map_err(Failure::internal)?.dir().map_err(Failure::internal)?;
    place.create_dir("it").map_err(Failure::internal)?;
    let moved = Unpack::new(&place, "it", MAX_FILES).beneath().run(tar).map_err(|err| invalid(err.to_string()))?;
    if let Some(skipped) = moved.skipped.first() {
        return Err(invalid(format!("`{}`: {}", skipped.path, skipped.reason)));
    }
    let it = beside.path().join("it");
    for name in ["devcontainer-feature.json", "install.sh"] {
        if !is_file(&it.join(name)) {
            return Err(invalid(format!("it has no `{name}`")));
        }
    }
    std::fs::rename(it, dir_of(all, digest)).map_err(Failure::internal)
}

/// Returns the directory of the feature of that digest.
fn dir_of(all: &Path, digest: &str) -> PathBuf {
    all.join(digest.trim_start_matches("sha256:"))
}

/// Whether it is a regular file, without following a link.
fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|it| it.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar(entries: &[(&str, tar::EntryType, &str)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            let link = !matches!(kind, tar::EntryType::Regular);
            header.set_size(if link { 0 } else { content.len() as u64 });
            if link {
                if !content.is_empty() {
                    header.set_link_name(content).unwrap();
                }
                tar.append_data(&mut header, path, &[][..]).unwrap();
            } else {
                tar.append_data(&mut header, path, content.as_bytes()).unwrap();
            }
        }
        tar.into_inner().unwrap()
    }

    const FILE: tar::EntryType = tar::EntryType::Regular;

    #[test]
    fn only_a_complete_feature_without_links_out_of_it_is_stored() {
        let all = tempfile::tempdir().unwrap();
        let dir = all.path().join("x");
        let store = |layer: &[u8]| store_feature(layer, all.path(), "sha256:x");
        let two = [("./devcontainer-feature.json", FILE, "{}"), ("./install.sh", FILE, "echo")];
        let with = |more: (&'static str, tar::EntryType, &'static str)| tar(&[&two[..], &[more]].concat());
        for (layer, expected) in [
            (tar(&two[1..]), "no `devcontainer-feature.json`"),
            (tar(&[two[0], ("install.sh", tar::EntryType::Symlink, "devcontainer-feature.json")]), "no `install.sh`"),
            (with(("out", tar::EntryType::Symlink, "/etc/passwd")), "leads out of the tree"),
            (with(("out", tar::EntryType::Symlink, "../../x")), "leads out of the tree"),
            (with(("out", tar::EntryType::Link, "/etc/passwd")), "leads to something else"),
            (with(("pipe", tar::EntryType::Fifo, "")), "neither a file nor a directory"),
            (b"no archive, and long enough that it could be one".repeat(20), "archive"),
        ] {
            let failure = store(&layer).unwrap_err();
            assert!(
                failure.code == Code::DevcontainerInvalid && failure.message.contains(expected),
                "{expected}: {failure:?}"
            );
            assert_eq!(std::fs::read_dir(all.path()).unwrap().count(), 0, "{expected}");
        }
        let layer = with(("lib/in.sh", tar::EntryType::Symlink, "../install.sh"));
        let mut gz = flate2::read::GzEncoder::new(&layer[..], flate2::Compression::fast());
        let mut packed = Vec::new();
        gz.read_to_end(&mut packed).unwrap();
        store(&packed).unwrap();
        assert_eq!(std::fs::read_to_string(dir.join("lib/in.sh")).unwrap(), "echo");
        let fetched = FetchedFeature { dir: dir.clone(), digest: "sha256:x".into() };
        assert_eq!(fetched.about().unwrap(), b"{}");
    }
}
