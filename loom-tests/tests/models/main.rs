//! All models. `cargo test --release` runs them; words after `--` choose by
//! name; `--mutants` runs the negative controls.

use std::process::ExitCode;

use kvradix_loom_tests::{Keep, Model, main as run};

#[cfg(not(kvradix_loom_epoch))]
mod children;
#[cfg(kvradix_loom_epoch)]
mod collector;
#[cfg(not(kvradix_loom_epoch))]
mod lanes;
#[cfg(not(kvradix_loom_epoch))]
mod limits;
#[cfg(not(kvradix_loom_epoch))]
mod mending;
mod mutants;
#[cfg(not(kvradix_loom_epoch))]
mod readers;
#[cfg(not(kvradix_loom_epoch))]
mod sieve;
#[cfg(not(kvradix_loom_epoch))]
mod stand_ins;
mod world;

#[global_allocator]
static KEEP: Keep = Keep;

#[cfg(not(kvradix_loom_epoch))]
const MODELS: &[&[Model]] = &[
    stand_ins::MODELS,
    readers::MODELS,
    sieve::MODELS,
    children::MODELS,
    lanes::MODELS,
    limits::MODELS,
    mending::MODELS,
];
#[cfg(kvradix_loom_epoch)]
const MODELS: &[&[Model]] = &[collector::MODELS];

#[cfg(not(kvradix_loom_epoch))]
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/MUTANTS.md");
#[cfg(kvradix_loom_epoch)]
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/MUTANTS-collector.md");

fn main() -> ExitCode {
    let models = MODELS.concat().leak();
    mutants::check_complete();
    mutants::check_named(models);
    run(models, mutants::MUTANTS, TABLE)
}
