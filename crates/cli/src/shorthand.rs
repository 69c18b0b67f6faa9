//! Checks short forms for clap: items such as `8080:80`, and `KEY=VALUE`.

use coracle_prepare::shorthand::form;

/// Reports an invalid item to clap.
pub(super) fn check_item(field: &str, text: &str) -> Result<String, String> {
    match form(field) {
        Some((form, read)) if !is_json(text) && read(text).is_none() => Err(format!("it is not {form}")),
        _ => Ok(text.to_owned()),
    }
}

/// Reports an invalid variable or label to clap.
pub(super) fn check_pair(text: &str) -> Result<String, String> {
    let pair = text.split_once('=').is_some_and(|(key, _)| !key.is_empty());
    if pair || is_json(text) { Ok(text.to_owned()) } else { Err("it is not KEY=VALUE".to_owned()) }
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

#[cfg(test)]
mod tests {
    use super::{check_item, check_pair};

    #[test]
    fn what_is_neither_short_nor_json_is_refused() {
        for (field, text) in
            [("ports", "web"), ("ports", "0.0.0.0:80:80"), ("ports", "99999"), ("mounts", "/d"), ("mounts", "a:b")]
        {
            assert!(check_item(field, text).is_err(), "{text}");
        }
        assert!(check_item("ports", "{\"container\":80}").is_ok());
        assert!(check_pair("A=").is_ok() && check_pair("{\"A\":\"b\"}").is_ok());
        assert!(check_pair("A").is_err() && check_pair("=b").is_err());
    }
}
