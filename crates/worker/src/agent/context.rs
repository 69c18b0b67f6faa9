//! The context of a run.

use coracle_sandbox::protocol::WorkerRequest;
use coracle_sandbox::schema::Schema;

use crate::Worker;
use crate::events::EventSink;
use crate::llm::{Llm, Meter};
use crate::stop::StopSignal;

/// The context of a run of any kind.
pub(crate) struct RunContext<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) request: &'a WorkerRequest,
    pub(crate) llm: Llm<'a>,
    pub(crate) schema: Option<Schema>,
    pub(crate) stop: &'a StopSignal,
    pub(crate) reporter: &'a mut EventSink,
    pub(crate) meter: &'a mut Meter,
}
