//! Reports facts about the engine.

use coracle_runtime::EngineInfo;
use coracle_types::EngineKind;

use crate::engine::Engine;

pub(crate) fn info(engine: &Engine) -> EngineInfo {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    EngineInfo {
        kind: EngineKind::Embedded,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        endpoint: "local".to_owned(),
        rootless: !engine.privileges.is_root(),
        single_user: engine.privileges.has_single_user(),
        arch: arch.to_owned(),
        cgroup: engine.cgroups.version(),
        data_root: engine.options.data_dir.clone(),
        storage_driver: None,
        compose_version: None,
        gpu: false,
        selinux: false,
        ignored_limits: engine.cgroups.ignored_limits(),
    }
}
