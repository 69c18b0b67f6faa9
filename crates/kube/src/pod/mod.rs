//! Converts a container to a Pod and back. Pure.

mod describe;
mod guest_container;
mod main_container;
mod metadata;
mod security;
mod spec;
mod state;
#[cfg(test)]
mod tests;
mod volumes;

pub(crate) use describe::{container_id, container_of};
pub(crate) use guest_container::DELIVERY_END;
pub(crate) use metadata::{ALONE, NO_NETWORK};
pub(crate) use spec::{PodRequest, lifetime, pod};
pub(crate) use state::{
    PodState, STOP_DEADLINE, is_guest_waiting, is_starting_guest_done, main_state, node_lost, status,
};
