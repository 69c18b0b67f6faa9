//! The engine's events, as they happen.

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use serde::Deserialize;

use super::{ApiConnection, ApiFault, ApiResult};

/// A longer line is no event.
const LINE_BYTES: usize = 256 << 10;

/// Something that happened to a container or a network.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EngineEvent {
    /// The container that is another one now.
    pub(crate) container: String,
    /// It is new.
    pub(crate) is_created: bool,
}

/// A response that continues for as long as the engine runs, one JSON object a line.
#[derive(Debug)]
pub(crate) struct EventStream {
    body: Incoming,
    /// It ends with the stream.
    _connection: ApiConnection,
    unread: Vec<u8>,
}

impl EventStream {
    pub(super) fn new(connection: ApiConnection, body: Incoming) -> Self {
        Self { body, _connection: connection, unread: Vec::new() }
    }

    /// The next ones; none when the engine has ended the stream.
    pub(crate) async fn next(&mut self) -> ApiResult<Option<Vec<EngineEvent>>> {
        while let Some(frame) = self.body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            let lines = self.whole_lines(&data)?;
            if !lines.is_empty() {
                return lines.iter().filter_map(|it| read(it).transpose()).collect::<ApiResult<_>>().map(Some);
            }
        }
        Ok(None)
    }

    fn whole_lines(&mut self, data: &Bytes) -> ApiResult<Vec<Vec<u8>>> {
        self.unread.extend_from_slice(data);
        let mut lines = Vec::new();
        while let Some(end) = self.unread.iter().position(|it| *it == b'\n') {
            lines.push(self.unread.drain(..=end).collect());
        }
        if self.unread.len() > LINE_BYTES { Err(ApiFault::TooLarge) } else { Ok(lines) }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EventJson {
    #[serde(rename = "Type")]
    kind: String,
    action: String,
    actor: ActorJson,
}

#[derive(Deserialize)]
struct ActorJson {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Attributes", default)]
    attributes: AttributesJson,
}

#[derive(Default, Deserialize)]
struct AttributesJson {
    /// The container in an event of a network.
    container: Option<String>,
}

fn read(line: &[u8]) -> ApiResult<Option<EngineEvent>> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let event: EventJson = crate::read::one("events", line)?;
    Ok(match event.kind.as_str() {
        "container" => Some(EngineEvent { container: event.actor.id, is_created: event.action == "create" }),
        "network" => event.actor.attributes.container.map(|container| EngineEvent { container, is_created: false }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_engines_name_the_container_of_an_event() {
        let of = |container: &str, is_created| Some(EngineEvent { container: container.into(), is_created });
        let docker = r#"{"status":"create","id":"a1","Type":"container","Action":"create","Actor":{"ID":"a1","Attributes":{"image":"x"}},"time":1}"#;
        assert_eq!(read(docker.as_bytes()).unwrap(), of("a1", true));
        let podman = r#"{"Type":"container","Action":"died","Actor":{"ID":"b2","Attributes":{"name":"n","containerExitCode":"0"}}}"#;
        assert_eq!(read(podman.as_bytes()).unwrap(), of("b2", false));
        let network = r#"{"Type":"network","Action":"connect","Actor":{"ID":"net","Attributes":{"container":"c3","name":"bridge"}}}"#;
        assert_eq!(read(network.as_bytes()).unwrap(), of("c3", false));
        let made = r#"{"Type":"network","Action":"create","Actor":{"ID":"net","Attributes":{"name":"n"}}}"#;
        assert_eq!(read(made.as_bytes()).unwrap(), None);
        assert_eq!(read(b"\n").unwrap(), None);
        assert!(read(b"no event\n").is_err());
    }
}
