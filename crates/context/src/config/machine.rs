//! `machine.*`: how the machine of an agent's session is created.

use coracle_images::profile::Purpose;
use coracle_types::ImageRef;

use super::macros::{table, texts};

table! {
    /// `machine.*`
    Machine {
        /// Its image. Setting one replaces purpose and packages.
        image: Option<ImageRef>,
        /// Its purpose.
        purpose: Purpose = Purpose::parse("general").expect("the word follows the grammar"),
        /// Packages in addition to those of its purpose, by Debian's names.
        packages: Vec<String> = texts(&["python3"]),
    }
}
