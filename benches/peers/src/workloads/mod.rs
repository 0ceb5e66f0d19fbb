//! The workloads, a file each; its head says what it does and how what it
//! plays is made.

pub mod check;
pub mod churn;
pub mod contention;
pub mod fleet;
pub mod replay;

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
    Check,
}

impl Task {
    pub fn run<P: Peer>(&self) -> Result<Metrics> {
        match self {
            Self::Churn(settings) => Ok(churn::run::<P>(settings)),
            Self::Fleet(settings) => Ok(fleet::run::<P>(settings)),
            Self::Contention(settings) => Ok(contention::run::<P>(settings)),
            Self::Replay { trace, limit } => replay::run::<P>(trace, *limit),
            Self::Check => check::run::<P>(),
        }
    }

    pub fn name(&self) -> String {
        match self {
            Self::Churn(_) => "churn".to_owned(),
            Self::Fleet(settings) => settings.name(),
            Self::Contention(_) => "contention".to_owned(),
            Self::Replay { .. } => "replay".to_owned(),
            Self::Check => "check".to_owned(),
        }
    }
}
