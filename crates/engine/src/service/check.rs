//! Refuses services that this engine cannot run.

use coracle_runtime::stack_model::{Service, StackModel};
use coracle_types::{Capability, Error, Result};

use crate::error::{refused, unsupported};

/// Checks a model before its images are resolved.
///
/// # Errors
/// The missing capability of the engine, or the key that it does not support.
pub(crate) fn check(model: &StackModel) -> Result<()> {
    model.services.iter().try_for_each(|(name, service)| check_service(name, service))
}

/// Checks the keys of a service. It names every key, so that a new one has to be implemented or refused here.
fn check_service(name: &str, service: &Service) -> Result<()> {
    let Service {
        build,
        deploy,
        dns,
        dns_search,
        dns_opt,
        platform,
        network_mode,
        networks,
        ulimits,
        // Implemented.
        image: _,
        scale: _,
        command: _,
        entrypoint: _,
        environment: _,
        user: _,
        working_dir: _,
        hostname: _,
        labels: _,
        depends_on: _,
        links: _,
        ports: _,
        volumes: _,
        tmpfs: _,
        configs: _,
        secrets: _,
        read_only: _,
        mem_limit: _,
        cpus: _,
        pids_limit: _,
        shm_size: _,
        cap_add: _,
        extra_hosts: _,
        healthcheck: _,
        stop_signal: _,
        // The same for every container, or without meaning here.
        cap_drop: _,
        security_opt: _,
        restart: _,
        pull_policy: _,
        logging: _,
        memswap_limit: _,
        expose: _,
        init: _,
        stop_grace_period: _,
        tty: _,
        stdin_open: _,
    } = service;
    if build.is_some() {
        return Err(unsupported(Capability::Build));
    }
    if deploy.is_some() {
        return Err(unsupported(Capability::Gpu));
    }
    let refused = |what: &str| -> Result<()> { Err(refuse(&format!("service `{name}`: {what}"))) };
    let unknown = [
        ("dns", !dns.is_empty()),
        ("dns_search", !dns_search.is_empty()),
        ("dns_opt", !dns_opt.is_empty()),
        ("platform", platform.is_some()),
    ];
    if let Some((key, _)) = unknown.iter().find(|(_, is_set)| *is_set) {
        return refused(&format!("`{key}` is not supported by the embedded engine: use docker or podman"));
    }
    if let Some(limit) = ulimits.keys().find(|limit| !["nofile", "core"].contains(&limit.as_str())) {
        return refused(&format!("`ulimits.{limit}` is not supported by the embedded engine"));
    }
    match network_mode.as_deref() {
        Some(mode) if mode != "none" => refused(&format!("`network_mode` may be `none` here, not `{mode}`")),
        _ if networks.len() > 1 => refused("`networks` may be one here: a container is on one network"),
        _ => Ok(()),
    }
}

fn refuse(why: &str) -> Error {
    refused("compose config", why)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_it_does_not_support_is_refused_by_name() {
        let checked = |service: Value| check(&serde_json::from_value(json!({ "services": { "a": service } })).unwrap());
        for (service, key) in [
            (json!({ "dns": ["1.1.1.1"] }), "`dns`"),
            (json!({ "platform": "linux/arm64" }), "`platform`"),
            (json!({ "ulimits": { "nproc": { "soft": 1, "hard": 2 } } }), "`ulimits.nproc`"),
            (json!({ "network_mode": "service:b" }), "`network_mode`"),
            (json!({ "networks": { "one": {}, "two": {} } }), "`networks`"),
        ] {
            let why = checked(service).unwrap_err().to_string();
            assert!(why.contains(&format!("service `a`: {key}")), "{why}");
        }
        for service in [json!({ "build": { "context": "/x" } }), json!({ "deploy": { "replicas": 1 } })] {
            assert!(matches!(checked(service), Err(Error::Unsupported { .. })));
        }
        let fine = json!({ "networks": { "one": {} }, "ulimits": { "core": { "hard": 0 } }, "tty": true });
        assert!(checked(fine).is_ok());
    }
}
