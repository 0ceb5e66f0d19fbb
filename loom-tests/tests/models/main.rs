//! All models. `cargo test --release` runs them; words after `--` choose by
//! name; `--mutants` runs the negative controls.

use std::process::ExitCode;

use kvradix_loom_tests::{Keep, Model, main as run};

mod children;
mod lanes;
mod mutants;
mod readers;
mod stand_ins;
mod world;

#[global_allocator]
static KEEP: Keep = Keep;

const MODELS: &[&[Model]] = &[stand_ins::MODELS, readers::MODELS, children::MODELS, lanes::MODELS];

fn main() -> ExitCode {
    run(MODELS.concat().leak(), mutants::MUTANTS)
}
