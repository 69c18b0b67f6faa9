//! Refusals of the policy, and invalid names, paths and sizes, with hints.

use coracle_runtime::PolicyRefusal;
use coracle_types::{InvalidName, InvalidPath, InvalidSize};

use super::{Code, Failure};

impl From<PolicyRefusal> for Failure {
    fn from(refused: PolicyRefusal) -> Self {
        let failure = Self::new(Code::PolicyDenied, refused.to_string()).detail("problems", &refused.problems);
        let Some(first) = refused.problems.first() else { return failure };
        let (rule, setting) = (first.rule, first.setting);
        let failure = failure.detail("rule", rule).detail("setting", setting).detail("value", &first.value);
        match setting {
            Some(setting) => failure.hint_setting(instead(rule), setting),
            None => failure.hint(format!("{}: no setting lifts this", instead(rule))),
        }
    }
}

/// Returns what to request instead, by the violated rule.
fn instead(rule: &str) -> &'static str {
    match rule {
        "mount.root" | "copy.root" | "compose.root" => "name a path below a directory that may be shared",
        "mount.denied" | "copy.denied" | "compose.denied" => "name another directory",
        "mount.bind" => "leave `mounts` out, and copy the files in with `copy_in`",
        "files.protected" | "copy.read_only" => "choose another path",
        "mount.target" => "choose another path inside, such as `/data`",
        "port.low" => "choose a higher host port, or leave it out to get a free one",
        "port.open" => "leave `ports` out",
        "image" => "name another image",
        "gpu" => "leave `gpu` out",
        "root.exec" => "leave `as_root` out",
        "discard" => "leave `discard` out, which saves the work",
        "network.host" | "network.open" => "choose the network `none`, or leave `network` out",
        "network.gateway" => "leave the name for the host out",
        _ => "ask for less",
    }
}

impl From<InvalidName> for Failure {
    fn from(err: InvalidName) -> Self {
        let code = if err.kind.ends_with("name") { Code::InvalidName } else { Code::InvalidInput };
        Self::new(code, err.to_string()).detail("grammar", err.grammar).hint(format!("use {}", err.grammar))
    }
}

impl From<InvalidPath> for Failure {
    fn from(err: InvalidPath) -> Self {
        Self::new(Code::InvalidInput, err.to_string()).hint("give an absolute path such as `/workspace/file`")
    }
}

impl From<InvalidSize> for Failure {
    fn from(err: InvalidSize) -> Self {
        Self::new(Code::InvalidInput, err.to_string()).hint("write `512m` or `4g`")
    }
}

#[cfg(test)]
mod tests {
    use coracle_runtime::{PolicyRefusal, Problem};
    use coracle_types::Handle;

    use super::{Code, Failure};

    #[test]
    fn a_refusal_names_rule_and_setting() {
        let problem = Problem {
            rule: "limit.memory",
            setting: Some("security.memory_max"),
            value: "64g".into(),
            message: "memory_limit 64g is above 16g".into(),
        };
        let failure = Failure::from(PolicyRefusal { problems: vec![problem] });
        assert_eq!(failure.details["rule"], "limit.memory");
        assert_eq!(failure.details["setting"], "security.memory_max");
        let failure = failure.into_inner();
        assert_eq!((failure.code, failure.message.as_str()), (Code::PolicyDenied, "memory_limit 64g is above 16g"));
        assert!(failure.hint.is_some_and(|it| it.contains("`security.memory_max`")));
    }

    #[test]
    fn an_invalid_name_is_answered_with_the_grammar() {
        let err = Handle::parse("../../x").unwrap_err();
        let failure = Failure::from(err);
        assert_eq!(failure.code, Code::InvalidName);
        assert!(failure.into_inner().hint.unwrap().starts_with("use letters"));
    }
}
