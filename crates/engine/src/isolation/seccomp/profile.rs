//! The same filter as a profile of the OCI runtime specification, for runtimes that compile it themselves.

use libc::EPERM;
use serde_json::{Value, json};

use super::compiler::{Action, ArgumentCondition, Rule};
use super::{RULES, allowed};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "SCMP_ARCH_X86_64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "SCMP_ARCH_AARCH64";

const ALLOW: &str = "SCMP_ACT_ALLOW";
const REFUSE: &str = "SCMP_ACT_ERRNO";

/// `linux.seccomp` of a bundle. A call without a rule fails with `EPERM`. So do sockets of rare families: a rule of a
/// profile has only one error.
pub(crate) fn oci_profile() -> Value {
    let has_rule = |name: &str| RULES.iter().any(|it| it.name == name);
    let names: Vec<_> = allowed().map(|it| it.kernel_name()).filter(|it| !has_rule(it)).collect();
    let mut calls = vec![json!({ "names": names, "action": ALLOW })];
    calls.extend(RULES.iter().flat_map(of_rule));
    json!({
        "defaultAction": REFUSE,
        "defaultErrnoRet": EPERM,
        "architectures": [ARCHITECTURE],
        "syscalls": calls,
    })
}

fn of_rule(rule: &Rule) -> Vec<Value> {
    let names = [rule.name];
    match rule.action {
        Action::Allow => vec![json!({ "names": names, "action": ALLOW })],
        Action::Refuse(errno) => vec![json!({ "names": names, "action": REFUSE, "errnoRet": errno })],
        Action::If(ArgumentCondition::NoBits(mask), _) => {
            let condition = json!({ "index": 0, "value": mask, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" });
            vec![json!({ "names": names, "action": ALLOW, "args": [condition] })]
        }
        Action::If(ArgumentCondition::OneOf(values), _) => {
            let condition = |value: &u32| json!({ "index": 0, "value": value, "op": "SCMP_CMP_EQ" });
            let rule = |value| json!({ "names": names, "action": ALLOW, "args": [condition(value)] });
            values.iter().map(rule).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The profile has every call that the engine's own filter allows or has conditions for.
    #[test]
    fn the_profile_matches_the_compiled_filter() {
        let profile = oci_profile();
        let rules = profile["syscalls"].as_array().unwrap();
        let of = |name: &str| -> Vec<&Value> {
            rules.iter().filter(|it| it["names"].as_array().unwrap().iter().any(|it| it == name)).collect()
        };
        assert_eq!((of("openat").len(), &of("openat")[0]["args"]), (1, &Value::Null));
        assert_eq!((of("mount").len(), of("keyctl").len()), (0, 0));
        assert_eq!(of("clone3")[0]["errnoRet"], libc::ENOSYS);
        assert_eq!(of("clone")[0]["args"][0]["value"], 0x7e02_0000);
        assert_eq!((of("socket").len(), of("cachestat").len()), (4, 1));
        let names = rules[0]["names"].as_array().unwrap();
        assert!(names.iter().all(|it| !it.as_str().unwrap().contains("SYS_")));
        assert_eq!(names.len(), allowed().filter(|it| !RULES.iter().any(|rule| rule.name == it.kernel_name())).count());
    }
}
