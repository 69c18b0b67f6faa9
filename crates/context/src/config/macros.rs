//! Macros that declare keys of the configuration: each with its meaning, its type and its default.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Declares a table of keys, and a comment for each, which is its row in the reference. A default is a value of the
/// file; `=>` describes one that is not, or depends on something else. A field without a comment contains a table.
macro_rules! table {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[doc = $meaning:literal])* $key:ident: $type:ty $(= $default:expr)? $(=> $words:literal)?,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name { $($(#[doc = $meaning])* pub $key: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $crate::config::macros::table!(@default $($default)?),)* }
            }
        }

        impl $crate::config::keys::Table for $name {
            fn add_keys(path: &str, keys: &mut Vec<$crate::config::keys::Key>) {
                $(
                    let key = format!("{path}{}", stringify!($key).trim_start_matches("r#"));
                    $crate::config::macros::table!(@add keys, key, $type, [$($meaning)*] [$($default)?] [$($words)?]);
                )*
            }
        }
    )*};
    (@default) => { Default::default() };
    (@default $default:expr) => { $crate::config::macros::setting($crate::config::macros::value($default)) };
    (@add $keys:ident, $key:ident, $type:ty, [] [] []) => {
        <$type as $crate::config::keys::Table>::add_keys(&format!("{}.", $key), $keys)
    };
    (@add $keys:ident, $key:ident, $type:ty, [$($meaning:literal)+] [$($default:expr)?] [$($words:literal)?]) => {{
        let default = [$($crate::config::macros::value($default))?].into_iter().next();
        $keys.push($crate::config::keys::Key::new($key, &[$($meaning),+], default, [$($words)?].first().copied()));
    }};
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

/// Returns a default as a value of the file.
pub(super) fn value(default: impl Serialize) -> toml::Value {
    toml::Value::try_from(default).expect("a default is a value of the file")
}

/// Reads a default as the file is read.
pub(super) fn setting<T: DeserializeOwned>(default: toml::Value) -> T {
    default.try_into().expect("a default has the type of its key")
}
