//! Build containers: recipes run in them as root, without mounts, variables or labels of the caller. If no image could
//! be built, the recipe runs in the caller's own container.

use std::collections::BTreeMap;

use coracle_context::config::NetworkGrant;
use coracle_context::context::Context;
use coracle_context::engines::Backend;
use coracle_context::failure::{Code, Failure};
use coracle_context::host_identity::trusted_certificates;
use coracle_context::requested::Requested;
use coracle_context::{container_guest, session_env};
use coracle_images::{
    Base, BuildContainer, BuildContainers, BuildOptions, BuildReport, CommandReport, OnFailure, Recipe, run_recipe,
};
use coracle_lifecycle::{Creation, NewRecord, Role};
use coracle_provision::certs::{self, ExtraCertificates};
use coracle_provision::env::{SessionEnv, Sources, VariableSource};
use coracle_provision::{ReportItem, Status, StepContext, StepReport};
use coracle_runtime::{CreateSpec, NetworkRequest, PatternSet, Policy, VolumeMount, admit};
use coracle_types::{ContainerName, ContainerPath, Ids, Secret, random_hex};

use super::ResolvedImage;
use super::builder::Builder;
use crate::resolve::Request;

/// Creates build containers through `lifecycle`. `creation` holds the last one, so that a caller that is cancelled
/// can remove it.
pub(super) struct LifecycleContainers<'c, 'b, 'a> {
    pub(super) cx: &'c Context,
    pub(super) backend: Backend<'a>,
    /// Installed before the recipe runs, so that it can download.
    pub(super) certs: &'c Requested<ExtraCertificates>,
    pub(super) volumes: Vec<VolumeMount>,
    pub(super) creation: &'b mut Option<Creation<'a>>,
}

impl BuildContainers for LifecycleContainers<'_, '_, '_> {
    type Error = Failure;

    async fn create(&mut self, base: &Base, recipe: &Recipe) -> Result<Option<BuildContainer>, Failure> {
        let (cx, Backend { ready, store }) = (self.cx, self.backend);
        let runtime = &*ready.runtime;
        let Some(program) = container_guest::program(cx, runtime, &base.image)? else { return Ok(None) };
        let draft = draft(cx)?;
        let spec = CreateSpec { name: draft.name.clone(), volumes: self.volumes.clone(), ..spec(cx, base, recipe) };
        let creation = self.creation.insert(Creation::begin(runtime, store, draft).await?);
        let mut policy = Policy { allow_root: true, strict: false, ..cx.policy()? };
        if store.signer().verify(runtime.kind(), &base.image.labels) {
            // The policy already checked the image that it is created from.
            policy.images = PatternSet::new(&["*".to_owned()]).unwrap_or_default();
        }
        let admitted = admit(spec, &policy)?;
        let container =
            creation.create_container(admitted, &base.image, base.reference.as_str(), Some(&program)).await?;
        let link = creation.wait_for_guest(cx.links(), &container).await?;
        let context = session_env::place(cx, creation.record(), &link)?;
        let trusted = match self.certs {
            Requested::Yes(found) => certs::trust(&context, found).await.variables,
            Requested::No(_) => BTreeMap::new(),
        };
        let env = environment(cx, base, trusted, recipe.env.clone());
        Ok(Some(BuildContainer { id: container.id, link, env }))
    }
}

impl LifecycleContainers<'_, '_, '_> {
    /// Removes the build container, if one was created.
    pub(super) async fn remove(self) {
        let Some(creation) = self.creation.take() else { return };
        if let Some(id) = &creation.record().id {
            self.cx.links().forget(id);
        }
        for err in creation.undo().await {
            tracing::warn!(%err, "cannot remove a build container");
        }
    }
}

/// Runs a recipe in a build container and keeps only what it writes to volumes.
pub async fn build_into_volumes(
    cx: &Context,
    backend: Backend<'_>,
    base: &Base,
    volumes: Vec<VolumeMount>,
    recipe: &Recipe,
) -> Result<BuildReport, Failure> {
    let (builder, certs, mut creation) = (Builder::new(cx, backend)?, trusted_certificates(cx), None);
    let mut containers = LifecycleContainers { cx, backend, certs: &certs, volumes, creation: &mut creation };
    let run = cx.unless_cancelled(Box::pin(builder.images().run(base, recipe, &mut containers))).await;
    containers.remove().await;
    let Some((_, report)) = run? else {
        return Err(Failure::new(Code::Unsupported, "the guest installs packages, and this container has none")
            .detail("capability", "guest")
            .hint("leave `guest` out of the configuration"));
    };
    Ok(report)
}

/// The recipe of an image that could not be built, to run in the container itself.
#[derive(Debug)]
pub struct BuildInPlace<'a> {
    pub request: &'a Request,
    pub image: &'a ResolvedImage,
    /// Why the image could not be built.
    pub why: &'a str,
}

impl BuildInPlace<'_> {
    /// Runs its commands one by one.
    pub async fn run(&self, cx: &Context, place: &StepContext, certificates: &BTreeMap<String, String>) -> StepReport {
        let Self { request, image, why } = self;
        if !cx.config.security.allow_root {
            return StepReport::flawed("packages", Status::Failed, "not installed", "root is not granted here")
                .code("policy_denied");
        }
        cx.call.progress.message("no image could be built; installing in the container itself").await;
        let sources =
            Sources { certificates: certificates.clone(), profile: image.recipe.env.clone(), ..Sources::default() };
        let options = BuildOptions {
            env: plain(&SessionEnv::from_sources(sources)),
            limit: place.left(),
            on_failure: OnFailure::Continue,
            cancel: cx.call.cancel.clone(),
        };
        let progress = cx.call.progress.clone();
        let run = run_recipe(&place.link, &image.recipe, &options, &move |text: &str| progress.note(text)).await;
        let report = match run {
            Ok(report) => report,
            Err(err) => return StepReport::flawed("packages", Status::Failed, "not installed", err.to_string()),
        };
        let chosen = &request.chosen;
        let detail = format!(
            "the recipe of `{}` ran in the container itself because no image could be built: {why}",
            chosen.purpose.as_ref().map_or_else(|| chosen.profile.image.to_string(), ToString::to_string)
        );
        if report.no_manager {
            return StepReport::flawed("packages", Status::Failed, detail, report.failure().unwrap_or_default())
                .code("unsupported");
        }
        let missing = report.missing.iter().map(|it| ReportItem::failed(it, "not found on PATH"));
        let items = report.commands.into_iter().map(item).chain(missing).collect();
        StepReport::of_items("packages", detail, "each command ended with 0, and its programs are found", items)
    }
}

fn item(report: CommandReport) -> ReportItem {
    let CommandReport { name, exit, output, error } = report;
    let item = match error {
        None => ReportItem::success(name),
        Some(error) => ReportItem::failed(name, error),
    };
    item.with("exit_code", exit).with("output", output)
}

pub fn draft(cx: &Context) -> Result<NewRecord, Failure> {
    let name = format!("{}-build-{}", cx.config.label_namespace, random_hex::<3>());
    Ok(NewRecord {
        name: ContainerName::parse(name)?,
        role: Role::Build,
        session: String::new(),
        purpose: None,
        persistent: false,
        workdir: ContainerPath::root(),
        mount_cwd: false,
        request_digests: BTreeMap::new(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        compose_project: None,
        compose_joined: false,
        compose_file: None,
        snapshot: None,
        proxied: false,
        replay: None,
        owner: None,
        protected: Vec::new(),
        max_containers: usize::MAX,
        max_containers_total: usize::MAX,
    })
}

/// A container without mounts, variables and labels of the caller.
fn spec(cx: &Context, base: &Base, recipe: &Recipe) -> CreateSpec {
    let network = network(cx.config.security.network, recipe);
    let name = ContainerName::parse("build").expect("letters are a name");
    let limits = cx.config.default_limits();
    CreateSpec { network, limits, exec_user: Ids::ROOT, ..CreateSpec::new(name, base.reference.clone()) }
}

/// Returns the network of a recipe: none if it only changes the owner of directories.
fn network(grant: NetworkGrant, recipe: &Recipe) -> NetworkRequest {
    let fetches = !recipe.packages.is_empty() || !recipe.setup.is_empty();
    if fetches && grant == NetworkGrant::Open { NetworkRequest::Bridge } else { NetworkRequest::None }
}

/// Returns the environment of a recipe's commands: variables of the image, certificates, proxies and the profile.
fn environment(
    cx: &Context,
    base: &Base,
    certificates: BTreeMap<String, String>,
    profile: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let of_image = base.image.env.iter().filter_map(|it| it.split_once('='));
    let before = of_image.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut env = plain(&SessionEnv::from_sources(Sources { before, certificates, profile, ..Sources::default() }));
    let proxies = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"];
    let given = |name: &&str| Some((name.to_string(), proxy(cx.host.env.get(*name)?)?));
    env.extend(proxies.iter().filter_map(given));
    env
}

fn plain(session: &SessionEnv) -> BTreeMap<String, String> {
    [VariableSource::CaCertificates, VariableSource::Profile].iter().flat_map(|it| session.plain(*it)).collect()
}

/// Returns the address of a proxy, unless it contains credentials.
fn proxy(value: &Secret) -> Option<String> {
    let text = String::from_utf8(value.reveal().to_vec()).ok()?;
    (!text.contains('@')).then_some(text)
}

#[cfg(test)]
mod tests {
    use coracle_images::OwnedDirectory;

    use super::*;

    #[test]
    fn a_recipe_that_only_changes_owners_has_no_network() {
        let owned = OwnedDirectory { uid: 1000, gid: 1000, path: "/workspace".into() };
        let gives = Recipe { owned: vec![owned], ..Recipe::default() };
        let fetches = Recipe { setup: vec!["true".to_owned().into()], ..gives.clone() };
        for (recipe, grant, expected) in [
            (&gives, NetworkGrant::Open, NetworkRequest::None),
            (&fetches, NetworkGrant::Open, NetworkRequest::Bridge),
            (&fetches, NetworkGrant::Proxy, NetworkRequest::None),
        ] {
            assert_eq!(network(grant, recipe), expected, "{grant:?} {recipe:?}");
        }
    }
}
