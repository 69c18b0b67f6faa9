//! Label and field selectors.

use serde_json::Value;

use crate::status::Refusal;

/// Which objects a list or a watch is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

/// One condition of a selector.
#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

/// Selectable fields of a Pod. Other kinds have only the first two.
const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "involvedObject.name",
    "involvedObject.kind",
    "involvedObject.uid",
    "involvedObject.namespace",
    "reason",
    "type",
];

impl Selector {
    pub(crate) fn parse(labels: &str, fields: &str) -> Result<Self, Refusal> {
        let labels = requirements(labels)?;
        let fields = requirements(fields)?;
        match fields.iter().find(|it| !FIELDS.contains(&it.key.as_str())) {
            Some(unknown) => Err(Refusal::bad_request(format!("field label not supported: {}", unknown.key))),
            None => Ok(Self { labels, fields }),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn admits(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"][key].as_str().map(str::to_owned);
        let field = |key: &str| {
            let found = key.split('.').fold(object, |at, part| &at[part]);
            Some(found.as_str().unwrap_or_default().to_owned())
        };
        self.labels.iter().all(|it| it.admits(label(&it.key))) && self.fields.iter().all(|it| it.admits(field(&it.key)))
    }
}

impl Requirement {
    fn admits(&self, value: Option<String>) -> bool {
        match (&self.test, value) {
            (Test::Exists, value) => value.is_some(),
            (Test::Absent, value) => value.is_none(),
            (Test::In(values), Some(value)) => values.contains(&value),
            (Test::In(_), None) => false,
            (Test::NotIn(values), Some(value)) => !values.contains(&value),
            (Test::NotIn(_), None) => true,
        }
    }
}

/// `a=b`, `a==b`, `a!=b`, `a`, `!a`, `a in (b,c)` and `a notin (b,c)`, with commas between.
fn requirements(text: &str) -> Result<Vec<Requirement>, Refusal> {
    let mut all = Vec::new();
    for part in parts(text) {
        let part = part.trim();
        let one = |key: &str, test| Requirement { key: key.trim().to_owned(), test };
        let values = |it: &str| {
            let inner = it.trim().strip_prefix('(')?.strip_suffix(')')?;
            Some(inner.split(',').map(|it| it.trim().to_owned()).collect::<Vec<_>>())
        };
        let wrong = || Refusal::bad_request(format!("unable to parse requirement: {part}"));
        all.push(if let Some((key, value)) = part.split_once("!=") {
            one(key, Test::NotIn(vec![value.trim().to_owned()]))
        } else if let Some((key, list)) = part.split_once(" notin ") {
            one(key, Test::NotIn(values(list).ok_or_else(wrong)?))
        } else if let Some((key, list)) = part.split_once(" in ") {
            one(key, Test::In(values(list).ok_or_else(wrong)?))
        } else if let Some((key, value)) = part.split_once('=') {
            one(key, Test::In(vec![value.trim_start_matches('=').trim().to_owned()]))
        } else if let Some(key) = part.strip_prefix('!') {
            one(key, Test::Absent)
        } else {
            one(part, Test::Exists)
        });
    }
    Ok(all)
}

/// Parts between commas outside brackets.
fn parts(text: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let mut all = vec![String::new()];
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c == ',' && depth == 0 {
            all.push(String::new());
        } else if let Some(last) = all.last_mut() {
            last.push(c);
        }
    }
    all.retain(|it| !it.trim().is_empty());
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Selector;

    #[test]
    fn selectors_admit_what_they_say() {
        let pod =
            json!({ "metadata": { "name": "p", "labels": { "a": "1", "b": "2" } }, "status": { "phase": "Running" } });
        let admits = |labels: &str, fields: &str| Selector::parse(labels, fields).unwrap().admits(&pod);
        assert!(admits("a=1,b==2,!c,a in (0,1),b notin (3)", "metadata.name=p,status.phase!=Failed"));
        for wrong in ["a=2", "c", "!a", "a in (2)", "b notin (2,3)", "a!=1"] {
            assert!(!admits(wrong, ""), "{wrong}");
        }
        assert!(!admits("", "spec.nodeName=n"));
        assert!(Selector::parse("", "spec.image=x").is_err());
    }
}
