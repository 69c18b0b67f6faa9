//! Recipes: cooked in a bare container that becomes an image, or, where that failed, in the caller's own
//! (containers.md 8.1, 8.2).

use std::collections::BTreeMap;

use coracle_images::cache::{Built, Cached, Wanted as WantedImage};
use coracle_images::cook::{self, Cooking, OnFailure, Ran, cook as cook_recipe};
use coracle_images::stand_in::{self, Contents};
use coracle_images::{Base, Error as ImageError, Recipe, Source as BaseSource};
use coracle_lifecycle::{Creation, GuestProgram, NewRecord, Role};
use coracle_provision::certs;
use coracle_provision::env::{Session, Source, Sources};
use coracle_provision::{Item, Status, Step, StepContext};
use coracle_runtime::{
    ContainerId, ContainerName, ContainerPath, CreateSpec, Ids, NetworkRequest, PatternSet, Policy, Secret,
    VolumeMount, admit, random_hex,
};

use super::{ImageBuilder, ResolvedImage};
use crate::config::NetworkGrant;
use crate::context::Context;
use crate::engines::Backend;
use crate::failure::{Code, Failure};
use crate::host_identity::trusted_certificates;
use crate::requested::Requested;
use crate::resolve::{Request, ResolvedProfile};
use crate::{guest, session_env};

/// What came of a recipe.
pub(super) enum BuildOutcome {
    /// An image that is kept.
    Kept(Box<Cached>),
    /// Nothing that may be kept.
    Failed(BuildError),
}

/// Why an image could not be made, and the end of what the command printed that failed.
#[derive(Debug)]
pub(crate) struct BuildError {
    pub(crate) why: String,
    pub(crate) log: Option<String>,
}

impl From<String> for BuildError {
    fn from(why: String) -> Self {
        Self { why, log: None }
    }
}

/// Cooks a recipe on a base, in a container of its own that has nothing of the caller's, and keeps what came of it. The
/// container is handed to `build` as soon as it is intended, so that whoever gives this up can undo it.
pub(super) async fn build<'a>(
    builder: &ImageBuilder<'_, 'a>,
    build: &mut Option<Creation<'a>>,
    base: &Base,
    wanted: &WantedImage,
) -> Result<BuildOutcome, Failure> {
    let (cx, runtime) = (builder.cx, &*builder.ready.runtime);
    let Some(program) = guest::program(cx, runtime, &base.image)? else {
        let why = "this container has no guest, and recipes are cooked by one".to_owned();
        return Ok(BuildOutcome::Failed(why.into()));
    };
    cx.call.progress.message(format!("making the image of `{}`", purpose(builder.image_request.chosen))).await;
    let plain = spec(cx, base, &wanted.recipe_on(base));
    let (container, place) =
        build_container(cx, builder.backend(), build, BuildSpec { base, spec: plain, program: &program }).await?;
    let (cooked, contents) = run_recipe(builder, &place, base, wanted).await?;
    let cooked = match cooked.fault() {
        Some(why) => BuildOutcome::Failed(BuildError { why, log: cooked.log().map(str::to_owned) }),
        None => {
            keep(builder, &Built { contents: contents.as_ref(), ..built(builder, &container, base, wanted) }).await?
        }
    };
    cx.links().forget(&container);
    if let Some(build) = build.take() {
        for err in build.undo().await {
            tracing::warn!(%err, "a container that an image was made of stays");
        }
    }
    Ok(cooked)
}

/// What a build container is created from.
struct BuildSpec<'a> {
    base: &'a Base,
    spec: CreateSpec,
    program: &'a GuestProgram,
}

/// A container on which something is cooked: as root, and with nothing of the caller's but what stands there.
async fn build_container<'a>(
    cx: &Context,
    Backend { ready, store }: Backend<'a>,
    build: &mut Option<Creation<'a>>,
    BuildSpec { base, spec, program }: BuildSpec<'_>,
) -> Result<(ContainerId, StepContext), Failure> {
    let (runtime, draft) = (&*ready.runtime, draft(cx)?);
    let spec = CreateSpec { name: draft.name.clone(), ..spec };
    let making = build.insert(Creation::begin(runtime, store, draft).await?);
    let mut policy = Policy { allow_root: true, strict: false, ..cx.policy()? };
    if store.signer().verify(runtime.kind(), &base.image.labels) {
        // What it was made of was on the list.
        policy.images = PatternSet::new(&["*".to_owned()]).unwrap_or_default();
    }
    let admitted = admit(spec, &policy)?;
    let container = making.make(admitted, &base.image, base.reference.as_str(), Some(program)).await?;
    let link = making.meet(cx.links(), &container).await?;
    let place = session_env::place(cx, making.record(), &link)?;
    Ok((container.id, place))
}

/// A recipe whose result is in volumes.
pub(crate) struct VolumeBuild<'a> {
    pub(crate) base: &'a Base,
    pub(crate) volumes: Vec<VolumeMount>,
    pub(crate) recipe: &'a Recipe,
}

/// Runs a recipe in a build container for what it leaves in volumes. No image is made.
pub(crate) async fn build_into_volumes(
    cx: &Context,
    Backend { ready, store }: Backend<'_>,
    VolumeBuild { base, volumes, recipe }: VolumeBuild<'_>,
) -> Result<cook::Cooked, Failure> {
    let runtime = &*ready.runtime;
    let Some(program) = guest::program(cx, runtime, &base.image)? else {
        return Err(Failure::new(Code::Unsupported, "packages are fetched by a guest, and this container has none")
            .detail("capability", "guest")
            .hint("leave `guest` out of the configuration"));
    };
    let mut build = None;
    let cooked = cx.unless_cancelled(async {
        let spec = CreateSpec { volumes, ..spec(cx, base, recipe) };
        let (container, place) =
            build_container(cx, Backend { ready, store }, &mut build, BuildSpec { base, spec, program: &program })
                .await?;
        let trusted = match &trusted_certificates(cx) {
            Requested::Yes(found) => certs::trust(&place, found).await.variables,
            Requested::No(_) => BTreeMap::new(),
        };
        let cooking = cooking(cx, environment(cx, base, trusted, BTreeMap::new()));
        let progress = cx.call.progress.clone();
        let cooked = cook_recipe(&place.link, recipe, &cooking, &move |text: &str| progress.note(text)).await;
        cx.links().forget(&container);
        Ok(cooked?)
    });
    let cooked = cooked.await;
    if let Some(build) = build {
        for err in build.undo().await {
            tracing::warn!(%err, "a container that packages were fetched in stays");
        }
    }
    cooked
}

fn cooking(cx: &Context, env: BTreeMap<String, String>) -> Cooking {
    let (limit, cancel) = (cx.config.images.build_timeout.0, cx.call.cancel.clone());
    Cooking { env, limit, on_failure: OnFailure::Stop, cancel }
}

/// The certificates first, so that what the recipe fetches can be had. What is to stand in for another image is asked at
/// last what it has.
async fn run_recipe(
    builder: &ImageBuilder<'_, '_>,
    place: &StepContext,
    base: &Base,
    wanted: &WantedImage,
) -> Result<(cook::Cooked, Option<Contents>), Failure> {
    let trusted = match &builder.certs {
        Requested::Yes(found) => certs::trust(place, found).await.variables,
        Requested::No(_) => BTreeMap::new(),
    };
    let recipe = wanted.recipe_on(base);
    let cooking = cooking(builder.cx, environment(builder.cx, base, trusted, recipe.env.clone()));
    let cooked = cook_recipe(&place.link, &recipe, &cooking, &builder.progress()).await?;
    let stands_in = base.source == BaseSource::Bootstrap || builder.image_request.stands_for.is_some();
    let contents = if stands_in && cooked.whole() { Some(stand_in::probe(&place.link, &cooking).await?) } else { None };
    Ok((cooked, contents))
}

fn built<'b>(
    builder: &ImageBuilder<'_, '_>,
    container: &'b ContainerId,
    base: &'b Base,
    wanted: &'b WantedImage,
) -> Built<'b> {
    let max_bytes = Some(builder.cx.config.images.cache_max_bytes);
    let replaces = builder.image_request.chosen.cache_bust;
    Built { container, base, wanted, contents: None, replaces, max_bytes }
}

async fn keep(builder: &ImageBuilder<'_, '_>, built: &Built<'_>) -> Result<BuildOutcome, Failure> {
    builder.cx.call.progress.message("keeping the image").await;
    match builder.cache.keep(&*builder.ready.runtime, built).await {
        Ok(cached) => Ok(BuildOutcome::Kept(Box::new(cached))),
        Err(ImageError::Unfit { what }) => Ok(BuildOutcome::Failed(what.into())),
        Err(err) => Err(err.into()),
    }
}

/// The recipe of an image that could not be built, run in the container itself.
pub(crate) struct BuildInPlace<'a> {
    pub(crate) request: &'a Request,
    pub(crate) image: &'a ResolvedImage,
    /// Why it could not be built.
    pub(crate) why: &'a str,
}

impl BuildInPlace<'_> {
    /// Runs it, command by command.
    pub(crate) async fn run(&self, cx: &Context, place: &StepContext, certificates: &BTreeMap<String, String>) -> Step {
        let Self { request, image, why } = self;
        if !cx.config.security.allow_root {
            return Step::flawed("packages", Status::Failed, "not installed", "root is not granted here")
                .code("policy_denied");
        }
        cx.call.progress.message("no image could be made; installing in the container itself").await;
        let sources =
            Sources { certificates: certificates.clone(), profile: image.recipe.env.clone(), ..Sources::default() };
        let cooking = Cooking {
            env: plain(&Session::of(sources)),
            limit: place.left(),
            on_failure: OnFailure::GoOn,
            cancel: cx.call.cancel.clone(),
        };
        let progress = cx.call.progress.clone();
        let cooked =
            match cook_recipe(&place.link, &image.recipe, &cooking, &move |text: &str| progress.note(text)).await {
                Ok(cooked) => cooked,
                Err(err) => return Step::flawed("packages", Status::Failed, "not installed", err.to_string()),
            };
        let detail = format!(
            "the recipe of `{}` was run in the container itself, for no image could be made: {why}",
            purpose(&request.chosen)
        );
        if cooked.no_manager {
            return Step::flawed("packages", Status::Failed, detail, cooked.fault().unwrap_or_default())
                .code("unsupported");
        }
        let missing = cooked.missing.iter().map(|it| Item::failed(it, "not found on PATH"));
        let items = cooked.commands.into_iter().map(item).chain(missing).collect();
        Step::of_items("packages", detail, "each command ended with 0, and its programs are found", items)
    }
}

fn item(ran: Ran) -> Item {
    let cook::Ran { name, exit, output, error } = ran;
    let item = match error {
        None => Item::success(name),
        Some(error) => Item::failed(name, error),
    };
    item.with("exit_code", exit).with("output", output)
}

fn purpose(chosen: &ResolvedProfile) -> String {
    chosen.purpose.as_ref().map_or_else(|| chosen.profile.image.to_string(), ToString::to_string)
}

pub(crate) fn draft(cx: &Context) -> Result<NewRecord, Failure> {
    let name = format!("{}-build-{}", cx.config.label_namespace, random_hex::<3>());
    Ok(NewRecord {
        name: ContainerName::parse(name)?,
        role: Role::Build,
        session: String::new(),
        purpose: None,
        persistent: false,
        workdir: ContainerPath::root(),
        mount_cwd: false,
        asked: std::collections::BTreeMap::new(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        compose_project: None,
        compose_joined: false,
        compose_file: None,
        snapshot: None,
        owner: None,
        protected: Vec::new(),
        max_containers: usize::MAX,
        max_containers_total: usize::MAX,
    })
}

/// Nothing of the caller's: no mount, no variable, no label. What only gives directories away fetches nothing.
fn spec(cx: &Context, base: &Base, recipe: &Recipe) -> CreateSpec {
    let network = network(cx.config.security.network, recipe);
    let name = ContainerName::parse("build").expect("letters are a name");
    let limits = cx.config.default_limits();
    CreateSpec { network, limits, exec_user: Ids::ROOT, ..CreateSpec::new(name, base.reference.clone()) }
}

fn network(grant: NetworkGrant, recipe: &Recipe) -> NetworkRequest {
    let fetches = !recipe.packages.is_empty() || !recipe.setup.is_empty();
    if fetches && grant == NetworkGrant::Open { NetworkRequest::Bridge } else { NetworkRequest::None }
}

/// What the commands of a recipe see: certificates, proxies, and the profile's own variables.
fn environment(
    cx: &Context,
    base: &Base,
    certificates: BTreeMap<String, String>,
    profile: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let of_image = base.image.env.iter().filter_map(|it| it.split_once('='));
    let before = of_image.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut env = plain(&Session::of(Sources { before, certificates, profile, ..Sources::default() }));
    let proxies = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"];
    let given = |name: &&str| Some((name.to_string(), proxy(cx.host.env.get(*name)?)?));
    env.extend(proxies.iter().filter_map(given));
    env
}

fn plain(session: &Session) -> BTreeMap<String, String> {
    [Source::CaCertificates, Source::Profile].iter().flat_map(|it| session.plain(*it)).collect()
}

/// The address of a proxy; one with a user part stays on the host.
fn proxy(value: &Secret) -> Option<String> {
    let text = String::from_utf8(value.reveal().to_vec()).ok()?;
    (!text.contains('@')).then_some(text)
}

#[cfg(test)]
mod tests {
    use coracle_images::Owned;

    use super::*;

    #[test]
    fn what_only_gives_directories_away_has_no_network() {
        let owned = Owned { uid: 1000, gid: 1000, path: "/workspace".into() };
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
