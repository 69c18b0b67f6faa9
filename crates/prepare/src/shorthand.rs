//! Short forms of objects, in a call and on the command line: `8080:80`, `../data:/data:ro`, `https://…=~/src`.

use serde_json::{Value, json};

/// Parses the short form of a field whose items are objects.
pub type Read = fn(&str) -> Option<Value>;

/// Returns a description of a field's short form, and its parser.
pub fn form(field: &str) -> Option<(&'static str, Read)> {
    match field {
        "ports" => Some(("[HOST:]CONTAINER[/udp]", port)),
        "repos" => Some(("URL[=PATH]", repo)),
        "mounts" => Some(("HOST:CONTAINER[:ro]", mount)),
        _ => None,
    }
}

/// Parses an item of a list in short form. `None` if it is not one.
pub fn item(field: &str, text: &str) -> Option<Value> {
    form(field).and_then(|(_, read)| read(text))
}

fn port(text: &str) -> Option<Value> {
    let (ports, protocol) = text.split_once('/').map_or((text, None), |(ports, it)| (ports, Some(it)));
    let (host, container) = ports.split_once(':').map_or((None, ports), |(host, it)| (Some(host), it));
    let host: Option<u16> = host.map(str::parse).transpose().ok()?;
    let mut port = json!({ "container": container.parse::<u16>().ok()? });
    if let Some(host) = host {
        port["host"] = host.into();
    }
    if let Some(protocol) = protocol {
        port["protocol"] = protocol.into();
    }
    Some(port)
}

/// The URL of a repository contains no `=`.
fn repo(text: &str) -> Option<Value> {
    let (url, path) = text.split_once('=').map_or((text, None), |(url, path)| (url, Some(path)));
    if url.is_empty() || path.is_some_and(str::is_empty) {
        return None;
    }
    let mut repo = json!({ "url": url });
    if let Some(path) = path {
        repo["path"] = path.into();
    }
    Some(repo)
}

/// A path with a colon needs the JSON form.
fn mount(text: &str) -> Option<Value> {
    let mut parts = text.split(':');
    let (host, container, mode) = (parts.next()?, parts.next()?, parts.next());
    if host.is_empty() || !container.starts_with('/') || parts.next().is_some() {
        return None;
    }
    let mut mount = json!({ "host": host, "container": container });
    if let Some(mode) = mode {
        mount["mode"] = mode.into();
    }
    Some(mount)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::item;

    #[test]
    fn ports_and_mounts_have_a_short_form() {
        assert_eq!(item("ports", "80"), Some(json!({ "container": 80 })));
        assert_eq!(item("ports", "8080:80"), Some(json!({ "container": 80, "host": 8080 })));
        assert_eq!(item("ports", "53:53/udp"), Some(json!({ "container": 53, "host": 53, "protocol": "udp" })));
        assert_eq!(item("mounts", "../d:/d"), Some(json!({ "host": "../d", "container": "/d" })));
        assert_eq!(item("mounts", "d:/d:ro"), Some(json!({ "host": "d", "container": "/d", "mode": "ro" })));
        let url = "https://example.org/a.git";
        assert_eq!(item("repos", url), Some(json!({ "url": url })));
        assert_eq!(item("repos", "git@example.org:a=~/b"), Some(json!({ "url": "git@example.org:a", "path": "~/b" })));
        assert_eq!(item("add_hosts", "a:1.2.3.4"), None);
    }

    #[test]
    fn an_invalid_short_form_is_refused() {
        for (field, text) in
            [("ports", "web"), ("ports", "0.0.0.0:80:80"), ("ports", "99999"), ("mounts", "/d"), ("mounts", "a:b")]
        {
            assert_eq!(item(field, text), None, "{text}");
        }
    }
}
