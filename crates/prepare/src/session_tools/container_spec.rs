//! The spec of a session's containers, from the configuration, with all defaults resolved.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use coracle_context::config::{Config, ProxyNetwork, ProxyTransport};
use coracle_context::context::Context;
use coracle_context::engines::Ready;
use coracle_context::failure::{Code, Failure};
use coracle_context::{container_guest, egress, git_programs, strict, workspace_mounts};
use coracle_images::stand_in::Contents;
use coracle_lifecycle::ContainerTemplate;
use coracle_runtime::{Capabilities, CreateSpec, Limits, NetworkRequest, Tmpfs, Ulimits};
use coracle_types::{ByteSize, ContainerName, ContainerPath, Ids, ImageRef};
use coracle_workspace::{SlotRole, Warning};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{packages, session_egress};
use crate::image_build::{NamedImage, cache, owned, resolve_image};
use crate::preflight::ensure_ready;

/// The configured settings of a role's container. Records store a hash of the `Debug` text, so renaming a type or a
/// field here replaces every container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) image: ImageRef,
    pub(super) user: Ids,
    pub(super) workdir: &'static str,
    pub(super) volume_at: &'static str,
    pub(super) limits: Limits,
    pub(super) tmpfs: Vec<(&'static str, u64, u32)>,
    pub(super) env: BTreeMap<String, String>,
    /// How long its guest waits for a request before it ends the container.
    pub(super) lifeline: Option<Duration>,
    /// Host directories that are bind-mounted, with their paths inside and their protected names.
    pub(super) bound: Vec<String>,
    /// The transport of its proxy, if it has outbound access.
    pub(super) proxied: Option<ProxyTransport>,
    /// No process inside is root.
    pub(super) strict: bool,
}

/// The user of a workspace: `nobody`, which exists in every image.
const NOBODY: Ids = Ids { uid: 65534, gid: 65534 };

/// The user of snippets: a uid that no other account has.
const RUNNER: Ids = Ids { uid: 10002, gid: 10002 };

/// Maximum number of processes and threads of snippets.
const RUN_PIDS: u32 = 128;

/// Limits of each process.
const ULIMITS: Ulimits = Ulimits { nofile: Some(4096), core: Some(0) };

impl Plan {
    pub(super) fn for_role(role: SlotRole, config: &Config) -> Self {
        match role {
            SlotRole::Run => Self::run(config),
            _ => Self::workspace(config),
        }
    }

    /// The plan with the user's uid, which is used if the workspace contains the user's own directories.
    pub(super) fn for_user(role: SlotRole, cx: &Context) -> Result<Self, Failure> {
        let mut plan = Self::for_role(role, &cx.config);
        let person = Ids { uid: cx.host.uid, gid: cx.host.gid };
        if !plan.bound.is_empty() && !person.is_root() {
            plan.user = person;
        }
        // Configured variables override these.
        for (name, value) in session_egress::environment(cx, role)? {
            plan.env.entry(name).or_insert(value);
        }
        Ok(plan)
    }

    fn workspace(config: &Config) -> Self {
        let own = &config.workspace;
        let mut env = variables(&[("HOME", "/home/agent"), ("LANG", "C.UTF-8")]);
        env.extend(own.env.clone());
        Self {
            image: own.image.clone(),
            user: if config.is_strict() { strict::USER } else { NOBODY },
            workdir: "/workspace",
            volume_at: "/workspace",
            limits: Limits { memory: Some(own.memory), cpus: Some(own.cpus), pids: Some(own.pids) },
            tmpfs: vec![("/tmp", 256, 0o1777), ("/home/agent", 256, 0o700)],
            env,
            lifeline: own.lifeline.unless_zero(),
            bound: workspace_mounts::bound_paths(own),
            proxied: (own.network == ProxyNetwork::Proxy).then(|| egress::wanted(config)),
            strict: config.is_strict(),
        }
    }

    fn run(config: &Config) -> Self {
        let (own, strict) = (&config.run_code, config.is_strict());
        Self {
            image: own.image.clone(),
            user: if strict { strict::USER } else { RUNNER },
            workdir: "/code",
            volume_at: "/packages",
            limits: Limits { memory: Some(own.memory), cpus: Some(own.cpus), pids: Some(RUN_PIDS) },
            // If no process inside is root, the host writes the code.
            tmpfs: [("/tmp", 128, 0o1777)].into_iter().chain((!strict).then_some(("/code", 16, 0o755))).collect(),
            env: variables(&[
                ("HOME", "/tmp"),
                ("LANG", "C.UTF-8"),
                ("BUN_INSTALL_CACHE_DIR", "/packages/cache"),
                ("NODE_PATH", "/packages/node_modules:/packages-base/node_modules"),
                ("PYTHONPATH", "/packages/python:/packages-base/python"),
            ]),
            lifeline: config.workspace.lifeline.unless_zero(),
            bound: Vec::new(),
            proxied: (own.network == ProxyNetwork::Proxy).then(|| egress::wanted(config)),
            strict,
        }
    }

    /// Identifies the settings, so that a container with other settings is replaced.
    pub(super) fn hash(&self) -> String {
        hex::encode(Sha256::digest(format!("{self:?}")))
    }

    fn spec(&self) -> Result<CreateSpec, Failure> {
        // The slot replaces this name.
        let name = ContainerName::parse("room")?;
        let tmpfs = |(at, mib, mode): &(&str, u64, u32)| {
            Ok::<_, Failure>(Tmpfs { at: ContainerPath::parse(at)?, size: ByteSize::mib(*mib), mode: *mode })
        };
        Ok(CreateSpec {
            exec_user: self.user,
            network: NetworkRequest::None,
            limits: self.limits,
            tmpfs: self.tmpfs.iter().map(tmpfs).collect::<Result<_, _>>()?,
            read_only: true,
            ulimits: ULIMITS,
            lifeline: self.lifeline,
            capabilities: if self.strict { Capabilities::None } else { Capabilities::Guest },
            ..CreateSpec::new(name, self.image.clone())
        })
    }
}

fn variables(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Prepares everything for the container, including its image, and returns the warnings. `sockets` is the directory of
/// its own proxy's sockets.
pub(super) async fn template(
    cx: &Context,
    role: SlotRole,
    sockets: Option<&Path>,
) -> Result<(ContainerTemplate, Vec<Warning>), Failure> {
    let ready: Ready = ensure_ready(cx).await?;
    let plan = Plan::for_user(role, cx)?;
    if plan.strict {
        strict::check(&ready, &plan.limits)?;
    }
    let found = resolve_image(cx, &ready, role, &plan.image).await?;
    let contents = cache(cx, &cx.store()?)?.contents(&found.image);
    let usual = Plan::for_role(role, &Config::default()).limits;
    let mut warnings = warnings(&plan, &usual, &found, contents.as_ref(), &ready);
    let unmapped = strict::unmapped(cx, (ready.runtime.kind(), ready.runtime.endpoint().rootless));
    warnings.extend(unmapped.map(|(code, message)| Warning::new(code, message)));
    let NamedImage { image, reference } =
        if plan.strict { owned(cx, &ready, &found, &[plan.volume_at]).await? } else { found };
    let Some(program) = container_guest::program(cx, &*ready.runtime, &image)? else {
        return Err(Failure::new(
            Code::Unsupported,
            "the containers of a session need the guest, and this one gets none",
        )
        .detail("capability", "guest")
        .hint("leave `guest` out of the configuration, and use an image for an architecture of this release"));
    };
    let (mut mounts, volumes, fill) = match role {
        SlotRole::Run => (Vec::new(), packages::mounted(cx, &ready).await?.into_iter().collect(), None),
        _ => (workspace_mounts::bound(cx)?, Vec::new(), Some(workspace_mounts::fill(cx, plan.user))),
    };
    let mut policy = cx.policy()?;
    if plan.strict && role == SlotRole::Run {
        let code = strict::code(cx)?;
        strict::admit_code(&mut policy, &code);
        mounts.push(code);
    }
    if let Some(sockets) = sockets {
        mounts.push(egress::mount(sockets)?);
        egress::admit(&mut policy, sockets);
    }
    let protected = git_programs::protected(cx, mounts.iter().map(|it| it.host.real())).await;
    let template = ContainerTemplate {
        spec: CreateSpec { mounts, volumes, ..plan.spec()? },
        policy,
        image,
        reference,
        guest: program,
        volume_at: ContainerPath::parse(plan.volume_at)?,
        workdir: ContainerPath::parse(plan.workdir)?,
        env: plan.env,
        volume_size: (role == SlotRole::Workspace).then_some(cx.config.workspace.max_bytes),
        fill,
        protected,
        max_containers_total: cx.config.max_containers_total as usize,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    Ok((template, warnings))
}

/// Reports where the container differs from the settings. `usual` are the limits without configuration, which are not
/// reported.
fn warnings(
    plan: &Plan,
    usual: &Limits,
    found: &NamedImage,
    contents: Option<&Contents>,
    ready: &Ready,
) -> Vec<Warning> {
    let stand_in = (!found.image.is_named(&plan.image)).then(|| {
        let gaps = contents.map(|it| it.gaps(&plan.image)).unwrap_or_default();
        let has = contents.map_or_else(String::new, |it| format!(": {}", it.summary(&plan.image)));
        let message = format!("No registry provides {}; an image built on this host replaces it{has}.", plan.image);
        let details = json!({ "image": plan.image, "stand_in": found.reference, "gaps": gaps });
        Warning {
            details: details.as_object().cloned().unwrap_or_default(),
            ..Warning::new("bootstrap_image", message)
        }
    });
    let configured = [
        ("memory", plan.limits.memory != usual.memory),
        ("cpus", plan.limits.cpus != usual.cpus),
        ("pids", plan.limits.pids != usual.pids),
    ];
    let is_ignored = |name: &str| ready.ignored_limits.iter().any(|ignored| ignored == name);
    let ignored = configured.into_iter().filter(|(name, is_configured)| *is_configured && is_ignored(name));
    let ignored = ignored.map(|(name, _)| {
        let message = format!("This engine accepts the limit of {name} but does not enforce it.");
        let details = json!({ "limit": name });
        Warning {
            details: details.as_object().cloned().unwrap_or_default(),
            ..Warning::new("limit_not_enforced", message)
        }
    });
    stand_in.into_iter().chain(ignored).collect()
}

#[cfg(test)]
mod tests {
    use coracle_runtime::Image;

    use super::*;

    #[test]
    fn other_settings_are_another_container() {
        let config = Config::default();
        let mut other = config.clone();
        other.workspace.memory = coracle_types::ByteSize::mib(2048);
        let hash = |role, config: &Config| Plan::for_role(role, config).hash();
        assert_eq!(hash(SlotRole::Workspace, &config), hash(SlotRole::Workspace, &config.clone()));
        assert_ne!(hash(SlotRole::Workspace, &config), hash(SlotRole::Workspace, &other));
        assert_eq!(hash(SlotRole::Run, &config), hash(SlotRole::Run, &other));
    }

    #[test]
    fn the_debug_text_that_records_store_is_pinned() {
        let plan =
            Plan { env: BTreeMap::new(), tmpfs: Vec::new(), ..Plan::for_role(SlotRole::Workspace, &Config::default()) };
        insta::assert_snapshot!(format!("{plan:?}"), @r#"Plan { image: "python:3.12-bookworm", user: Ids { uid: 65534, gid: 65534 }, workdir: "/workspace", volume_at: "/workspace", limits: Limits { memory: Some(ByteSize(1073741824)), cpus: Some(1.0), pids: Some(256) }, tmpfs: [], env: {}, lifeline: Some(1800s), bound: [], proxied: None, strict: false }"#);
    }

    #[test]
    fn warnings_report_ignored_limits_and_a_replacement_image() {
        let mut config = Config::default();
        config.workspace.pids = 99;
        let usual = Plan::for_role(SlotRole::Workspace, &Config::default()).limits;
        let (plan, ready) = (Plan::for_role(SlotRole::Workspace, &config), |ignored: &[&str]| Ready {
            runtime: std::sync::Arc::new(coracle_runtime::FakeRuntime::new()),
            ignored_limits: ignored.iter().map(|it| (*it).to_owned()).collect(),
            gpu: false,
        });
        let image = |tag: &str| Image {
            id: coracle_types::ImageId::parse(format!("sha256:{}", "a".repeat(64))).unwrap(),
            tags: vec![tag.to_owned()],
            digest: None,
            labels: BTreeMap::new(),
            env: Vec::new(),
            config: coracle_runtime::ImageConfig::default(),
            volumes: Vec::new(),
            arch: "amd64".into(),
            size_bytes: 0,
            created: String::new(),
        };
        let codes = |tag: &str, ignored: &[&str]| {
            let found = NamedImage { image: image(tag), reference: tag.to_owned() };
            let warnings = warnings(&plan, &usual, &found, None, &ready(ignored));
            warnings.into_iter().map(|it| it.code).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(codes("docker.io/library/python:3.12-bookworm", &[]), "");
        assert_eq!(codes("coracle-cache:1", &["pids", "swap", "memory"]), "bootstrap_image limit_not_enforced");
    }

    #[test]
    fn r06_snippets_get_two_cores_and_half_a_gibibyte() {
        let limits = Plan::for_role(SlotRole::Run, &Config::default()).limits;
        assert_eq!((limits.cpus, limits.memory.unwrap().0, limits.pids), (Some(2.0), 512 << 20, Some(128)));
    }
}
