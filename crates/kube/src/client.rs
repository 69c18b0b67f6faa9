//! The connection to an API server: its address from a file or the current Pod, and a client without TCP delays.

use std::path::Path;

use coracle_types::{EngineKind, Error, Excerpt, Result};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use crate::settings::KubeSettings;

/// Timeout of a connection to the API server.
const CONNECT: std::time::Duration = std::time::Duration::from_secs(10);

/// Interval of TCP keepalives.
const KEEPALIVE: std::time::Duration = std::time::Duration::from_secs(15);

/// The address of a cluster, and the login.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// URL of the API server.
    pub(crate) server: String,
    /// Namespace of the Pods.
    pub(crate) namespace: String,
    login: Login,
}

#[derive(Clone, Debug)]
enum Login {
    /// A file's context.
    File { file: Box<Kubeconfig>, context: String },
    /// The service account of the current Pod.
    InCluster(Box<Config>),
}

impl Address {
    /// Reads the file without contacting the cluster.
    ///
    /// # Errors
    /// [`Error::Unavailable`], with what is wrong in the file.
    pub(crate) fn read(settings: &KubeSettings) -> Result<Self> {
        match &settings.kubeconfig {
            Some(path) => Self::of_file(path, settings),
            None => Self::in_cluster(settings),
        }
    }

    fn of_file(path: &Path, settings: &KubeSettings) -> Result<Self> {
        let wrong = |what: String| unavailable(&format!("`{}`: {what}", path.display()));
        let file = Kubeconfig::read_from(path).map_err(|err| wrong(err.to_string()))?;
        let name = settings.context.as_ref().or(file.current_context.as_ref());
        let name = name.ok_or_else(|| wrong("it names no current context".into()))?;
        let context = file.contexts.iter().find(|it| &it.name == name).and_then(|it| it.context.as_ref());
        let context = context.ok_or_else(|| wrong(format!("it has no context `{name}`")))?;
        let cluster = file.clusters.iter().find(|it| it.name == context.cluster).and_then(|it| it.cluster.as_ref());
        let server = cluster.and_then(|it| it.server.clone());
        let server = server.ok_or_else(|| wrong(format!("it has no address of the cluster `{}`", context.cluster)))?;
        let namespace = settings.namespace.clone().or_else(|| context.namespace.clone());
        Ok(Self {
            server: server.trim_end_matches('/').to_owned(),
            namespace: namespace.unwrap_or_else(|| "default".into()),
            login: Login::File { context: name.clone(), file: Box::new(file) },
        })
    }

    fn in_cluster(settings: &KubeSettings) -> Result<Self> {
        let missing = |_| unavailable("no kubeconfig file was found, and this process is in no Pod of a cluster");
        let config = Config::incluster().map_err(missing)?;
        Ok(Self {
            server: config.cluster_url.to_string().trim_end_matches('/').to_owned(),
            namespace: settings.namespace.clone().unwrap_or_else(|| config.default_namespace.clone()),
            login: Login::InCluster(Box::new(config)),
        })
    }

    /// Creates a client, which connects at the first request.
    pub(crate) async fn client(&self) -> Result<Client> {
        let config = match &self.login {
            Login::InCluster(config) => (**config).clone(),
            Login::File { file, context } => {
                let options = KubeConfigOptions { context: Some(context.clone()), cluster: None, user: None };
                let config = Config::from_custom_kubeconfig((**file).clone(), &options).await;
                config.map_err(|err| unavailable(&err.to_string()))?
            }
        };
        without_delay(&config).map_err(|err| unavailable(&err.to_string()))
    }
}

/// The library's own client does not set TCP_NODELAY: each request then waits 40 ms for an acknowledgement.
fn without_delay(config: &Config) -> kube::Result<Client> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    // A link may be silent for hours, so only keepalives notice a dead server.
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE));
    connector.set_keepalive_retries(Some(3));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

fn unavailable(why: &str) -> Error {
    Error::Unavailable { engine: EngineKind::Kubernetes, denied: false, excerpt: Excerpt::from_bytes(why.as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "apiVersion: v1
kind: Config
current-context: a
contexts:
- name: a
  context: {cluster: one, user: me}
- name: b
  context: {cluster: two, user: me, namespace: agents}
clusters:
- name: one
  cluster: {server: 'https://10.0.0.1:6443/'}
users:
- name: me
  user: {token: secret-token}
";

    fn read(context: Option<&str>, namespace: Option<&str>) -> Result<Address> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, FILE).unwrap();
        let (context, namespace) = (context.map(str::to_owned), namespace.map(str::to_owned));
        Address::read(&KubeSettings { kubeconfig: Some(file), context, namespace, ..KubeSettings::default() })
    }

    #[test]
    fn the_address_is_that_of_the_context() {
        let it = read(None, None).unwrap();
        assert_eq!((it.server.as_str(), it.namespace.as_str()), ("https://10.0.0.1:6443", "default"));
        assert_eq!(read(Some("a"), Some("mine")).unwrap().namespace, "mine");
    }

    #[test]
    fn a_missing_entry_in_the_file_is_reported() {
        let why = |it: Result<Address>| it.unwrap_err().to_string();
        assert!(why(read(Some("c"), None)).contains("no context `c`"));
        assert!(why(read(Some("b"), None)).contains("cluster `two`"));
        let missing = KubeSettings { kubeconfig: Some("/none".into()), ..KubeSettings::default() };
        assert!(why(Address::read(&missing)).contains("/none"));
    }
}
