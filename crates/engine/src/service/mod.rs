//! Services of a Compose file as containers of this engine.
//!
//! | module | content |
//! |---|---|
//! | `model` | a file as the full model: variables filled in, short forms written out. Pure |
//! | `duration` | durations of models |

mod duration;
mod model;

pub(crate) use self::model::model_of;
