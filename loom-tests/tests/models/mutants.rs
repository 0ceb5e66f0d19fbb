//! The negative controls: which step is left out, and which model must say
//! what.

use kvradix_loom_tests::Negative;

const fn kills(
    mutant: &'static str,
    step: &'static str,
    model: &'static str,
    message: &'static str,
) -> Negative {
    Negative { mutant, step, model, message: Some(message) }
}

pub const MUTANTS: &[Negative] = &[];
