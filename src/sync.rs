//! Every piece of synchronisation the index uses, behind one face.
//!
//! Two inner modules have equal names: `real` for everybody, `model` for the
//! model checker, which sees only what is made of its own primitives. All
//! other files import from here alone (`.ci/run` holds them to it), so the
//! models run the production source.

#[cfg(not(kvradix_faults))]
mod fault;
#[cfg(kvradix_faults)]
pub mod fault;
mod mutant;
pub(crate) mod rank;
mod swap;

#[cfg(not(kvradix_loom))]
mod compare;
#[cfg(not(kvradix_loom))]
mod real;
#[cfg(not(kvradix_loom))]
pub(crate) use real::*;

#[cfg(kvradix_loom)]
pub(crate) mod model;
#[cfg(kvradix_loom)]
pub(crate) use model::*;

pub(crate) use fault::{Fault, Omission, fault, omitted};
pub(crate) use mutant::{Mutant, mutant};
pub(crate) use std::sync::atomic::Ordering;
pub(crate) use swap::Swap;
