//! Packages that the snippets of all sessions share. Only the user adds or removes them.

use coracle_context::context::Context;
use coracle_context::document::{self, Document, Render};
use coracle_context::engines::{Backend, Ready};
use coracle_context::failure::{Code, Failure};
use coracle_context::humanize::count;
use coracle_images::profile::session_images::{Manager, shared_packages};
use coracle_images::{Base, BuildReport, ImageOrigin};
use coracle_lifecycle::{SharedPackage, SharedPackages};
use coracle_runtime::{Access, VolumeMount};
use coracle_types::{ContainerPath, ImageRef, VolumeName};
use coracle_workspace::SlotRole;
use jiff::Timestamp;
use serde::Serialize;

use crate::image_build::{NamedImage, build_into_volumes, resolve_image};
use crate::preflight::ensure_ready;

/// Mount path of the packages.
const AT: &str = "/packages-base";

/// Mount path of the existing packages while others are added.
const BEFORE: &str = "/packages-before";

/// The response to adding packages.
#[derive(Debug, Serialize)]
pub struct AddPackagesResponse {
    pub added: Vec<SharedPackage>,
    pub packages: Vec<SharedPackage>,
}

impl Render for AddPackagesResponse {
    fn render(&self, _: Timestamp) -> Document {
        let names = document::joined(self.added.iter().map(|it| &it.requested));
        let all = count(self.packages.len() as u64, "package", "packages");
        Document::line(format!("added {names}; snippets can use {all}"))
    }
}

/// The response to removing all packages.
#[derive(Debug, Serialize)]
pub struct ClearPackagesResponse {
    pub removed: Vec<SharedPackage>,
    pub in_use: bool,
}

impl Render for ClearPackagesResponse {
    fn render(&self, _: Timestamp) -> Document {
        let removed = count(self.removed.len() as u64, "package", "packages");
        let left = if self.in_use { "; containers in use keep them until their next call" } else { "" };
        Document::line(format!("{removed} removed{left}"))
    }
}

/// Returns the volume of shared packages for a snippet's container, if there is one.
pub(super) async fn mounted(cx: &Context, ready: &Ready) -> Result<Option<VolumeMount>, Failure> {
    let packages = cx.store()?.shared_packages_on(&*ready.runtime).await?;
    packages.map(|it| mount(&it.volume, AT, Access::ReadOnly)).transpose()
}

/// Installs packages and their dependencies beside the existing ones. If one fails, nothing changes.
pub async fn add(cx: &Context, language: &str, names: &[String]) -> Result<AddPackagesResponse, Failure> {
    let (manager, language) =
        if language == "python" { (Manager::Pip, language) } else { (Manager::Bun, "javascript") };
    let requested = names.iter().map(|it| package(manager, language, it)).collect::<Result<Vec<_>, _>>()?;
    let (ready, store) = (ensure_ready(cx).await?, cx.store()?);
    let _alone = store.lock_packages().await?;
    let NamedImage { image, reference } = resolve_image(cx, &ready, SlotRole::Run, &cx.config.run_code.image).await?;
    let reference = ImageRef::parse(reference)?;
    let base = Base { image, reference, source: ImageOrigin::Local, note: None };
    let before = store.shared_packages_on(&*ready.runtime).await?;
    let volume = store.new_packages_volume(&*ready.runtime).await?;
    let mut volumes = vec![mount(&volume, AT, Access::ReadWrite)?];
    if let Some(before) = &before {
        volumes.push(mount(&before.volume, BEFORE, Access::ReadOnly)?);
    }
    let recipe = shared_packages(manager, names, AT, before.as_ref().map(|_| BEFORE));
    let backend = Backend { ready: &ready, store: &store };
    let filled = build_into_volumes(cx, backend, &base, volumes, &recipe).await.and_then(|it| complete(&it));
    let packages = joined(before.map(|it| it.packages).unwrap_or_default(), &requested);
    let shared = SharedPackages {
        engine: ready.runtime.kind(),
        endpoint: ready.runtime.endpoint().address,
        volume: volume.clone(),
        packages,
        made: jiff::Timestamp::now(),
    };
    let response = AddPackagesResponse { added: requested, packages: shared.packages.clone() };
    let done = match filled {
        Ok(()) => store.keep_packages(&*ready.runtime, shared).await.map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    if let Err(failure) = done {
        if let Err(err) = ready.runtime.remove_volume(volume.as_str()).await {
            tracing::warn!(%err, %volume, "cannot remove a volume for packages");
        }
        return Err(failure);
    }
    Ok(response)
}

fn complete(report: &BuildReport) -> Result<(), Failure> {
    let Some(why) = report.failure() else { return Ok(()) };
    Err(Failure::new(Code::PackagesFailed, format!("the packages could not be fetched: {why}"))
        .detail("log", report.log())
        .hint("see `details.log`; names and versions are those of npm's registry and of PyPI"))
}

/// Removes all shared packages.
pub async fn clear(cx: &Context) -> Result<ClearPackagesResponse, Failure> {
    let (ready, store) = (ensure_ready(cx).await?, cx.store()?);
    let _alone = store.lock_packages().await?;
    let before = store.shared_packages_on(&*ready.runtime).await.ok().flatten();
    let in_use = store.drop_packages(&*ready.runtime).await?;
    let removed = before.map(|it| it.packages).unwrap_or_default();
    Ok(ClearPackagesResponse { removed, in_use })
}

fn mount(name: &VolumeName, at: &str, access: Access) -> Result<VolumeMount, Failure> {
    Ok(VolumeMount { name: name.clone(), at: ContainerPath::parse(at)?, access })
}

/// Parses the name of a package in a registry. Paths, URLs and options are refused, so that nothing else is
/// downloaded or read.
fn package(manager: Manager, language: &str, requested: &str) -> Result<SharedPackage, Failure> {
    let name = match manager {
        Manager::Bun => npm(requested),
        Manager::Pip => pypi(requested),
    };
    let named = name.filter(|_| requested.len() <= 214 && requested.is_ascii());
    let wrong = || {
        let grammar = "use the registry's name, with or without a version: `zod`, `@scope/name@1.2`, `six==1.17.0`";
        Failure::invalid("names", format!("`{}` is no package", requested.escape_debug())).hint(grammar)
    };
    let name = named.ok_or_else(wrong)?.to_owned();
    Ok(SharedPackage { language: language.to_owned(), name, requested: requested.to_owned() })
}

/// `name` or `@scope/name`, optionally with `@` and a version, a range or a tag.
fn npm(requested: &str) -> Option<&str> {
    let (scoped, rest) = requested.strip_prefix('@').map_or((false, requested), |it| (true, it));
    let (name, version) = rest.split_once('@').map_or((rest, None), |it| (it.0, Some(it.1)));
    let parts: Vec<&str> = name.split('/').collect();
    let plain = |it: &str| is_word(it, "._-");
    let versioned =
        |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_alphanumeric() || b".-+^~<>=*".contains(&it));
    let right =
        parts.len() == if scoped { 2 } else { 1 } && parts.iter().all(|it| plain(it)) && version.is_none_or(versioned);
    right.then(|| &requested[..usize::from(scoped) + name.len()])
}

/// `name` or `name[extra]`, optionally with a version comparison.
fn pypi(requested: &str) -> Option<&str> {
    let name = &requested[..requested.find(|it: char| "[<>=!~".contains(it)).unwrap_or(requested.len())];
    let (extras, versions) = match requested[name.len()..].strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", &requested[name.len()..]),
    };
    let compared = |it: &str| {
        let version = it.trim_start_matches(['<', '>', '=', '!', '~']);
        version.len() < it.len() && is_word(version, ".*+-_")
    };
    let extras = extras.is_empty() || extras.split(',').all(|it| is_word(it, "._-"));
    let right = is_word(name, "._-") && extras && (versions.is_empty() || versions.split(',').all(compared));
    right.then_some(name)
}

fn is_word(it: &str, also: &str) -> bool {
    let begins = it.bytes().next().is_some_and(|it| it.is_ascii_alphanumeric());
    begins && it.chars().all(|it| it.is_ascii_alphanumeric() || also.contains(it))
}

/// Merges the existing packages with the requested ones, which replace others of the same name.
fn joined(before: Vec<SharedPackage>, requested: &[SharedPackage]) -> Vec<SharedPackage> {
    let is_replaced =
        |it: &SharedPackage| requested.iter().any(|new| new.language == it.language && new.name == it.name);
    let mut all: Vec<_> = before.into_iter().filter(|it| !is_replaced(it)).chain(requested.iter().cloned()).collect();
    all.sort_by(|a, b| (&a.language, &a.name).cmp(&(&b.language, &b.name)));
    all.dedup_by(|a, b| a.language == b.language && a.name == b.name);
    all
}

#[cfg(test)]
mod tests {
    use coracle_images::profile::session_images::Manager;

    use super::{joined, package};

    fn parsed(manager: Manager, text: &str) -> Option<String> {
        package(manager, "x", text).ok().map(|it| it.name)
    }

    #[test]
    fn only_names_of_registries_are_packages() {
        for (text, name) in [
            ("zod", "zod"),
            ("zod@4", "zod"),
            ("zod@^4.1.0-beta.1", "zod"),
            ("zod@latest", "zod"),
            ("@types/node", "@types/node"),
            ("@types/node@24", "@types/node"),
        ] {
            assert_eq!(parsed(Manager::Bun, text).as_deref(), Some(name), "{text}");
        }
        for (text, name) in [
            ("six", "six"),
            ("six==1.17.0", "six"),
            ("requests[socks,use_chardet]>=2.31,<3", "requests"),
            ("ruamel.yaml~=0.18", "ruamel.yaml"),
        ] {
            assert_eq!(parsed(Manager::Pip, text).as_deref(), Some(name), "{text}");
        }
        for invalid in [
            "",
            "-g",
            "--global",
            "./x",
            "../x",
            "/etc",
            "a/b",
            "github:a/b",
            "https://x/y.tgz",
            "file:x",
            "a b",
            "a;b",
            "$(id)",
            "a@",
            "@a",
            "@a/b/c",
            "six @ https://x",
            "six[",
            "six==",
            "six;python_version<'3'",
            "ä",
            "-r",
            "a\n--index-url=x",
        ] {
            assert_eq!((parsed(Manager::Bun, invalid), parsed(Manager::Pip, invalid)), (None, None), "{invalid:?}");
        }
        assert_eq!(parsed(Manager::Pip, "@types/node"), None);
        assert_eq!(parsed(Manager::Bun, "six==1"), None);
    }

    #[test]
    fn a_package_that_is_requested_again_is_listed_once() {
        let all = |names: &[&str]| -> Vec<_> {
            names.iter().map(|it| package(Manager::Bun, "javascript", it).unwrap()).collect()
        };
        let joined = joined(all(&["zod@3", "a"]), &all(&["zod@4", "b"]));
        assert_eq!(joined.iter().map(|it| it.requested.as_str()).collect::<Vec<_>>(), ["a", "b", "zod@4"]);
    }
}
