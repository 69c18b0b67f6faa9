//! The cluster of `engine = "kubernetes"`, if this program is built for it.

use std::sync::Arc;

use coracle_runtime::ContainerRuntime;
use coracle_types::Error;

use crate::config::Config;
use crate::host::Host;

/// The state of a cluster.
#[derive(Debug)]
pub struct ClusterFacts {
    /// The namespace of the containers.
    pub namespace: String,
    /// Whether it exists; unset if the account may not read that.
    pub namespace_exists: Option<bool>,
    /// Missing permissions, as `verb resource`.
    pub missing_rights: Vec<String>,
    /// Number of ready Pods in the warm pool, or why it cannot be used; unset without a pool.
    pub warm_pool: Option<std::result::Result<u32, String>>,
}

/// Opens the configured cluster without contacting it.
///
/// # Errors
/// [`Error::NotBuiltIn`] without the feature `kubernetes`; [`Error::Unavailable`] if its file cannot be read.
#[cfg(feature = "kubernetes")]
pub(super) fn open(host: &Host, config: &Config) -> Result<Arc<dyn ContainerRuntime>, Error> {
    let cluster = coracle_kube::KubeRuntime::open(settings(host, config))?;
    Ok(coracle_runtime::ObservedRuntime::with_spans(cluster))
}

/// Inspects the cluster: its namespace, and the permissions of the account.
///
/// # Errors
/// Those of [`open`], and if it does not answer.
#[cfg(feature = "kubernetes")]
pub(super) async fn inspect(host: &Host, config: &Config) -> Result<ClusterFacts, Error> {
    let found = coracle_kube::KubeRuntime::open(settings(host, config))?.preflight().await?;
    let missing = found.missing_rights.into_iter().map(|it| format!("{} {}", it.verb, it.resource));
    Ok(ClusterFacts {
        namespace: found.namespace,
        namespace_exists: found.namespace_exists,
        missing_rights: missing.collect(),
        warm_pool: found.warm_pool.map(|it| match it {
            coracle_kube::PoolReadiness::Usable(ready) => Ok(ready),
            coracle_kube::PoolReadiness::Unusable(why) => Err(why),
        }),
    })
}

#[cfg(not(feature = "kubernetes"))]
pub(super) async fn inspect(host: &Host, config: &Config) -> Result<ClusterFacts, Error> {
    Err(open(host, config).err().unwrap_or(Error::NotBuiltIn { engine: coracle_types::EngineKind::Kubernetes }))
}

/// Opens the cluster of a record.
///
/// # Errors
/// Those of [`open`], and [`Error::Unavailable`] if another one is configured.
#[cfg(feature = "kubernetes")]
pub(super) fn open_recorded(host: &Host, config: &Config, endpoint: &str) -> Result<Arc<dyn ContainerRuntime>, Error> {
    use coracle_types::{EngineKind, Excerpt};

    let runtime = open(host, config)?;
    let configured = runtime.endpoint().address;
    if configured == endpoint {
        return Ok(runtime);
    }
    let excerpt = format!("the container is at `{endpoint}`, and the configuration names `{configured}`");
    let excerpt = Excerpt::from_bytes(excerpt.as_bytes());
    Err(Error::Unavailable { engine: EngineKind::Kubernetes, denied: false, excerpt })
}

#[cfg(feature = "kubernetes")]
fn settings(host: &Host, config: &Config) -> coracle_kube::KubeSettings {
    use coracle_host::registry_login::LoginFiles;
    use coracle_kube::KubeToleration;

    let kubernetes = &config.kubernetes;
    let by_variable = host.env.get("KUBECONFIG").map(|it| String::from_utf8_lossy(it.reveal()).into_owned());
    // `kubectl` merges several files; the first one sets the current context.
    let by_variable = by_variable
        .and_then(|paths| paths.split(':').find(|path| !path.is_empty()).map(|path| host.path(path.as_ref())));
    let usual = || Some(host.home.join(".kube/config")).filter(|it| it.exists());
    let toleration = |it: &crate::config::Toleration| KubeToleration {
        key: it.key.clone(),
        value: it.value.clone(),
        effect: it.effect.map(|it| format!("{it:?}")),
    };
    coracle_kube::KubeSettings {
        kubeconfig: kubernetes.kubeconfig.as_ref().map(|it| host.path(it)).or(by_variable).or_else(usual),
        context: kubernetes.context.clone(),
        namespace: kubernetes.namespace.clone(),
        registry: kubernetes.registry.clone(),
        logins: LoginFiles::new(&host.home, super::logins::login_options(host)),
        insecure_registries: kubernetes.insecure_registries.clone(),
        guest_image: kubernetes.guest_image.clone(),
        warm_pool: kubernetes.warm_pool.clone(),
        max_lifetime: kubernetes.max_lifetime.unless_zero(),
        runtime_class: kubernetes.runtime_class.clone(),
        image_pull_secret: kubernetes.image_pull_secret.clone(),
        node_selector: kubernetes.node_selector.clone(),
        tolerations: kubernetes.tolerations.iter().map(toleration).collect(),
    }
}

#[cfg(not(feature = "kubernetes"))]
pub(super) fn open(_: &Host, _: &Config) -> Result<Arc<dyn ContainerRuntime>, Error> {
    Err(Error::NotBuiltIn { engine: coracle_types::EngineKind::Kubernetes })
}

#[cfg(not(feature = "kubernetes"))]
pub(super) fn open_recorded(host: &Host, config: &Config, _: &str) -> Result<Arc<dyn ContainerRuntime>, Error> {
    open(host, config)
}
