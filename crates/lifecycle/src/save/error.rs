//! Why something could not be saved.

use coracle_runtime::Error as Engine;

/// Why something could not be saved.
#[derive(Debug)]
pub(super) enum SaveError {
    /// There is more than may be kept.
    TooLarge,
    /// It takes longer than it may.
    TooSlow,
    /// The state directory.
    Disk(std::io::Error),
    /// The container.
    Inside(Engine),
    /// Something else.
    Odd(&'static str),
}

impl From<Engine> for SaveError {
    fn from(err: Engine) -> Self {
        Self::Inside(err)
    }
}

/// What could not be saved, and why.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) path: String,
    pub(super) trouble: SaveError,
}
