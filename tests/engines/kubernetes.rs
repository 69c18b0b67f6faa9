//! Pods: of a cluster that a server of the tests simulates with containers of the embedded engine; or with
//! `CORACLE_KUBECONFIG` of a real one.
//!
//! A real one needs a registry, `CORACLE_KUBE_REGISTRY` (`127.0.0.1:15000` if unset), and the namespace
//! `CORACLE_KUBE_NAMESPACE` (`coracle-tests` if unset).

use std::path::PathBuf;
use std::sync::Arc;

use coracle_kube::{KubeRuntime, KubeSettings};
use coracle_kube_api::{Backing, ClusterOptions, KubeApi};
use coracle_runtime::{ContainerRuntime, ImageImport, ImageStore};
use coracle_types::{ImageId, ImageRef};
use sha2::{Digest, Sha256};
use tar::EntryType;
use tempfile::TempDir;

use super::{IMAGE, busybox, embedded, person, running, variable};

/// Its name among the engines.
pub(super) const KUBERNETES: &str = "kubernetes";

/// The cluster of one case.
#[derive(Debug)]
pub(crate) struct KubeCluster {
    /// Unset for a real one.
    api: Option<KubeApi>,
    kubeconfig: PathBuf,
    namespace: String,
    registry: String,
    _dir: TempDir,
}

impl KubeCluster {
    /// The cluster: a simulated one, unless a real one is named.
    pub(super) async fn open() -> Result<Self, String> {
        match variable("CORACLE_KUBECONFIG").filter(|it| !it.is_empty()) {
            Some(kubeconfig) => Ok(Self {
                api: None,
                kubeconfig: PathBuf::from(kubeconfig),
                namespace: variable("CORACLE_KUBE_NAMESPACE").unwrap_or_else(|| "coracle-tests".into()),
                registry: variable("CORACLE_KUBE_REGISTRY").unwrap_or_else(|| "127.0.0.1:15000".into()),
                _dir: tempfile::tempdir().unwrap(),
            }),
            None => Self::play(ClusterOptions::default()).await,
        }
    }

    /// A simulated cluster.
    pub(crate) async fn play(options: ClusterOptions) -> Result<Self, String> {
        if !person::is_root() {
            return Err("the played cluster needs root".into());
        }
        let runtime: Arc<dyn ContainerRuntime> = Arc::new(embedded::open()?);
        busybox::ensure(&*runtime).await.map_err(|err| err.to_string())?;
        let backing = Backing::new(runtime, Arc::new(embedded::open_without_guest()?));
        let api = KubeApi::start(options, backing).map_err(|err| err.to_string())?;
        let dir = tempfile::tempdir().unwrap();
        let (kubeconfig, namespace) = (dir.path().join("kubeconfig"), "coracle".to_owned());
        std::fs::write(&kubeconfig, api.kubeconfig(&namespace).to_string()).unwrap();
        Ok(Self { kubeconfig, namespace, registry: api.registry(), api: Some(api), _dir: dir })
    }

    /// The server, if the cluster is simulated.
    pub(crate) fn api(&self) -> Option<&KubeApi> {
        self.api.as_ref()
    }

    /// Our engine on it.
    pub(crate) fn connect(&self) -> Result<KubeRuntime, String> {
        let settings = KubeSettings {
            kubeconfig: Some(self.kubeconfig.clone()),
            namespace: Some(self.namespace.clone()),
            registry: Some(self.registry.clone()),
            insecure_registries: vec![self.registry.clone()],
            ..KubeSettings::default()
        };
        KubeRuntime::open(settings).map_err(|err| format!("CORACLE_ENGINES names kubernetes: {err}"))
    }

    /// A text with the image of most tests by its name in the cluster's registry.
    pub(crate) fn with_image(&self, text: &str) -> String {
        text.replace("localhost/coracle-test-", &format!("{}/coracle-test-", self.registry))
    }

    /// The id of that image. A real cluster's registry gets it the first time.
    pub(super) async fn image(&self, runtime: &dyn ContainerRuntime) -> coracle_types::Result<ImageId> {
        let found = runtime.find_images(&[ImageRef::parse(self.with_image(IMAGE)).unwrap()]).await?;
        if let Some(image) = found.into_iter().next() {
            return Ok(image.id);
        }
        let here = embedded::open().unwrap_or_else(|err| panic!("{err}"));
        let archive = tempfile::tempfile().unwrap();
        here.save_image(&busybox::ensure(&here).await?, archive.try_clone().unwrap()).await?;
        let name = ImageRef::parse(IMAGE.trim_start_matches("localhost/")).unwrap();
        Ok(runtime.load_image(archive, &name).await?.id)
    }

    /// An image of the simulated cluster that has the guest at `/coracle-guest`.
    pub(crate) async fn guest_image(&self) -> String {
        let guest = std::fs::read(running::guest_program()).unwrap();
        let name = format!("localhost/coracle-test-guest:{}", &hex::encode(Sha256::digest(&guest))[..12]);
        let runtime = embedded::open().unwrap();
        let tag = ImageRef::parse(&name).unwrap();
        let tar = busybox::busybox_with("root:x:0:0:root:/root:/bin/sh\n", |tar| {
            busybox::append(tar, EntryType::Regular, 0o755, "coracle-guest", &guest);
        });
        let env = vec![("PATH".to_owned(), "/bin".to_owned())];
        runtime.import_image(ImageImport { tar, tag, env, labels: vec![] }).await.unwrap();
        self.with_image(&name)
    }

    /// Lines of a configuration of `coracle` that name it.
    pub(crate) fn config(&self) -> String {
        format!(
            "[kubernetes]\nkubeconfig = \"{}\"\nnamespace = \"{}\"\nregistry = \"{}\"\ninsecure_registries = [\"{}\"]\n",
            self.kubeconfig.display(),
            self.namespace,
            self.registry,
            self.registry
        )
    }
}
