//! The query of a request.

use percent_encoding::percent_decode_str;

/// Names and values, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let decode = |it: &str| percent_decode_str(&it.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pair = |it: &str| {
            let (name, value) = it.split_once('=').unwrap_or((it, ""));
            (decode(name), decode(value))
        };
        Self(text.split('&').filter(|it| !it.is_empty()).map(pair).collect())
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|it| it.0 == name).map_or("", |it| it.1.as_str())
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        ["true", "1"].contains(&self.get(name))
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name).parse().ok()
    }

    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|it| it.0 == name).map(|it| it.1.clone()).collect()
    }
}
