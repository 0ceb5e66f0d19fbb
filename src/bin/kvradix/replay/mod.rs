//! `kvradix replay`: a fleet, its routers, and the index between them.
//!
//! `live` plays a workload with all threads at once, `verified` in rounds that
//! can be checked. Both dispatch requests through the same `Fleet`, are watched
//! by the same `Monitor` and end in the same `Outcome`.

mod live;
mod monitor;
mod outcome;
mod panels;
mod verified;

use anyhow::Result;

use crate::args::ReplayArgs;
use crate::fleet::Fleet;
use crate::workload::Workload;
use crate::{memory, plot, report};

use outcome::{Memory, Outcome};

/// Plays the workload and prints what was measured.
///
/// # Errors
///
/// The trace cannot be read, the plot cannot be written, or the index gave a
/// wrong answer or refused an event.
pub fn run(args: &ReplayArgs) -> Result<()> {
    if let Some(path) = &args.plot {
        plot::prepare(path)?;
    }
    let workload = Workload::new(args)?;
    let index = args.common.index();
    let fleet = Fleet::new(args);
    let before = memory::resident();

    let played = if args.verify {
        verified::play(args, &workload, &fleet, &index)?
    } else {
        live::play(args, &workload, &fleet, &index)?
    };

    let memory = Memory { before_bytes: before, after_bytes: memory::resident() };
    if let Some(path) = &args.plot {
        plot::draw(path, &panels::panels(&played.watched.samples))?;
    }
    let outcome = Outcome::new(args, &played, memory, index.stats());
    report::print(args.common.json, "replay", args, &outcome)
}
