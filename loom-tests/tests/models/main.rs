//! All models. `cargo test --release` runs them; words after `--` choose by
//! name; `--mutants` runs the negative controls.

use std::process::ExitCode;

use kvradix_loom_tests::{Keep, Model, Negative, main as run};

mod children;
mod readers;
mod stand_ins;
mod world;

#[global_allocator]
static KEEP: Keep = Keep;

const MODELS: &[&[Model]] = &[stand_ins::MODELS, readers::MODELS, children::MODELS];
const NEGATIVES: &[&[Negative]] = &[];

fn main() -> ExitCode {
    run(MODELS.concat().leak(), NEGATIVES.concat().leak())
}
