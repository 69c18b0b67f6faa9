//! The checks of `preflight`.

use coracle::humanize::count;
use serde_json::Value;

use super::{BAD, GOOD, Marks, fields, list_of, text, words};

/// Each check on a line, what to do below it, and the verdict at the end.
pub(super) fn checks(answer: &Value, marks: &Marks) -> String {
    let checks = list_of(answer, "checks");
    let width = checks.iter().map(|it| text(it, "name").len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for check in checks {
        let mark = marks.of_status(&text(check, "status"));
        lines.push(format!("{mark} {:<width$}  {}", words(&text(check, "name")), text(check, "detail")));
        let guidance = text(check, "guidance");
        lines.extend(guidance.lines().map(|line| format!("{:width$}    {line}", "")));
    }
    let style = if answer["ready"] == true { GOOD } else { BAD };
    lines.push(match text(answer, "summary").as_str() {
        "" => fields(answer),
        summary => format!("{style}{summary}{style:#}{}", warned(checks)),
    });
    lines.join("\n")
}

fn warned(checks: &[Value]) -> String {
    match checks.iter().filter(|it| it["status"] == "warn").count() {
        0 => String::new(),
        warnings => format!(", {}", count(warnings as u64, "warning", "warnings")),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::json;

    use crate::render::{Marks, bare};

    #[test]
    fn checks_are_told_with_guidance() {
        let answer = json!({ "success": true, "ready": false, "summary": "1 check failed: daemon_running", "checks": [
            { "name": "runtime_installed", "status": "pass", "detail": "docker", "guidance": null },
            { "name": "guest", "status": "warn", "detail": "none", "guidance": null },
            { "name": "daemon_running", "status": "fail", "detail": "no answer", "guidance": "sudo systemctl start docker\nor so" }] });
        assert_snapshot!(bare(&super::checks(&answer, &Marks::of(true))), @r"
        ✓ runtime installed  docker
        ! guest              none
        ✗ daemon running     no answer
                             sudo systemctl start docker
                             or so
        1 check failed: daemon_running, 1 warning
        ");
    }
}
