//! What `create` gives.

use std::net::SocketAddr;

use coracle_compose::Service;
use coracle_images::profile::{ProfileServer, Purpose};
use coracle_lifecycle::{ManagedContainer, Review, hint};
use coracle_provision::Report;
use coracle_runtime::{
    Capability, Container, ContainerName, ContainerPath, Ids, JobId, Limits, ProjectName, Protocol, PublishedPort,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::devcontainer::{DevcontainerAnswer, DevcontainerPlan};
use super::provision::PutIn;
use super::source::ForkSource;
use super::stack::StackUp;
use crate::commands::connect_command;
use crate::context::Context;
use crate::document::joined;
use crate::engines::Ready;
use crate::failure::Failure;
use crate::humanize::bytes;
use crate::image_build::{ImageSource, ResolvedImage};
use crate::resolve::{GitOutside, Request};
use crate::warning::Warning;
use crate::warning::to_review;

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct CreatedContainer {
    #[schemars(with = "String")]
    container: ContainerName,
    container_id: String,
    id: String,
    image: String,
    image_id: String,
    #[schemars(with = "String")]
    image_source: ImageSource,
    purpose: Option<String>,
    requested_purpose: Option<String>,
    connect_command: String,
    coracle_command: String,
    #[schemars(with = "String")]
    workdir: ContainerPath,
    #[schemars(with = "String")]
    home: ContainerPath,
    #[schemars(with = "String")]
    user: Ids,
    env_vars_injected: usize,
    persistent: bool,
    cache_used: bool,
    reused: bool,
    #[schemars(with = "Map<String, Value>")]
    provisioning_report: Report,
    provisioning_ok: bool,
    network: String,
    #[schemars(with = "Vec<Map<String, Value>>")]
    ports: Vec<PublishedPort>,
    #[schemars(with = "Option<String>")]
    compose_project: Option<ProjectName>,
    #[schemars(with = "Option<Vec<Map<String, Value>>>")]
    compose_services: Option<Vec<Service>>,
    #[schemars(with = "Option<String>")]
    main_job_id: Option<JobId>,
    /// What was made of its `devcontainer.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    devcontainer: Option<DevcontainerAnswer>,
    /// What the purpose's server is reached by.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<ServerAnswer>,
    #[schemars(with = "Option<String>")]
    repo_path: Option<ContainerPath>,
    limits: LimitsAnswer,
    expires_at: Option<String>,
    /// The container that it is a fork of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    forked_from: Option<ContainerName>,
    /// What of that one it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_included: Option<Vec<String>>,
    warnings: Vec<Warning>,
    pub(super) duration_ms: u64,
}

/// How a client reaches the server of a purpose.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ServerAnswer {
    /// Absent if the port is not published.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// Inside.
    port: u16,
    /// Given by this answer alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<String>,
}

impl ServerAnswer {
    fn new(server: &ProfileServer, ports: &[PublishedPort], password: Option<String>) -> Self {
        Self { url: server_url(ports, server.port.get(), &server.path), port: server.port.get(), password }
    }
}

/// Where a page of a port inside is found on this host.
pub(super) fn server_url(ports: &[PublishedPort], port: u16, path: &str) -> Option<String> {
    let published = ports.iter().find(|it| it.container == port && it.protocol == Protocol::Tcp)?;
    Some(format!("http://{}{path}", SocketAddr::new(published.address, published.host)))
}

#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct LimitsAnswer {
    memory: Option<u64>,
    cpus: Option<f64>,
    pids: Option<u32>,
    enforced: Vec<&'static str>,
}

impl LimitsAnswer {
    /// A limit is enforced if the engine tells it back.
    pub(crate) fn from_limits(limits: &Limits) -> Self {
        Self { memory: limits.memory.map(|it| it.0), cpus: limits.cpus, pids: limits.pids, enforced: names(limits) }
    }
}

/// The limits that are given.
fn names(limits: &Limits) -> Vec<&'static str> {
    let given = [("memory", limits.memory.is_some()), ("cpus", limits.cpus.is_some()), ("pids", limits.pids.is_some())];
    given.into_iter().filter_map(|(name, is_given)| is_given.then_some(name)).collect()
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
    pub(super) fn answer(self) -> Result<CreatedContainer, Failure> {
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
        let swept = to_review(&self.swept).into_iter().collect();
        let warned = [self.imaged.warnings, self.stacked.warnings, swept, unsupported.unwrap_or_default()].concat();
        let named = |it: &Option<Purpose>| it.as_ref().map(ToString::to_string);
        Ok(CreatedContainer {
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
            network: networks.first().cloned().unwrap_or_else(|| "none".into()),
            devcontainer,
            server: request
                .server
                .as_ref()
                .filter(|_| self.filled.main)
                .map(|it| ServerAnswer::new(it, &ports, self.filled.password)),
            ports,
            compose_project: record.compose_project.clone(),
            compose_services: self.stacked.services,
            main_job_id: self.filled.main.then(JobId::main),
            repo_path: self.filled.repo_path,
            limits,
            expires_at: self.expires_at,
            forked_from,
            not_included,
            warnings: warnings(self.cx, record.guest.is_some(), request, warned, self.ready),
            duration_ms: 0,
            workdir: record.workdir,
            container: record.name,
        })
    }
}

fn warnings(cx: &Context, guest: bool, request: &Request, of_image: Vec<Warning>, ready: &Ready) -> Vec<Warning> {
    let mut warnings = of_image;
    warnings.extend(request.git_outside.iter().filter_map(GitOutside::warning));
    if !guest {
        warnings.push(Warning::new("no_guest", "commands run through the engine's own exec: no jobs, no secrets"));
    }
    let urls = request.provisioning.repos.iter().filter_map(|it| it.from.url());
    let insecure: Vec<_> = urls.filter(|it| it.insecure()).map(ToString::to_string).collect();
    if !insecure.is_empty() {
        let message = format!("whoever is on the way can change what is cloned from {}", insecure.join(", "));
        warnings.push(Warning::new("insecure_url", message));
    }
    let engine = ready.runtime.kind();
    let is_ignored = |limit: &&str| ready.ignored_limits.iter().any(|ignored| ignored == limit);
    let ignored = names(&request.asked_limits).into_iter().filter(is_ignored);
    let is_new = |limit: &&str| cx.is_first_report(&format!("limit-{engine}-{limit}"));
    warnings.extend(ignored.filter(is_new).map(|limit| {
        let message = format!(
            "{engine} does not enforce the limit of {limit} here; this is reported once, and `limits.enforced` has those that it \
             enforces"
        );
        Warning::new("limit_not_enforced", message)
    }));
    let unkept = request.spec.limits.unenforced_by(ready.runtime.kind()).into_iter();
    // Those that are ignored altogether are told already.
    let rounded = unkept.filter(|it| it.capability != Some(Capability::PidsLimit));
    warnings.extend(rounded.map(|it| Warning::new("limit_rounded", it.message)));
    warnings
}
