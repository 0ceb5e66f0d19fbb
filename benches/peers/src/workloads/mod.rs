//! The workloads, a file each; its head says what it does and how what it
//! plays is made.

pub mod chain;
pub mod check;
pub mod children;
pub mod churn;
pub mod contention;
pub mod fleet;
pub mod replay;
pub mod workers;

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::metric::Metrics;
use crate::peer::Peer;

/// One workload with its settings: what a process of its own measures for one
/// index.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub enum Task {
    Churn(churn::Settings),
    Fleet(fleet::Settings),
    Contention(contention::Settings),
    Replay { trace: PathBuf, limit: usize },
    Workers(workers::Settings),
    Children(children::Settings),
    Chain(chain::Settings),
    Check,
}

impl Task {
    pub fn run<P: Peer>(&self) -> Result<Metrics> {
        match self {
            Self::Churn(settings) => Ok(churn::run::<P>(settings)),
            Self::Fleet(settings) => Ok(fleet::run::<P>(settings)),
            Self::Contention(settings) => Ok(contention::run::<P>(settings)),
            Self::Replay { trace, limit } => replay::run::<P>(trace, *limit),
            Self::Workers(settings) => Ok(workers::run::<P>(settings)),
            Self::Children(settings) => Ok(children::run::<P>(settings)),
            Self::Chain(settings) => Ok(chain::run::<P>(settings)),
            Self::Check => check::run::<P>(),
        }
    }

    pub fn name(&self) -> String {
        match self {
            Self::Churn(_) => "churn".to_owned(),
            Self::Fleet(settings) => settings.name(),
            Self::Contention(_) => "contention".to_owned(),
            Self::Replay { .. } => "replay".to_owned(),
            Self::Workers(_) => "workers".to_owned(),
            Self::Children(_) => "children".to_owned(),
            Self::Chain(_) => "chain".to_owned(),
            Self::Check => "check".to_owned(),
        }
    }
}
