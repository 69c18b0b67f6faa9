//! What all kinds of runs have.

use coracle_sandbox::protocol::WorkerRequest;
use coracle_sandbox::schema::Schema;

use crate::Worker;
use crate::llm::{Llm, Meter};
use crate::stop::Stop;
use crate::teller::Teller;

/// What all kinds of runs have.
pub(crate) struct Cx<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) request: &'a WorkerRequest,
    pub(crate) llm: Llm<'a>,
    pub(crate) schema: Option<Schema>,
    pub(crate) stop: &'a Stop,
    pub(crate) teller: &'a mut Teller,
    pub(crate) meter: &'a mut Meter,
}
