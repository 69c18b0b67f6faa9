//! The security context of a container.

use coracle_runtime::CreateSpec;
use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SeccompProfile, SecurityContext};

/// The seccomp profile of the node's runtime for all containers of the Pod.
pub(super) fn pod_security() -> PodSecurityContext {
    let seccomp = SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None };
    PodSecurityContext { seccomp_profile: Some(seccomp), ..PodSecurityContext::default() }
}

/// PID 1 is root with the requested capabilities, or the exec user without any. No process can gain privileges.
pub(super) fn main_security(spec: &CreateSpec) -> SecurityContext {
    let own = spec.is_rootless_inside().then_some(spec.exec_user);
    let add: Vec<String> = spec.capabilities.kernel_names().iter().map(|it| (*it).to_owned()).collect();
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { add: Some(add).filter(|it| !it.is_empty()), drop: Some(vec!["ALL".into()]) }),
        privileged: Some(false),
        read_only_root_filesystem: Some(spec.read_only),
        run_as_user: Some(own.map_or(0, |it| i64::from(it.uid))),
        run_as_group: Some(own.map_or(0, |it| i64::from(it.gid))),
        run_as_non_root: own.map(|it| it.uid != 0),
        ..SecurityContext::default()
    }
}

/// The user of PID 1 without any capability: it writes only to volumes of the Pod.
pub(super) fn guest_security(spec: &CreateSpec) -> SecurityContext {
    let capabilities = Capabilities { add: None, drop: Some(vec!["ALL".into()]) };
    SecurityContext { capabilities: Some(capabilities), read_only_root_filesystem: None, ..main_security(spec) }
}
