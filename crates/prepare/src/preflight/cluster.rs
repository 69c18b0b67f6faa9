//! Checks of a cluster: its namespace, and the account's permissions there.

use coracle_context::context::Context;
use coracle_context::engines::ClusterFacts;
use coracle_runtime::EngineInfo;
use coracle_types::EngineKind;

use super::checks::{Check, Status};

/// Runs the checks. Empty for another engine.
pub(super) async fn checks(cx: &Context, engine: Option<&EngineInfo>) -> Vec<Check> {
    if engine.is_none_or(|it| it.kind != EngineKind::Kubernetes) {
        return Vec::new();
    }
    match cx.engines().inspect_cluster().await {
        Ok(found) => {
            let enforcement = "the cluster takes policies; whether its network enforces them cannot be seen from here";
            let mut checks = vec![
                namespace(&found),
                rights(&found.missing_rights),
                Check::new("network_policy", Status::Info, enforcement),
            ];
            checks.extend(found.warm_pool.map(warm_pool));
            checks
        }
        Err(err) => vec![Check::new("rights", Status::Fail, err.to_string())],
    }
}

fn namespace(found: &ClusterFacts) -> Check {
    let name = &found.namespace;
    match found.namespace_exists {
        Some(true) => Check::new("namespace", Status::Pass, format!("`{name}` exists")),
        None => Check::new("namespace", Status::Info, format!("this account may not look whether `{name}` exists")),
        Some(false) => Check::new("namespace", Status::Fail, format!("there is no namespace `{name}`"))
            .with_guidance(format!("create it with `kubectl create namespace {name}`, or set `kubernetes.namespace`")),
    }
}

fn rights(missing: &[String]) -> Check {
    if missing.is_empty() {
        return Check::new("rights", Status::Pass, "this account may do all that is needed");
    }
    Check::new("rights", Status::Fail, format!("this account may not: {}", missing.join(", ")))
        .with_guidance("docs/kubernetes.md has the Role that grants these rights")
}

fn warm_pool(found: Result<u32, String>) -> Check {
    match found {
        Ok(ready) => Check::new("warm_pool", Status::Pass, format!("{ready} of its Pods are ready")),
        Err(why) => Check::new("warm_pool", Status::Fail, why)
            .with_guidance("docs/kubernetes.md says what a pool needs; or leave `kubernetes.warm_pool` out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_permission_fails_by_name() {
        let found = |exists, missing: &[&str]| ClusterFacts {
            namespace: "agents".into(),
            namespace_exists: exists,
            missing_rights: missing.iter().map(|it| (*it).to_owned()).collect(),
            warm_pool: None,
        };
        assert_eq!(namespace(&found(Some(true), &[])).status, Status::Pass);
        assert_eq!(namespace(&found(None, &[])).status, Status::Info);
        assert!(namespace(&found(Some(false), &[])).guidance.unwrap().contains("create namespace agents"));
        assert_eq!(warm_pool(Ok(3)).status, Status::Pass);
        assert_eq!(warm_pool(Err("no agent-sandbox".into())).status, Status::Fail);
        assert_eq!(rights(&[]).status, Status::Pass);
        let failed = rights(&found(None, &["create pods/exec", "delete pods"]).missing_rights);
        assert!(failed.status == Status::Fail && failed.detail.ends_with("create pods/exec, delete pods"));
    }
}
