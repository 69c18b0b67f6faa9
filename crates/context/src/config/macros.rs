//! Macros that declare keys of the configuration: each with its documentation, its type and its default.

/// Declares a table of keys. A key without a default has that of its type.
macro_rules! table {
    ($($(#[$doc:meta])* $name:ident { $($(#[$key_doc:meta])* $key:ident: $type:ty $(= $default:expr)?,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name { $($(#[$key_doc])* pub $key: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $crate::config::macros::table!(@default $($default)?),)* }
            }
        }
    )*};
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
}

/// Declares a setting that is one of a few words.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($(#[$word_doc])* $word,)* }
    )*};
}

pub(super) use {table, words};

/// Returns a list of texts as the default of a key.
pub(super) fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|it| (*it).to_owned()).collect()
}
