//! What `create` gives.

use std::borrow::Cow;
use std::net::SocketAddr;

use coracle_compose::Service;
use coracle_context::context::Context;
use coracle_context::document::joined;
use coracle_context::engines::Ready;
use coracle_context::failure::Failure;
use coracle_context::humanize::bytes;
use coracle_context::warning::{Warning, to_review};
use coracle_images::profile::{ProfileServer, Purpose};
use coracle_lifecycle::{ManagedContainer, Record, Review, hint};
use coracle_prepare::image_build::{ImageSource, ResolvedImage};
use coracle_prepare::resolve::{GitOutside, Request};
use coracle_provision::Report;
use coracle_runtime::{Container, Health, Limits, Protocol, PublishedPort};
use coracle_types::{Capability, ContainerName, ContainerPath, ContainerStatus, Ids, JobId, ProjectName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::devcontainer::{DevcontainerAnswer, DevcontainerPlan};
use super::provision::PutIn;
use super::source::ForkSource;
use super::stack::StackUp;
use crate::commands::connect_command;
use crate::shapes::{PortShape, StepShape};

/// The answer.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct CreateResponse {
    #[schemars(with = "String")]
    pub(crate) container: ContainerName,
    pub(super) container_id: String,
    pub(super) id: String,
    pub(crate) image: String,
    pub(super) image_id: String,
    #[schemars(with = "String")]
    pub(super) image_source: ImageSource,
    pub(super) purpose: Option<String>,
    pub(super) requested_purpose: Option<String>,
    pub(super) connect_command: String,
    pub(super) coracle_command: String,
    #[schemars(with = "String")]
    pub(crate) workdir: ContainerPath,
    #[schemars(with = "String")]
    pub(super) home: ContainerPath,
    #[schemars(with = "String")]
    pub(super) user: Ids,
    pub(super) env_vars_injected: usize,
    pub(super) persistent: bool,
    pub(super) cache_used: bool,
    pub(super) reused: bool,
    #[schemars(with = "Vec<StepShape>")]
    pub(crate) provisioning_report: Report,
    pub(super) provisioning_ok: bool,
    pub(super) network: String,
    #[schemars(with = "Vec<PortShape>")]
    pub(crate) ports: Vec<PublishedPort>,
    #[schemars(with = "Option<String>")]
    pub(super) compose_project: Option<ProjectName>,
    pub(super) compose_services: Option<Vec<ServiceAnswer>>,
    #[schemars(with = "Option<String>")]
    pub(super) main_job_id: Option<JobId>,
    /// What was made of its `devcontainer.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) devcontainer: Option<DevcontainerAnswer>,
    /// What the purpose's server is reached by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<ServerAnswer>,
    #[schemars(with = "Option<String>")]
    pub(super) repo_path: Option<ContainerPath>,
    pub(super) limits: LimitsAnswer,
    pub(super) expires_at: Option<String>,
    /// The container that it is a fork of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(super) forked_from: Option<ContainerName>,
    /// What of that one it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_included: Option<Vec<String>>,
    pub(super) warnings: Vec<Warning>,
    pub(super) duration_ms: u64,
}

/// A service of a stack.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub(crate) struct ServiceAnswer {
    pub(super) service: String,
    name: String,
    container_id: String,
    image: String,
    #[schemars(with = "String")]
    pub(super) state: ContainerStatus,
    #[schemars(with = "Option<String>")]
    pub(super) health: Option<Health>,
    pub(super) exit_code: Option<i64>,
    #[schemars(with = "Vec<PortShape>")]
    pub(super) ports: Vec<PublishedPort>,
}

impl From<Service> for ServiceAnswer {
    fn from(it: Service) -> Self {
        let Service { service, name, container_id, image, state, health, exit_code, ports, id: _ } = it;
        Self { service, name, container_id, image, state, health, exit_code, ports }
    }
}

/// How a client reaches the server of a purpose.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub(crate) struct ServerAnswer {
    /// Absent if the port is not published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<String>,
    /// Inside.
    pub(super) port: u16,
    /// Given by this answer alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) password: Option<String>,
}

impl ServerAnswer {
    fn new(server: &ProfileServer, ports: &[PublishedPort], password: Option<String>) -> Self {
        Self { url: server_url(ports, server.port.get(), &server.path), port: server.port.get(), password }
    }
}

/// The field that a record has beside the answer that it keeps.
const REPORT: &str = "provisioning_report";

impl CreateResponse {
    /// The part of the response that is stored in the container's record: without secrets, and without the report,
    /// which the record stores separately.
    pub(super) fn for_record(&self) -> Result<Map<String, Value>, Failure> {
        let mut stored = self.clone();
        stored.provisioning_report = Report::default();
        if let Some(server) = &mut stored.server {
            server.password = None;
        }
        match serde_json::to_value(stored).map_err(Failure::internal)? {
            Value::Object(mut fields) => {
                fields.remove(REPORT);
                Ok(fields)
            }
            _ => Err(Failure::internal("the answer of `create` is no object")),
        }
    }

    /// What was answered then, with the ports of now. Nothing for a record without an answer that this version reads.
    pub(super) fn from_record(record: &Record, ports: &[PublishedPort]) -> Option<Self> {
        let mut fields = record.answer.clone();
        fields.insert(REPORT.to_owned(), record.provisioning_report.clone());
        let mut created: Self = serde_json::from_value(Value::Object(fields)).ok()?;
        created.reused = true;
        created.duration_ms = 0;
        if let Some(server) = &mut created.server {
            let path = server.url.as_deref().and_then(|url| url.splitn(4, '/').nth(3)).unwrap_or_default();
            server.url = server_url(ports, server.port, &format!("/{path}"));
        }
        created.ports = ports.to_vec();
        Some(created)
    }
}

/// Where a page of a port inside is found on this host.
fn server_url(ports: &[PublishedPort], port: u16, path: &str) -> Option<String> {
    let published = ports.iter().find(|it| it.container == port && it.protocol == Protocol::Tcp)?;
    Some(format!("http://{}{path}", SocketAddr::new(published.address, published.host)))
}

#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub(crate) struct LimitsAnswer {
    pub(crate) memory: Option<u64>,
    cpus: Option<f64>,
    pids: Option<u32>,
    enforced: Vec<Cow<'static, str>>,
}

impl LimitsAnswer {
    /// A limit is enforced if the engine tells it back.
    pub(crate) fn from_limits(limits: &Limits) -> Self {
        Self {
            memory: limits.memory.map(|it| it.0),
            cpus: limits.cpus,
            pids: limits.pids,
            enforced: names(limits).map(Cow::Borrowed).collect(),
        }
    }
}

/// The limits that are given.
fn names(limits: &Limits) -> impl Iterator<Item = &'static str> {
    let given = [("memory", limits.memory.is_some()), ("cpus", limits.cpus.is_some()), ("pids", limits.pids.is_some())];
    given.into_iter().filter_map(|(name, is_given)| is_given.then_some(name))
}

impl LimitsAnswer {
    /// For a person.
    pub(crate) fn summary(&self) -> String {
        let memory = self.memory.map(|it| format!("{} of memory", bytes(it)));
        let cpus = self.cpus.map(|it| format!("{it} cores"));
        let pids = self.pids.map(|it| format!("{it} processes"));
        joined([memory, cpus, pids].into_iter().flatten())
    }
}

/// A container that is ready, and how it came about.
pub(super) struct CreateOutcome<'a> {
    pub(super) cx: &'a Context,
    pub(super) found: ManagedContainer,
    pub(super) request: &'a Request,
    pub(super) devcontainer: Option<&'a DevcontainerPlan>,
    pub(super) imaged: ResolvedImage,
    pub(super) stacked: StackUp,
    pub(super) report: Report,
    pub(super) filled: PutIn,
    /// What lost its set-id bits in directories of the host.
    pub(super) swept: Review,
    pub(super) ready: &'a Ready,
    pub(super) forked: Option<ForkSource>,
    pub(super) expires_at: Option<String>,
}

impl CreateOutcome<'_> {
    /// Tells it.
    pub(super) fn answer(self) -> Result<CreateResponse, Failure> {
        let request = self.request;
        let (forked_from, not_included) = self.forked.map(|it| (it.from, it.not_included)).unzip();
        let Container { id, ports, limits, networks, .. } = self.found.present()?.clone();
        let coracle_command = format!("coracle shell {}", self.found.record.name);
        let (engine, endpoint) = (self.found.runtime.kind(), &self.found.record.endpoint);
        let connect_command = connect_command(engine, endpoint, &hint(&self.found, false)?, &coracle_command);
        let record = self.found.record;
        let mut limits = LimitsAnswer::from_limits(&limits);
        limits.enforced.retain(|it| !self.ready.ignored_limits.iter().any(|ignored| ignored == it));
        let (devcontainer, unsupported) = self.devcontainer.map(|it| it.answer(request)).unzip();
        let swept = to_review(&self.swept);
        self.cx.warn(swept.into_iter().chain(unsupported.unwrap_or_default()));
        self.cx.warn(warnings(self.cx, record.guest.is_some(), request, self.ready));
        let named = |it: &Option<Purpose>| it.as_ref().map(ToString::to_string);
        Ok(CreateResponse {
            container_id: id.short().to_owned(),
            id: id.to_string(),
            image: record.image.clone(),
            image_id: self.imaged.image.id.to_string(),
            image_source: self.imaged.source,
            purpose: named(&request.chosen.purpose),
            requested_purpose: named(&request.chosen.requested),
            connect_command,
            coracle_command,
            home: record.home.unwrap_or_else(ContainerPath::root),
            user: record.exec_user.unwrap_or(Ids::ROOT),
            env_vars_injected: self.filled.variables,
            persistent: record.persistent,
            cache_used: self.imaged.source == ImageSource::Cache,
            reused: false,
            provisioning_ok: self.report.ok(),
            provisioning_report: self.report,
            network: crate::target::network_name(record.proxied, &networks),
            devcontainer,
            server: request
                .server
                .as_ref()
                .filter(|_| self.filled.main)
                .map(|it| ServerAnswer::new(it, &ports, self.filled.password)),
            ports,
            compose_project: record.compose_project.clone(),
            compose_services: self.stacked.services.map(|all| all.into_iter().map(ServiceAnswer::from).collect()),
            main_job_id: self.filled.main.then(JobId::main),
            repo_path: self.filled.repo_path,
            limits,
            expires_at: self.expires_at,
            forked_from,
            not_included,
            warnings: self.cx.warnings(),
            duration_ms: 0,
            workdir: record.workdir,
            container: record.name,
        })
    }
}

fn warnings(cx: &Context, guest: bool, request: &Request, ready: &Ready) -> Vec<Warning> {
    let mut warnings: Vec<_> = request.git_outside.iter().filter_map(GitOutside::warning).collect();
    if !guest {
        warnings.push(Warning::new("no_guest", "commands run through the engine's own exec: no jobs, no secrets"));
    }
    let urls = request.provisioning.repos.iter().filter_map(|it| it.from.url());
    let insecure: Vec<_> = urls.filter(|it| it.insecure()).map(ToString::to_string).collect();
    if !insecure.is_empty() {
        let message = format!(
            "clones from {} can be changed on the way, since the connection is not encrypted",
            insecure.join(", ")
        );
        warnings.push(Warning::new("insecure_url", message));
    }
    let engine = ready.runtime.kind();
    let is_ignored = |limit: &&str| ready.ignored_limits.iter().any(|ignored| ignored == limit);
    let ignored = names(&request.requested_limits).filter(is_ignored);
    let is_new = |limit: &&str| cx.is_first_report(&format!("limit-{engine}-{limit}"));
    warnings.extend(ignored.filter(is_new).map(|limit| {
        let message = format!(
            "{engine} does not enforce the limit of {limit} here; this is reported once, and `limits.enforced` has those that it \
             enforces"
        );
        Warning::new("limit_not_enforced", message)
    }));
    let unkept = request.spec.limits.unenforced_by(ready.runtime.kind()).into_iter();
    // Limits that are ignored altogether are reported already.
    let rounded = unkept.filter(|it| it.capability != Some(Capability::PidsLimit));
    warnings.extend(rounded.map(|it| Warning::new("limit_rounded", it.message)));
    warnings
}
