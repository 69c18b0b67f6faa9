//! The stack of a `create`: admitted before anything is created, then started together with the container.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;

use coracle_compose::{
    AdmittedStack, Claim, LabelledPart, ReassignedPort, Rules, Service, UpOptions, admit, claim, up,
};
use coracle_context::config::CrossSession;
use coracle_context::context::Context;
use coracle_context::engines::Backend;
use coracle_context::failure::{Code, Failure};
use coracle_context::git_programs;
use coracle_context::guest::shares_files;
use coracle_context::warning::Warning;
use coracle_images::BaseRequest;
use coracle_lifecycle::{Creation, StackLabels, StackPart, Store};
use coracle_prepare::image_build::fetch_settings;
use coracle_prepare::resolve::{NewStack, Request, StackRequest};
use coracle_provision::StepReport;
use coracle_runtime::{Access, ContainerRuntime, Image, LabelFilter, Mount, NetworkRequest, Protocol};
use coracle_types::{Capability, ContainerPath, EngineKind, Error, ImageRef, NetworkName, ProjectName};

/// A stack that may be brought up, or that the container joins.
pub(super) enum Stack {
    None,
    /// One that runs, on that network.
    Joined(ProjectName, NetworkRequest),
    Admitted(Box<AdmittedStack>, NewStack),
}

/// What became of it.
pub(super) struct StackUp {
    pub(super) step: StepReport,
    pub(super) services: Option<Vec<Service>>,
    /// The network for the container, instead of the requested one.
    pub(super) network: Option<NetworkRequest>,
}

/// Checks the file against the policy, and the result against the engine. Creates nothing.
pub(super) async fn prepare(
    cx: &Context,
    Backend { ready, store }: Backend<'_>,
    request: &Request,
) -> Result<Stack, Failure> {
    let runtime = &*ready.runtime;
    match &request.stack {
        StackRequest::No => Ok(Stack::None),
        StackRequest::Join(project) => join(cx, store, project),
        StackRequest::Make(stack) => {
            let admitted = admitted(cx, Backend { ready, store }, stack, &request.env).await?;
            runtime.check_stack(admitted.model()).await.map_err(|err| unusable(runtime.kind(), err))?;
            for service in admitted.services().iter().filter(|it| it.image.is_none()) {
                built(cx, &stack.project, &service.service)?;
            }
            unclaimed(runtime, store, &stack.project).await?;
            Ok(Stack::Admitted(Box::new(admitted), (**stack).clone()))
        }
    }
}

/// Refuses a service if the image that Compose builds for it would get the name of an image outside the stack.
fn built(cx: &Context, project: &ProjectName, service: &str) -> Result<(), Failure> {
    let names = ["-", "_"].map(|between| ImageRef::parse(format!("{project}{between}{service}")));
    names.iter().flatten().try_for_each(|it| coracle_prepare::image_build::not_for_snippets(cx, it))
}

/// A stack that the engine cannot run; that Compose is missing is another matter.
fn unusable(engine: EngineKind, err: Error) -> Failure {
    match err {
        Error::Unsupported { capability: Capability::Compose, engine } => {
            Failure::new(Code::ComposeUnavailable, format!("{engine} has no Compose of version 2.20 or later here"))
                .detail("needs", "2.20")
                .hint_for(
                    "leave the stack out, or ask the user to run `coracle setup`, which installs Compose",
                    "run `coracle setup`, or install the package `docker-compose-plugin`",
                )
        }
        Error::Engine { excerpt, .. } => {
            let last = excerpt.as_str().lines().last().unwrap_or("it did not say why").to_owned();
            Failure::new(Code::ComposeInvalid, format!("the {engine} engine refuses the file: {last}"))
                .detail("line", Option::<u64>::None)
                .detail("engine_error", excerpt.as_str())
                .hint("correct the Compose file")
        }
        other => other.into(),
    }
}

fn join(cx: &Context, store: &Store, project: &ProjectName) -> Result<Stack, Failure> {
    let owner = store.stack_owner(project)?;
    let missing = || Failure::not_found("compose project", project.as_str(), &[]);
    let owner = owner.ok_or_else(missing)?;
    crate::target::check_session(cx, &owner.session, project.as_str(), crate::target::Access::Use)?;
    let network = owner.compose_network.as_deref().ok_or_else(missing)?;
    Ok(Stack::Joined(project.clone(), named(network)?))
}

fn named(network: &str) -> Result<NetworkRequest, Failure> {
    let name = NetworkName::parse(network).map_err(|_| {
        Failure::new(Code::InvalidName, "the project's name is too long for the name of its network")
            .detail("field", "compose_project")
            .hint("give `compose_project` a name of at most 55 characters")
    });
    name.map(NetworkRequest::Named)
}

/// Admits the file by the policy.
async fn admitted(
    cx: &Context,
    Backend { ready, store }: Backend<'_>,
    stack: &NewStack,
    env: &BTreeMap<String, String>,
) -> Result<AdmittedStack, Failure> {
    let (config, policy) = (&cx.config, cx.policy()?);
    let (our_networks, our_volumes) = ours(cx, Backend { ready, store }).await?;
    let project_dir = stack.file.as_deref().and_then(Path::parent);
    let working_dir = config.working_dir(&cx.host);
    let protected = git_programs::protected(cx, [&*working_dir].into_iter().chain(project_dir)).await;
    let bound_by_others = store.bound_by_services()?;
    let rules = Rules {
        policy: &policy,
        label_namespace: &config.label_namespace,
        namespace: stack.namespace,
        allow_build: config.compose.allow_build,
        max_services: config.compose.max_services as usize,
        default_limits: config.default_limits(),
        root_is_host: !ready.runtime.endpoint().rootless,
        protected: &protected,
        bound_by_others: &bound_by_others,
        env,
        is_free: &|port, protocol| is_free((policy.ports_bind, port).into(), protocol),
        our_networks: &our_networks,
        our_volumes: &our_volumes,
    };
    Ok(admit(&stack.reading, &stack.project, &rules)?)
}

/// Existing objects that a file may use: Coracle's own, in sessions that this session may use.
async fn ours(
    cx: &Context,
    Backend { ready, store }: Backend<'_>,
) -> Result<(BTreeSet<String>, BTreeSet<String>), Failure> {
    let runtime = &*ready.runtime;
    let managed = LabelFilter(vec![(store.signer().key("managed"), Some("true".into()))]);
    let signed = |labels: &BTreeMap<String, String>| {
        let session = labels.get(&store.signer().key("session"));
        let usable =
            session.is_some_and(|it| it == cx.call.session.as_str() || cx.cross_session() != CrossSession::None);
        usable && store.signer().verify(runtime.kind(), labels)
    };
    let networks = runtime.list_networks(&managed).await?;
    let volumes = runtime.list_volumes(&managed).await?;
    Ok((
        networks.into_iter().filter(|it| signed(&it.labels)).map(|it| it.name).collect(),
        volumes.into_iter().filter(|it| signed(&it.labels)).map(|it| it.name).collect(),
    ))
}

fn is_free(address: SocketAddr, protocol: Protocol) -> bool {
    match protocol {
        Protocol::Tcp => TcpListener::bind(address).is_ok(),
        Protocol::Udp => UdpSocket::bind(address).is_ok(),
    }
}

/// A stack of another origin is never recreated or taken down.
async fn unclaimed(runtime: &dyn ContainerRuntime, store: &Store, project: &ProjectName) -> Result<(), Failure> {
    let is_ours = |labels: &BTreeMap<String, String>| store.is_of_stack(runtime.kind(), project, labels);
    let ours = match claim(runtime, project, is_ours).await? {
        Claim::Free if store.stack_owner(project)?.is_none() => return Ok(()),
        Claim::Free | Claim::Ours => true,
        Claim::Foreign => false,
    };
    Err(Failure::new(Code::NameTaken, format!("a compose project named `{project}` already exists"))
        .detail("kind", "compose project")
        .detail("ours", ours)
        .hint(if ours {
            "give `compose_project` alone to join it, or leave it out to get a project of your own"
        } else {
            "leave `compose_project` out to get a project of your own"
        }))
}

/// Brings it up. From here on the making undoes it.
pub(super) async fn bring_up(
    cx: &Context,
    Backend { ready, store }: Backend<'_>,
    making: &mut Creation<'_>,
    stack: Stack,
) -> Result<StackUp, Failure> {
    let (admitted, new) = match stack {
        Stack::None => {
            let step = StepReport::skipped("compose", "no stack was requested");
            return Ok(StackUp { step, services: None, network: None });
        }
        Stack::Joined(project, network) => {
            let services = coracle_compose::services(&*ready.runtime, &project).await?;
            making.begin_stack(name_of(&network), &[]).await?;
            let step =
                StepReport::success("compose", format!("joined `{project}`: {}", service_states(&services)), PROBE);
            return Ok(StackUp { step, services: Some(services), network: Some(network) });
        }
        Stack::Admitted(admitted, new) => (*admitted, new),
    };
    let begun = std::time::Instant::now();
    let network = admitted.default_network().map(|it| named(&it)).transpose()?;
    let contexts = admitted.build_contexts().iter().cloned();
    let contexts = contexts.map(|host| Mount { host, at: ContainerPath::root(), access: Access::ReadOnly });
    let binds: Vec<_> = admitted.binds().iter().map(|(_, bind)| bind.clone()).chain(contexts).collect();
    // Before images are pulled, which takes its time: from here on nothing that is bound can be exchanged.
    making.begin_stack(network.as_ref().and_then(name_of), &binds).await?;
    let admitted = if admitted.binds_files() && shares_files(&*ready.runtime) {
        admitted.with_bound_files(&store.create_bound_files(making.record())?)?
    } else {
        admitted
    };
    let images = images(cx, &*ready.runtime, &admitted).await?;
    let labels = labels(Backend { ready, store }, cx.call.session.as_str(), &admitted, &images)?;
    let stack = admitted.labelled(|part, name| labels(part, name));
    let stack = if stack.has_secret_texts() && shares_files(&*ready.runtime) {
        let dir = store.create_secret_files(stack.project())?;
        stack.with_secret_files(&dir).map_err(Failure::internal)?
    } else {
        stack
    };
    let names: Vec<_> = stack.services().iter().map(|it| it.service.as_str()).collect();
    cx.call.progress.message(format!("bringing up the services {}", names.join(", "))).await;
    let how = UpOptions {
        dir: new.dir.clone(),
        patience: cx.config.compose.timeout.0,
        checks_on_demand: matches!(ready.runtime.kind(), EngineKind::Podman | EngineKind::Embedded),
    };
    let services = up(&*ready.runtime, &stack, &how).await?;
    let step = StepReport::success("compose", service_states(&services), PROBE).with_duration(begun.elapsed());
    // Requested ports are in the answer.
    if !new.namespace {
        cx.warn(moved(stack.moved_ports(), &services));
    }
    Ok(StackUp { step, services: Some(services), network })
}

const PROBE: &str = "every service is healthy, runs without a health check, or ended with 0";

fn name_of(network: &NetworkRequest) -> Option<String> {
    match network {
        NetworkRequest::Named(name) => Some(name.to_string()),
        _ => None,
    }
}

/// The images of its services, pulled where they are not here: Compose itself fetches nothing.
async fn images(
    cx: &Context,
    runtime: &dyn ContainerRuntime,
    stack: &AdmittedStack,
) -> Result<BTreeMap<ImageRef, Image>, Failure> {
    let settings = fetch_settings(cx);
    let pull = cx.config.images.pull_missing();
    let progress = cx.call.progress.clone();
    let mut found = BTreeMap::new();
    for image in stack.images() {
        let request = BaseRequest { image: &image, explicit: true, pull };
        let progress = |text: &str| progress.note(text);
        let base = coracle_images::ensure(runtime, request, &settings, &progress).await?;
        found.insert(image, base.image);
    }
    Ok(found)
}

/// Proves that each part of the stack is Coracle's.
fn labels<'a>(
    Backend { ready, store }: Backend<'a>,
    session: &'a str,
    stack: &AdmittedStack,
    images: &BTreeMap<ImageRef, Image>,
) -> Result<impl Fn(LabelledPart, &str) -> BTreeMap<String, String> + use<'a>, Failure> {
    let (runtime, mut of_images) = (&*ready.runtime, BTreeMap::new());
    for it in stack.services() {
        let Some(image) = it.image.as_ref().and_then(|it| images.get(it)) else { continue };
        store.trust_labels(runtime.kind(), image)?;
        of_images.insert(it.service.clone(), image.labels.clone());
    }
    let project = stack.project().clone();
    Ok(move |part: LabelledPart, name: &str| {
        let none = BTreeMap::new();
        let (part, of_image) = match part {
            LabelledPart::Service => (StackPart::Service, of_images.get(name).unwrap_or(&none)),
            LabelledPart::Network => (StackPart::Network, &none),
            LabelledPart::Volume => (StackPart::Volume, &none),
        };
        let labels = StackLabels { engine: runtime.kind(), session, part, name, of_image };
        store.stack_labels(&project, &labels)
    })
}

fn service_states(services: &[Service]) -> String {
    let one = |it: &Service| match (it.health, it.exit_code) {
        (Some(_), _) => format!("{} (healthy)", it.service),
        (None, Some(code)) => format!("{} (ended with {code})", it.service),
        (None, None) => format!("{} (running)", it.service),
    };
    services.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn moved(ports: &[ReassignedPort], services: &[Service]) -> Vec<Warning> {
    if ports.is_empty() {
        return Vec::new();
    }
    let got = |it: &ReassignedPort| {
        let of_service = services.iter().filter(|service| service.service == it.service);
        of_service.flat_map(|it| &it.ports).find(|port| port.container == it.container && port.protocol == it.protocol)
    };
    let one = |it: &ReassignedPort| match got(it) {
        Some(port) => format!("{} of `{}` is {}:{}", it.requested, it.service, port.address, port.host),
        None => format!("{} of `{}` is another one", it.requested, it.service),
    };
    let moved: Vec<_> = ports.iter().map(one).collect();
    vec![Warning::new("ports_moved", format!("host ports were moved: {}", moved.join(", ")))]
}

#[cfg(test)]
mod tests {
    use coracle_context::context::Context;
    use coracle_types::ProjectName;

    use super::built;

    #[test]
    fn r04_a_service_is_not_built_as_the_image_of_snippets() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(dir.path());
        let code = |project: &str, service: &str| {
            built(&cx, &ProjectName::parse(project).unwrap(), service).err().map(|it| it.code.word())
        };
        assert_eq!(code("bun", "runner-base").as_deref(), Some("policy_denied"));
        assert_eq!(code("bun-runner", "base").as_deref(), Some("policy_denied"));
        assert_eq!(code("web", "runner-base"), None);
    }
}
