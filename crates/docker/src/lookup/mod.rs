//! Queries of an engine: over its API where the socket answers, else by its program. Both give the same answers.

mod by_api;
mod by_program;
mod recent;
#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use coracle_engine_program::{EngineProgram, EngineSettings, deadline};
use coracle_runtime::{Container, EngineInfo, Image, LabelFilter, Network, Volume};
use coracle_types::{ContainerId, Error, Handle, Result};
use hyper::Method;

use self::by_api::ApiLookup;
use self::by_program::ProgramLookup;
use self::recent::RecentContainers;
use super::api::{ApiClient, ApiFault, ApiResult, ApiSocket, StorageProof, paths::Filters};
use super::dialect::Dialect;

/// An API that has not answered by then may never do so: the program is used as well, and the first answer counts.
const PROGRAM_AFTER: Duration = Duration::from_millis(500);

/// Reads of Docker and Podman.
#[derive(Debug)]
pub(super) struct EngineLookup {
    program: ProgramLookup,
    api: Option<Api>,
    recent: RecentContainers,
}

#[derive(Debug)]
struct Api {
    lookup: ApiLookup,
    client: ApiClient,
    storage: Option<StorageProof>,
}

impl Api {
    /// Whether it still answers, after a question that was not answered in time. A dead one is left alone for a while.
    async fn is_alive(&self) -> bool {
        let is_alive = self.client.is_alive().await;
        if !is_alive {
            self.client.report(&ApiFault::Slow);
        }
        is_alive
    }
}

impl EngineLookup {
    pub(super) fn new(dialect: Dialect, settings: &EngineSettings, client: EngineProgram) -> Self {
        let me = rustix::process::geteuid().as_raw();
        let api = ApiSocket::for_engine(dialect, settings, &client.address(), me).map(|socket| {
            let proof = || StorageProof::new(&socket.path, &settings.config_dir, &settings.home);
            let storage = socket.needs_storage_proof.then(proof);
            let client = ApiClient::new(socket);
            Api { lookup: ApiLookup::new(dialect, client.clone()), client, storage }
        });
        Self { program: ProgramLookup::new(dialect, client), api, recent: RecentContainers::default() }
    }

    /// Makes a change that may be made twice over Docker's API, which starts no program. `false` where the program has to
    /// make it, or to say what is wrong.
    pub(super) async fn change(&self, method: Method, path: &str, within: Duration) -> Result<bool> {
        let Some(api) = self.api.as_ref().filter(|_| self.program.dialect() == Dialect::Docker) else {
            return Ok(false);
        };
        if !self.may_ask(api).await {
            return Ok(false);
        }
        let verb = if method == Method::DELETE { "remove" } else { "start" };
        let changed = tokio::time::timeout(within, api.client.change(method, path)).await;
        let changed = changed.map_err(|_| Error::TimedOut { verb, after: within })?;
        Ok(changed.inspect_err(|fault| api.client.report(fault)).unwrap_or(false))
    }

    /// The program made this container, so the API has to know it.
    pub(super) fn note_created(&self, id: &ContainerId) {
        self.recent.note_changed(id, true);
        if let Some(storage) = self.api.as_ref().and_then(|it| it.storage.as_ref()) {
            storage.add_witness(id.as_str());
        }
    }

    /// The program changed this container.
    pub(super) fn note_changed(&self, id: &ContainerId) {
        self.recent.note_changed(id, false);
    }

    /// The program changed containers whose ids are unknown.
    pub(super) fn note_changes(&self) {
        self.recent.forget();
    }

    pub(super) async fn inspect_container(&self, handle: &Handle) -> Result<Container> {
        let found = self.either(|api| api.container(handle), self.program.container(handle)).await?;
        found.ok_or_else(|| Error::NoSuchContainer(handle.to_string()))
    }

    pub(super) async fn container_exists(&self, handle: &Handle) -> Result<bool> {
        let filters = Filters::handle(handle);
        let ids = self.either(|api| api.container_ids(&filters), self.program.ids_of(handle)).await?;
        Ok(!ids.is_empty())
    }

    pub(super) async fn list_containers(&self, filter: &LabelFilter) -> Result<Vec<Container>> {
        self.either(|api| api.containers(filter), self.program.containers(filter)).await
    }

    /// Their recent state.
    pub(super) async fn list_recent_containers(&self, filter: &LabelFilter) -> Result<Vec<Arc<Container>>> {
        let by_program = async { Ok(self.program.containers(filter).await?.into_iter().map(Arc::new).collect()) };
        self.either(|api| self.recent.list(api, filter), by_program).await
    }

    /// Host ports that a container shall have, whether it runs or not.
    pub(super) async fn wanted_ports(&self, id: &ContainerId) -> Result<Vec<u16>> {
        self.either(|api| api.wanted_ports(id), self.program.wanted_ports(id)).await
    }

    /// Bytes of a container's own layer, which the engine counts file by file.
    pub(super) async fn written_bytes(&self, id: &ContainerId) -> Result<Option<u64>> {
        match &self.api {
            // No second request: counting may take as long as its deadline.
            Some(api) if self.may_ask(api).await => {
                let (within, verb) = (deadline::SIZE, "inspect");
                let counted = tokio::time::timeout(within, api.lookup.written_bytes(id)).await;
                match counted.map_err(|_| Error::TimedOut { verb, after: within })? {
                    Ok(bytes) => Ok(bytes),
                    Err(fault) => {
                        api.client.report(&fault);
                        self.program.written_bytes(id).await
                    }
                }
            }
            _ => self.program.written_bytes(id).await,
        }
    }

    /// The local images of these names, without those that are missing.
    pub(super) async fn find_images(&self, names: &[String]) -> Result<Vec<Image>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        self.either(|api| api.images(names), self.program.images(names)).await
    }

    pub(super) async fn list_images(&self, filter: &LabelFilter) -> Result<Vec<Image>> {
        let mut found = self.either(|api| api.images_with(filter), self.program.images_with(filter)).await?;
        // Podman gives images that carry any of the labels.
        found.retain(|it| filter.admits(&it.labels));
        Ok(found)
    }

    /// The networks of these names or ids, without those that are missing.
    pub(super) async fn find_networks(&self, names: &[String]) -> Result<Vec<Network>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        self.either(|api| api.networks(names), self.program.networks(names)).await
    }

    pub(super) async fn list_networks(&self, filter: &LabelFilter) -> Result<Vec<Network>> {
        let mut found = self.either(|api| api.networks_with(filter), self.program.networks_with(filter)).await?;
        found.retain(|it| filter.admits(&it.labels));
        Ok(found)
    }

    /// The volumes of these names, without those that are missing.
    pub(super) async fn find_volumes(&self, names: &[String]) -> Result<Vec<Volume>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        self.either(|api| api.volumes(names), self.program.volumes(names)).await
    }

    pub(super) async fn list_volumes(&self, filter: &LabelFilter) -> Result<Vec<Volume>> {
        let mut found = self.either(|api| api.volumes_with(filter), self.program.volumes_with(filter)).await?;
        found.retain(|it| filter.admits(&it.labels));
        Ok(found)
    }

    pub(super) async fn info(&self) -> Result<EngineInfo> {
        let endpoint = self.program.endpoint();
        if self.program.dialect() == Dialect::Podman {
            // It starts several programs to answer, so the service is no faster.
            return self.program.info().await;
        }
        self.either(|api| api.info(endpoint), self.program.info()).await
    }

    /// The answer of the API, or of the program where the API has none.
    async fn either<'a, T, F>(
        &'a self,
        by_api: impl FnOnce(&'a ApiLookup) -> F,
        by_program: impl Future<Output = Result<T>>,
    ) -> Result<T>
    where
        F: Future<Output = ApiResult<T>>,
    {
        let Some(api) = &self.api else { return by_program.await };
        if !self.may_ask(api).await {
            return by_program.await;
        }
        let (mut by_api, mut by_program) = (pin!(by_api(&api.lookup)), pin!(by_program));
        let answer = match tokio::time::timeout(PROGRAM_AFTER, &mut by_api).await {
            Ok(answer) => answer,
            Err(_) => {
                tokio::select! {
                    answer = &mut by_api => answer,
                    answer = &mut by_program => {
                        return match (answer, api.is_alive().await) {
                            (Err(err), true) if !matches!(err, Error::TimedOut { .. }) => late(by_api).await.ok_or(err),
                            (answer, _) => answer,
                        };
                    }
                }
            }
        };
        match answer {
            Ok(found) => Ok(found),
            Err(fault) => {
                api.client.report(&fault);
                by_program.await
            }
        }
    }

    /// Whether the API can be used now, and answers for the containers that the program has.
    async fn may_ask(&self, api: &Api) -> bool {
        if !api.client.is_usable() {
            return false;
        }
        let Some(storage) = api.storage.as_ref().filter(|it| !it.holds()) else { return true };
        if !api.client.socket().path.exists() {
            return false;
        }
        match self.has_same_storage(api, storage).await {
            Ok(is_same) => is_same,
            Err(ApiFault::Slow) => {
                api.is_alive().await;
                false
            }
            Err(fault) => {
                api.client.report(&fault);
                false
            }
        }
    }

    /// Looks for a container that both know: an id is random, so that one is enough.
    async fn has_same_storage(&self, api: &Api, storage: &StorageProof) -> ApiResult<bool> {
        let is_same = match storage.witness() {
            Some(id) if in_time(api.lookup.knows_container(&id)).await? => true,
            Some(_) => {
                storage.drop_witness();
                false
            }
            None => false,
        };
        if is_same {
            storage.prove();
            return Ok(true);
        }
        if !storage.is_due() {
            return Ok(false);
        }
        let theirs = in_time(api.lookup.container_ids(&Filters::none())).await?;
        if theirs.is_empty() {
            return Ok(false);
        }
        let Ok(ours) = self.program.container_ids(&LabelFilter::default()).await else { return Ok(false) };
        if ours.is_empty() {
            return Ok(false);
        }
        if ours.iter().any(|it| theirs.contains(it)) {
            storage.prove();
            return Ok(true);
        }
        Err(ApiFault::OtherStorage)
    }
}

/// The answer of a slow API where the engine has no program that works.
async fn late<T>(by_api: impl Future<Output = ApiResult<T>>) -> Option<T> {
    tokio::time::timeout(deadline::READ, by_api).await.ok()?.ok()
}

async fn in_time<T>(by_api: impl Future<Output = ApiResult<T>>) -> ApiResult<T> {
    tokio::time::timeout(PROGRAM_AFTER, by_api).await.unwrap_or(Err(ApiFault::Slow))
}
