//! `machine.*`: how the machine of an agent's session is created.

use coracle_images::profile::Purpose;
use coracle_types::ImageRef;

use super::macros::table;

table! {
    /// `machine.*`
    Machine {
        /// [purpose](profiles.md) of an agent's [machine](mcp.md#the-machine)
        purpose: Purpose = "general",
        /// Debian packages in addition to those of the purpose
        packages: Vec<String> = ["python3"],
        /// image of the machine, instead of purpose and packages
        image: Option<ImageRef>,
    }
}
