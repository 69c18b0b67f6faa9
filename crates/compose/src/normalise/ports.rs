//! Expands published ports: `HOST:PORT/PROTOCOL` and ranges, with one entry per port.

use serde_json::{Map, Value, json};

use super::{ModelError, values};

/// Maximum size of a range.
const MAX_RANGE: u32 = 1000;

pub(super) fn write_out(value: Value) -> Result<Value, ModelError> {
    let Value::Array(items) = value else { return Ok(value) };
    let mut out = Vec::new();
    for item in items {
        match item {
            Value::Object(entry) => out.push(long(entry)),
            item => match values::text(&item) {
                Some(text) => out.extend(short(&text).ok_or_else(|| format!("ports: `{text}` is no port"))?),
                None => out.push(item),
            },
        }
    }
    Ok(out.into())
}

fn long(mut entry: Map<String, Value>) -> Value {
    for (key, usual) in [("mode", "ingress"), ("protocol", "tcp")] {
        entry.entry(key).or_insert_with(|| usual.into());
    }
    if let Some(target) = entry.remove("target") {
        entry.insert("target".into(), values::integer(target));
    }
    if let Some(published) = entry.remove("published").filter(|it| it != "") {
        entry.insert("published".into(), values::text(&published).map_or(published, Value::from));
    }
    Value::Object(entry)
}

/// Parses `[[ADDRESS:]HOST:]PORT[/PROTOCOL]`; an IPv6 address is in brackets.
fn short(text: &str) -> Option<Vec<Value>> {
    let (rest, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let (rest, targets) = rest.rsplit_once(':').map_or((None, rest), |(rest, it)| (Some(rest), it));
    let (address, published) = match rest {
        None => (None, ""),
        Some(rest) => rest.rsplit_once(':').map_or((None, rest), |(address, it)| (Some(address), it)),
    };
    let address = address.map(|it| it.trim_start_matches('[').trim_end_matches(']'));
    if address.is_some_and(|it| it.parse::<std::net::IpAddr>().is_err()) {
        return None;
    }
    let (first, last) = range(targets)?;
    let hosts = if published.is_empty() { None } else { Some(range(published)?) };
    let count = u32::from(last - first) + 1;
    let pairwise = hosts.is_some_and(|(from, to)| u32::from(to - from) + 1 == count);
    if count > MAX_RANGE || hosts.is_some() && count > 1 && !pairwise {
        return None;
    }
    let one = |offset: u16| {
        let mut entry = json!({ "mode": "ingress", "target": first + offset, "protocol": protocol });
        if let Some(address) = address {
            entry["host_ip"] = address.into();
        }
        if let Some((from, to)) = hosts {
            // Of a host range, any port may be chosen.
            let host = if pairwise { (from + offset).to_string() } else { format!("{from}-{to}") };
            entry["published"] = host.into();
        }
        entry
    };
    Some((0..=last - first).map(one).collect())
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> Option<String> {
        let one = |it: &Value| {
            let field = |key: &str| it.get(key).map(|it| values::text(it).unwrap());
            let host = field("published").unwrap_or_default();
            let address = field("host_ip").unwrap_or_default();
            format!("{address}|{host}|{}/{}", it["target"], it["protocol"].as_str().unwrap())
        };
        Some(short(text)?.iter().map(one).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn short_forms_are_expanded() {
        for (text, expected) in [
            ("80", "||80/tcp"),
            ("8080:80/udp", "|8080|80/udp"),
            ("127.0.0.1::80", "127.0.0.1||80/tcp"),
            ("[::1]:1:2", "::1|1|2/tcp"),
            ("8000-8001", "||8000/tcp ||8001/tcp"),
            ("8000-8001:9000-9001", "|8000|9000/tcp |8001|9001/tcp"),
            ("3000-3005:3000", "|3000-3005|3000/tcp"),
        ] {
            assert_eq!(listed(text).as_deref(), Some(expected), "{text}");
        }
        for bad in ["", "a", "1:b", "x:1:2", "5-3", "1-3:4-5", "70000", "1-60000", "1:2:3:4"] {
            assert_eq!(listed(bad), None, "{bad}");
        }
    }
}
