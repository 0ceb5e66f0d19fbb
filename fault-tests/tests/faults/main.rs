//! A panic at every step of an event: the others' answers stay exact, nothing
//! is left locked, and what the panic left behind goes when its worker is
//! healed.

#[path = "../../../tests/common/mod.rs"]
mod common;
mod controls;
mod run;
mod streams;
mod threads;
