//! Reads over the engine's API.

use std::future::ready;

use coracle_runtime::{Container, EngineInfo, Image, LabelFilter, Network, Volume};
use coracle_types::{ContainerId, Handle};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use hyper::body::Bytes;

use super::super::api::paths::{self, Filters, Object};
use super::super::api::{ApiClient, ApiFault, ApiResult, EventStream};
use super::super::dialect::Dialect;
use super::super::read;

/// Objects that are inspected side by side, each over a connection of its own: engines answer no faster to more.
const SIDE_BY_SIDE: usize = 4;

#[derive(Debug)]
pub(super) struct ApiLookup {
    dialect: Dialect,
    client: ApiClient,
}

impl ApiLookup {
    pub(super) fn new(dialect: Dialect, client: ApiClient) -> Self {
        Self { dialect, client }
    }

    pub(super) async fn container(&self, handle: &Handle) -> ApiResult<Option<Container>> {
        let path = paths::inspect(self.dialect, Object::Container, handle.as_str())?;
        match self.client.get(&path).await? {
            Some(json) => Ok(read::container_of(handle, &array(&[json]))?),
            // One that is just removed is listed for a moment longer than it can be inspected.
            None if self.container_ids(&Filters::handle(handle)).await?.is_empty() => Ok(None),
            None => Err(ApiFault::Contradiction),
        }
    }

    pub(super) async fn knows_container(&self, id: &str) -> ApiResult<bool> {
        let path = paths::inspect(self.dialect, Object::Container, id)?;
        Ok(self.client.get(&path).await?.is_some())
    }

    pub(super) async fn container_ids(&self, filters: &Filters) -> ApiResult<Vec<String>> {
        Ok(read::listed_ids(&self.list(Object::Container, filters).await?)?)
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(super) async fn events(&self) -> ApiResult<EventStream> {
        self.client.events(&paths::events(self.dialect)).await
    }

    pub(super) async fn ping(&self) -> ApiResult<()> {
        self.client.get(paths::ping()).await?.map(drop).ok_or(ApiFault::Contradiction)
    }

    pub(super) async fn containers(&self, filter: &LabelFilter) -> ApiResult<Vec<Container>> {
        self.containers_of(&self.container_ids(&Filters::labels(filter)).await?).await
    }

    /// The containers of these ids that are there.
    pub(super) async fn containers_of(&self, ids: &[String]) -> ApiResult<Vec<Container>> {
        Ok(read::containers(&self.inspect(Object::Container, ids).await?)?)
    }

    pub(super) async fn wanted_ports(&self, id: &ContainerId) -> ApiResult<Vec<u16>> {
        Ok(read::wanted_ports(&self.inspect(Object::Container, &[id.to_string()]).await?)?)
    }

    pub(super) async fn written_bytes(&self, id: &ContainerId) -> ApiResult<Option<u64>> {
        let json = self.client.get(&paths::inspect_with_size(self.dialect, id.as_str())?).await?;
        Ok(read::written_bytes(&array(json.as_slice()))?)
    }

    pub(super) async fn images(&self, names: &[String]) -> ApiResult<Vec<Image>> {
        Ok(read::images(&self.inspect(Object::Image, names).await?)?)
    }

    pub(super) async fn images_with(&self, filter: &LabelFilter) -> ApiResult<Vec<Image>> {
        let mut ids = read::listed_ids(&self.list(Object::Image, &Filters::first_label(filter)).await?)?;
        ids.sort();
        ids.dedup();
        self.images(&ids).await
    }

    pub(super) async fn networks(&self, names: &[String]) -> ApiResult<Vec<Network>> {
        Ok(read::networks(&self.inspect(Object::Network, names).await?)?)
    }

    /// Their list is as complete as an inspection.
    pub(super) async fn networks_with(&self, filter: &LabelFilter) -> ApiResult<Vec<Network>> {
        Ok(read::networks(&self.list(Object::Network, &Filters::first_label(filter)).await?)?)
    }

    pub(super) async fn volumes(&self, names: &[String]) -> ApiResult<Vec<Volume>> {
        Ok(read::volumes(&self.inspect(Object::Volume, names).await?)?)
    }

    /// Their list is as complete as an inspection.
    pub(super) async fn volumes_with(&self, filter: &LabelFilter) -> ApiResult<Vec<Volume>> {
        let json = self.list(Object::Volume, &Filters::first_label(filter)).await?;
        Ok(read::listed_volumes(self.dialect, &json)?)
    }

    pub(super) async fn info(&self, endpoint: &str) -> ApiResult<EngineInfo> {
        let json = self.client.get(paths::INFO).await?.ok_or(ApiFault::Contradiction)?;
        Ok(read::info(self.dialect, &json, endpoint)?)
    }

    async fn list(&self, object: Object, filters: &Filters) -> ApiResult<Bytes> {
        self.client.get(&paths::list(self.dialect, object, filters)).await?.ok_or(ApiFault::Contradiction)
    }

    /// An array of what exists, in the order of the requests.
    async fn inspect(&self, object: Object, names: &[String]) -> ApiResult<Vec<u8>> {
        let paths: Vec<_> =
            names.iter().map(|it| paths::inspect(self.dialect, object, it)).collect::<ApiResult<_>>()?;
        let requests = stream::iter(paths).map(|path| async move { self.client.get(&path).await });
        let found: Vec<Bytes> =
            requests.buffered(SIDE_BY_SIDE).try_filter_map(|it| ready(Ok(it))).try_collect().await?;
        Ok(array(&found))
    }
}

/// The program's format for several objects.
fn array(objects: &[Bytes]) -> Vec<u8> {
    let mut json = Vec::with_capacity(objects.iter().map(|it| it.len() + 1).sum::<usize>() + 1);
    json.push(b'[');
    for (at, object) in objects.iter().enumerate() {
        if at > 0 {
            json.push(b',');
        }
        json.extend_from_slice(object);
    }
    json.push(b']');
    json
}
