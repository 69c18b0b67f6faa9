//! The cluster of `engine = "kubernetes"`, where this program is built for it.

use std::sync::Arc;

use coracle_runtime::ContainerRuntime;
use coracle_types::Error;

use crate::config::Config;
use crate::host::Host;

/// What was found in a cluster.
#[derive(Debug)]
pub struct ClusterFacts {
    /// The namespace of the containers.
    pub namespace: String,
    /// Whether it exists; unset where the account may not see that.
    pub namespace_exists: Option<bool>,
    /// Rights that are missing there, as `verb resource`.
    pub missing_rights: Vec<String>,
    /// Pods of the warm pool that are ready, or why it cannot be used; unset without such a pool.
    pub warm_pool: Option<std::result::Result<u32, String>>,
}

/// The cluster that the configuration names. Asks it nothing.
///
/// # Errors
/// [`Error::NotBuiltIn`] without the feature `kubernetes`; [`Error::Unavailable`] when its file cannot be read.
#[cfg(feature = "kubernetes")]
pub(super) fn open(host: &Host, config: &Config) -> Result<Arc<dyn ContainerRuntime>, Error> {
    let cluster = coracle_kube::KubeRuntime::open(settings(host, config))?;
    Ok(coracle_runtime::ObservedRuntime::with_spans(cluster))
}

/// Looks at the cluster: its namespace, and what the account may do there.
///
/// # Errors
/// As [`open`], and when it does not answer.
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

/// The cluster that a record names.
///
/// # Errors
/// As [`open`], and [`Error::Unavailable`] when the configuration names another one.
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
    // `kubectl` merges several files; the first one has the current context.
    let by_variable =
        by_variable.and_then(|it| it.split(':').find(|it| !it.is_empty()).map(|it| host.path(it.as_ref())));
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
