//! Checks the permissions of an account on a cluster.

use coracle_runtime::EngineInfo;
use coracle_types::{Error, Result};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;

use crate::cluster::Cluster;
use crate::error::api_error;
use crate::info::info;
use crate::retry::{READ, retry};
use crate::warm_pool::{AGENTS, EXTENSIONS, check_pool};

/// Verbs, group, resource and subresource that the engine needs.
const RIGHTS: [Right; 11] = [
    Right::pods("create", ""),
    Right::pods("get", ""),
    Right::pods("list", ""),
    Right::pods("watch", ""),
    Right::pods("patch", ""),
    Right::pods("delete", ""),
    Right::pods("create", "exec"),
    Right::pods("create", "attach"),
    Right { verb: "get", group: "networking.k8s.io", resource: "networkpolicies", subresource: "" },
    Right { verb: "create", group: "networking.k8s.io", resource: "networkpolicies", subresource: "" },
    Right { verb: "get", group: "", resource: "pods", subresource: "log" },
];

/// Permissions for a warm pool.
const POOL_RIGHTS: [Right; 9] = [
    Right::extension("get", "sandboxwarmpools"),
    Right::extension("get", "sandboxtemplates"),
    Right::extension("create", "sandboxclaims"),
    Right::extension("get", "sandboxclaims"),
    Right::extension("list", "sandboxclaims"),
    Right::extension("watch", "sandboxclaims"),
    Right::extension("patch", "sandboxclaims"),
    Right::extension("delete", "sandboxclaims"),
    Right { verb: "get", group: AGENTS, resource: "sandboxes", subresource: "" },
];

#[derive(Clone, Copy)]
struct Right {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
}

impl Right {
    const fn pods(verb: &'static str, subresource: &'static str) -> Self {
        Self { verb, group: "", resource: "pods", subresource }
    }

    const fn extension(verb: &'static str, resource: &'static str) -> Self {
        Self { verb, group: EXTENSIONS, resource, subresource: "" }
    }
}

/// The state of a cluster.
#[derive(Clone, Debug)]
pub struct KubePreflight {
    /// What it tells of itself.
    pub info: EngineInfo,
    /// The namespace of the Pods.
    pub namespace: String,
    /// Whether it exists; unset if the account may not read that.
    pub namespace_exists: Option<bool>,
    /// Missing permissions.
    pub missing_rights: Vec<MissingRight>,
    /// The configured warm pool, if there is one.
    pub warm_pool: Option<PoolReadiness>,
}

/// Whether a warm pool can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolReadiness {
    /// That number of its Pods is ready.
    Usable(u32),
    /// It cannot be used, with the reason.
    Unusable(String),
}

/// A missing permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRight {
    /// The verb.
    pub verb: String,
    /// The resource, with its subresource behind a `/`.
    pub resource: String,
}

pub(crate) async fn preflight(cluster: &Cluster) -> Result<KubePreflight> {
    let info = info(cluster).await?;
    let mut missing_rights = Vec::new();
    let pool = cluster.settings.warm_pool.as_deref();
    let of_pool = POOL_RIGHTS.iter().filter(|_| pool.is_some());
    for right in RIGHTS.iter().chain(of_pool).copied() {
        if !is_allowed(cluster, right).await? {
            let below = if right.subresource.is_empty() { String::new() } else { format!("/{}", right.subresource) };
            let resource = format!("{}{below}", right.resource);
            missing_rights.push(MissingRight { verb: right.verb.to_owned(), resource });
        }
    }
    let namespace = cluster.namespace().to_owned();
    let warm_pool = match pool {
        Some(pool) => Some(readiness(cluster, pool).await?),
        None => None,
    };
    let namespace_exists = namespace_exists(cluster).await?;
    Ok(KubePreflight { info, namespace, namespace_exists, missing_rights, warm_pool })
}

async fn readiness(cluster: &Cluster, pool: &str) -> Result<PoolReadiness> {
    match check_pool(cluster, pool).await {
        Ok(ready) => Ok(PoolReadiness::Usable(ready)),
        Err(err @ (Error::WarmPool { .. } | Error::Forbidden { .. })) => Ok(PoolReadiness::Unusable(err.to_string())),
        Err(err) => Err(err),
    }
}

/// Asks about the account's own permission, which every account may do.
async fn is_allowed(cluster: &Cluster, right: Right) -> Result<bool> {
    let text = |it: &str| Some(it.to_owned()).filter(|it| !it.is_empty());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: text(cluster.namespace()),
                verb: text(right.verb),
                group: text(right.group),
                resource: text(right.resource),
                subresource: text(right.subresource),
                ..ResourceAttributes::default()
            }),
            non_resource_attributes: None,
        },
        ..SelfSubjectAccessReview::default()
    };
    let (reviews, params) = (Api::all(cluster.client().await?), PostParams::default());
    let answer = retry("preflight", READ, || reviews.create(&params, &review)).await?;
    let answer: SelfSubjectAccessReview = answer.map_err(|err| api_error("preflight", err))?;
    Ok(answer.status.is_some_and(|it| it.allowed))
}

async fn namespace_exists(cluster: &Cluster) -> Result<Option<bool>> {
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(cluster.client().await?);
    match retry("preflight", READ, || namespaces.get_opt(cluster.namespace())).await? {
        Ok(found) => Ok(Some(found.is_some())),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(err) => Err(api_error("preflight", err)),
    }
}
