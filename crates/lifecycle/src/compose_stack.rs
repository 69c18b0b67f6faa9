//! Stacks of managed containers: their owners, how their services are addressed, and their removal.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_runtime::{Container, ContainerRuntime, Image, LabelFilter, PolicyRefusal, Problem};
use coracle_types::{ContainerId, ContainerName, ContainerPath, EngineKind, Ids, ProjectName, RecordId, random_hex};

use crate::clock::now;
use crate::error::one_or_several;
use crate::record::{Record, Role};
use crate::{Error, Result, Store};

/// The label that Compose tells its projects apart by.
const PROJECT: &str = "com.docker.compose.project";

/// What of a stack gets labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackPart {
    /// A service: its containers.
    Service,
    /// A network.
    Network,
    /// A volume.
    Volume,
}

/// What the labels of a part of a stack are made from.
#[derive(Clone, Copy, Debug)]
pub struct StackLabels<'a> {
    /// The engine that gets them.
    pub engine: EngineKind,
    /// The session that the stack belongs to.
    pub session: &'a str,
    /// Its kind.
    pub part: StackPart,
    /// Its name in the file.
    pub name: &'a str,
    /// The labels of a service's image.
    pub of_image: &'a BTreeMap<String, String>,
}

impl Store {
    /// Labels that prove that a part of a stack is Coracle's. A container inherits the labels of its image, so the
    /// signature also covers Coracle's labels of the image.
    #[must_use]
    pub fn stack_labels(&self, project: &ProjectName, part: &StackLabels<'_>) -> BTreeMap<String, String> {
        let StackLabels { engine, session, part, name, of_image } = *part;
        let signer = self.signer();
        let prefix = signer.key("");
        let mut labels: BTreeMap<_, _> = of_image.clone().into_iter().filter(|it| it.0.starts_with(&prefix)).collect();
        let own = [
            ("managed", "true"),
            ("id", &random_hex::<16>()),
            ("created", &now().to_string()),
            ("session", session),
            ("compose_project", project.as_str()),
            ("name", &format!("{project}-{name}")),
            match part {
                StackPart::Service => ("role", Role::Service.as_str()),
                StackPart::Network | StackPart::Volume => ("kind", "stack"),
            },
        ];
        labels.extend(own.map(|(key, value)| (signer.key(key), value.to_owned())));
        signer.sign(engine, &mut labels);
        labels
    }

    /// Refuses an image that has our labels without our signature: it imitates a managed one.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) under the rule `image`.
    pub fn trust_labels(&self, engine: EngineKind, image: &Image) -> Result<()> {
        let prefix = self.signer().key("");
        if !image.labels.keys().any(|it| it.starts_with(&prefix)) || self.signed(engine, &image.labels) {
            return Ok(());
        }
        let value = image.id.to_string();
        let message = format!("the image carries labels of `{prefix}` that are not signed by this coracle");
        Err(PolicyRefusal { problems: vec![Problem { rule: "image", setting: None, value, message }] }.into())
    }

    /// Whether labels prove that a part of that stack is Coracle's.
    #[must_use]
    pub fn is_of_stack(&self, engine: EngineKind, project: &ProjectName, labels: &BTreeMap<String, String>) -> bool {
        let label = labels.get(&self.signer().key("compose_project"));
        label.is_some_and(|it| it == project.as_str()) && self.signed(engine, labels)
    }

    /// The record of the container that a stack was made with.
    ///
    /// # Errors
    /// When records cannot be read.
    pub fn stack_owner(&self, project: &ProjectName) -> Result<Option<Record>> {
        let owns = |it: &Arc<Record>| it.compose_project.as_ref() == Some(project) && !it.compose_joined;
        Ok(self.records()?.into_iter().find(owns).map(Arc::unwrap_or_clone))
    }

    /// Names of containers that joined that stack.
    ///
    /// # Errors
    /// When records cannot be read.
    pub fn joined(&self, project: &ProjectName) -> Result<Vec<String>> {
        let joined = |it: &Arc<Record>| it.compose_project.as_ref() == Some(project) && it.compose_joined;
        Ok(self.records()?.into_iter().filter(joined).map(|it| it.name.to_string()).collect())
    }
}

/// Describes a service as a record, so that it can be used like a container: in the session of the container that owns
/// its stack, without a guest. `None` if its labels do not prove it.
pub(crate) fn service(store: &Store, runtime: &dyn ContainerRuntime, it: &Container) -> Result<Option<Record>> {
    let label = |name: &str| it.labels.get(&store.signer().key(name)).map(String::as_str);
    let project = label("compose_project").and_then(|it| ProjectName::parse(it).ok());
    let Some(project) = project.filter(|_| label("role") == Some(Role::Service.as_str())) else { return Ok(None) };
    if !store.is_of_stack(runtime.kind(), &project, &it.labels) {
        return Ok(None);
    }
    let (Some(owner), Ok(name)) = (store.stack_owner(&project)?, ContainerName::parse(&it.name)) else {
        return Ok(None);
    };
    let record_id = label("id").and_then(|it| RecordId::parse(it).ok()).unwrap_or_else(RecordId::random);
    let workdir = ContainerPath::parse(&it.workdir).unwrap_or_else(|_| ContainerPath::root());
    Ok(Some(Record {
        name,
        container_id: Some(it.id.short().to_owned()),
        id: Some(it.id.clone()),
        record_id,
        role: Role::Service,
        image: it.image.to_string(),
        image_id: Some(it.image.clone()),
        purpose: None,
        mounts: Vec::new(),
        mount_cwd: false,
        ports: it.ports.clone(),
        workdir,
        home: None,
        user_name: Some(it.user.clone()),
        shell: None,
        exec_user: numbers(&it.user),
        env_keys: Vec::new(),
        env_plain: BTreeMap::new(),
        guest: None,
        main: None,
        jobs: Vec::new(),
        networks: Vec::new(),
        placeholders: Vec::new(),
        watched: Vec::new(),
        swept: Vec::new(),
        snapshot: None,
        ..owner
    }))
}

/// The user of an image, if it is numeric. Names are resolved inside the container.
pub(crate) fn numbers(user: &str) -> Option<Ids> {
    match user {
        "" | "root" | "0" => Some(Ids::ROOT),
        _ => Ids::parse(user).ok(),
    }
}

/// Removes a stack that was created with a container. Compose removes it first, since it gives services time to end;
/// then the rest is removed by id. Removes only what is provably Coracle's. Returns whether there was anything to
/// remove.
pub(crate) async fn remove_stack(runtime: &dyn ContainerRuntime, store: &Store, project: &ProjectName) -> Result<bool> {
    let there = Parts::inspect(runtime, store, project).await?;
    if there.is_empty() {
        store.remove_secret_files(project);
        return Ok(false);
    }
    if !there.strangers {
        // What it does not get done, or cannot without its program, is done below.
        if let Err(err) = runtime.stack_down(project).await {
            tracing::warn!(%project, %err, "compose did not take the stack down");
        }
    }
    let left = Parts::inspect(runtime, store, project).await?;
    let mut failed = Vec::new();
    for id in &left.containers {
        failed.extend(runtime.remove(id).await.err());
    }
    for id in left.networks {
        failed.extend(runtime.remove_network(&id).await.err());
    }
    for name in left.volumes {
        failed.extend(runtime.remove_volume(&name).await.err());
    }
    match failed.is_empty() {
        true => {
            store.remove_secret_files(project);
            Ok(true)
        }
        false => Err(one_or_several(failed.into_iter().map(Error::from).collect())),
    }
}

/// The existing parts of one of Coracle's stacks.
struct Parts {
    containers: Vec<ContainerId>,
    networks: Vec<String>,
    volumes: Vec<String>,
    /// Whether a foreign object has the project's name too.
    strangers: bool,
}

impl Parts {
    async fn inspect(runtime: &dyn ContainerRuntime, store: &Store, project: &ProjectName) -> Result<Self> {
        let filter = LabelFilter(vec![(PROJECT.to_owned(), Some(project.to_string()))]);
        let containers = runtime.list(&filter).await?;
        let networks = runtime.list_networks(&filter).await?;
        let volumes = runtime.list_volumes(&filter).await?;
        let ours = |labels: &BTreeMap<String, String>| store.is_of_stack(runtime.kind(), project, labels);
        let strangers = !containers.iter().all(|it| ours(&it.labels))
            || !networks.iter().all(|it| ours(&it.labels))
            || !volumes.iter().all(|it| ours(&it.labels));
        Ok(Self {
            containers: containers.into_iter().filter(|it| ours(&it.labels)).map(|it| it.id).collect(),
            networks: networks.into_iter().filter(|it| ours(&it.labels)).map(|it| it.id).collect(),
            volumes: volumes.into_iter().filter(|it| ours(&it.labels)).map(|it| it.name).collect(),
            strangers,
        })
    }

    fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.networks.is_empty() && self.volumes.is_empty()
    }
}
