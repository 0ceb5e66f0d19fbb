//! What is known of a worker before its first event.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// A worker of the fleet: an engine with one publisher per data-parallel rank.
///
/// It reads from TOML, JSON or whatever serde reads, as a table of its fields.
/// Fields that nobody knows are refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerSpec {
    /// What the worker is called in answers.
    pub id: u64,
    /// Where the batches come from: the endpoint of rank 0, with that of rank
    /// r at its port plus r (as vLLM and SGLang have it), or one endpoint for
    /// each of `ranks`.
    pub events: Endpoints,
    /// Where history can be asked for, if anywhere; likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Endpoints>,
    /// Who waits for whom at `events`. A replay endpoint is always connected
    /// to.
    #[serde(default)]
    pub attach: Attach,
    /// The data-parallel ranks: how many (0, 1, ...), or which.
    #[serde(default)]
    pub ranks: Ranks,
    /// Which engine it is.
    #[serde(default)]
    pub engine: Engine,
    /// The model whose KV it caches. Workers of one model and block size
    /// answer together.
    #[serde(default)]
    pub model: String,
    /// Tokens per block (vLLM's block size, SGLang's page size).
    pub block_size: NonZeroU32,
    /// The topic to subscribe to; the empty one is all.
    #[serde(default)]
    pub topic: String,
    /// Whether a block stored twice is two copies, each removed by an event of
    /// its own. Unless given: as the [engine](Engine::counts_copies) does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<bool>,
}

/// One endpoint to count up from, or one for each rank.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Endpoints {
    /// That of rank 0.
    Base(String),
    /// In the order of the ranks.
    Each(Vec<String>),
}

/// Who waits for whom.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// The publisher binds, and is connected to.
    #[default]
    Connect,
    /// The publisher connects here.
    Bind,
}

/// The data-parallel ranks of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Ranks {
    /// 0 up to below this.
    Count(u32),
    /// These.
    These(Vec<u32>),
}

impl Default for Ranks {
    fn default() -> Self {
        Self::Count(1)
    }
}

/// Engines, as far as they differ beyond what their events say themselves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// Another that publishes alike.
    #[default]
    Other,
}

impl Engine {
    /// Whether it publishes an event for each physical copy of a block.
    pub fn counts_copies(self) -> bool {
        self == Engine::Vllm
    }

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Vllm => "vllm",
            Engine::Sglang => "sglang",
            Engine::Other => "other",
        }
    }
}

/// What is wrong with a [`WorkerSpec`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpecError {
    /// The worker's id.
    pub id: u64,
    /// What is wrong.
    pub fault: SpecFault,
}

/// See [`SpecError`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SpecFault {
    /// It has no ranks, or more than [`MAX_RANKS`].
    RankCount(usize),
    /// It names a rank twice.
    RankTwice(u32),
    /// There are not as many endpoints as ranks.
    EndpointCount {
        /// Endpoints given.
        endpoints: usize,
        /// Ranks given.
        ranks: usize,
    },
    /// Neither `tcp://HOST:PORT` nor `ipc://PATH`.
    NoEndpoint(String),
    /// Several ranks need a port to count up from.
    NoPort(String),
    /// A port above 65,535.
    PortTooHigh(String),
    /// A wildcard, which can only be bound.
    Wildcard(String),
    /// The same endpoint twice, as where the ports of `events` run into those
    /// of `replay`.
    EndpointTwice(String),
    /// Another worker of the same id.
    IdTwice,
}

/// Ranks that a worker may have.
pub const MAX_RANKS: usize = 4_096;

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}: ", self.id)?;
        match &self.fault {
            SpecFault::RankCount(count) => write!(f, "{count} ranks; 1 to {MAX_RANKS} are allowed"),
            SpecFault::RankTwice(rank) => write!(f, "rank {rank} is named twice"),
            SpecFault::EndpointCount { endpoints, ranks } => {
                write!(f, "{endpoints} endpoints for {ranks} ranks")
            }
            SpecFault::NoEndpoint(text) => {
                write!(f, "`{text}` is neither tcp://HOST:PORT nor ipc://PATH")
            }
            SpecFault::NoPort(text) => {
                write!(f, "`{text}` has no port to count up from; give one endpoint a rank")
            }
            SpecFault::PortTooHigh(text) => write!(f, "`{text}` needs a port above 65535"),
            SpecFault::Wildcard(text) => {
                write!(f, "`{text}` can only be bound; name the host to connect to")
            }
            SpecFault::EndpointTwice(text) => write!(f, "`{text}` is used twice"),
            SpecFault::IdTwice => write!(f, "there is another of this id"),
        }
    }
}

impl std::error::Error for SpecError {}

/// One publisher: a rank of a worker and where it speaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Publisher {
    pub(super) rank: u32,
    pub(super) events: String,
    pub(super) replay: Option<String>,
}

impl WorkerSpec {
    /// A worker of one rank, without replay, to be connected to.
    pub fn new(id: u64, events: impl Into<String>, block_size: NonZeroU32) -> Self {
        Self {
            id,
            events: Endpoints::Base(events.into()),
            replay: None,
            attach: Attach::default(),
            ranks: Ranks::default(),
            engine: Engine::default(),
            model: String::new(),
            block_size,
            topic: String::new(),
            copies: None,
        }
    }

    /// Whether copies are counted.
    pub fn counts_copies(&self) -> bool {
        self.copies.unwrap_or(self.engine.counts_copies())
    }

    /// Whether it can be followed.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), SpecError> {
        self.publishers().map(drop)
    }

    /// The publishers, one a rank.
    pub(super) fn publishers(&self) -> Result<Vec<Publisher>, SpecError> {
        let publishers = self.publishers_or_fault();
        publishers.map_err(|fault| SpecError { id: self.id, fault })
    }

    fn publishers_or_fault(&self) -> Result<Vec<Publisher>, SpecFault> {
        let ranks = self.ranks.list()?;
        let events = self.events.each(&ranks)?;
        let replay = match &self.replay {
            Some(replay) => replay.each(&ranks)?.into_iter().map(Some).collect(),
            None => vec![None; ranks.len()],
        };
        let connected = match self.attach {
            Attach::Connect => &events[..],
            Attach::Bind => &[],
        };
        for endpoint in connected.iter().chain(replay.iter().flatten()) {
            if endpoint.starts_with("tcp://*") {
                return Err(SpecFault::Wildcard(endpoint.clone()));
            }
        }
        let mut seen = BTreeSet::new();
        for endpoint in events.iter().chain(replay.iter().flatten()) {
            if !seen.insert(endpoint) {
                return Err(SpecFault::EndpointTwice(endpoint.clone()));
            }
        }
        let publishers = ranks.iter().zip(&events).zip(&replay);
        let publishers = publishers.map(|((&rank, events), replay)| Publisher {
            rank,
            events: events.clone(),
            replay: replay.clone(),
        });
        Ok(publishers.collect())
    }
}

impl Ranks {
    fn list(&self) -> Result<Vec<u32>, SpecFault> {
        let count = match self {
            Ranks::Count(count) => *count as usize,
            Ranks::These(ranks) => ranks.len(),
        };
        if count == 0 || count > MAX_RANKS {
            return Err(SpecFault::RankCount(count));
        }
        let ranks = match self {
            Ranks::Count(count) => (0..*count).collect(),
            Ranks::These(ranks) => ranks.clone(),
        };
        let mut seen = BTreeSet::new();
        match ranks.iter().find(|rank| !seen.insert(**rank)) {
            Some(rank) => Err(SpecFault::RankTwice(*rank)),
            None => Ok(ranks),
        }
    }
}

impl From<&str> for Endpoints {
    fn from(base: &str) -> Self {
        Endpoints::Base(base.to_owned())
    }
}

impl Endpoints {
    fn each(&self, ranks: &[u32]) -> Result<Vec<String>, SpecFault> {
        match self {
            Endpoints::Each(each) => {
                if each.len() != ranks.len() {
                    let (endpoints, ranks) = (each.len(), ranks.len());
                    return Err(SpecFault::EndpointCount { endpoints, ranks });
                }
                each.iter().try_for_each(|endpoint| parse(endpoint).map(drop))?;
                Ok(each.clone())
            }
            Endpoints::Base(base) => match (parse(base)?, ranks) {
                (Parsed::Tcp { host, port }, _) => {
                    let of = |&rank: &u32| match u32::from(port).checked_add(rank) {
                        Some(port) if port <= u16::MAX.into() => Ok(format!("tcp://{host}:{port}")),
                        _ => Err(SpecFault::PortTooHigh(base.clone())),
                    };
                    ranks.iter().map(of).collect()
                }
                (Parsed::Ipc, [_]) => Ok(vec![base.clone()]),
                (Parsed::Ipc, _) => Err(SpecFault::NoPort(base.clone())),
            },
        }
    }
}

enum Parsed<'a> {
    Tcp { host: &'a str, port: u16 },
    Ipc,
}

fn parse(endpoint: &str) -> Result<Parsed<'_>, SpecFault> {
    let fault = || SpecFault::NoEndpoint(endpoint.to_owned());
    if let Some(path) = endpoint.strip_prefix("ipc://") {
        return if path.is_empty() || path.contains('\0') { Err(fault()) } else { Ok(Parsed::Ipc) };
    }
    let address = endpoint.strip_prefix("tcp://").ok_or_else(fault)?;
    let (host, port) = address.rsplit_once(':').ok_or_else(fault)?;
    let port: u16 = port.parse().map_err(|_| fault())?;
    if host.is_empty() || host.contains(['\0', ' ', '/']) || port == 0 {
        return Err(fault());
    }
    Ok(Parsed::Tcp { host, port })
}

/// The ids that are there twice are refused, as is what is wrong with one.
///
/// # Errors
/// The first fault found.
pub(super) fn check_all(workers: &[WorkerSpec]) -> Result<(), SpecError> {
    let mut ids = BTreeSet::new();
    for worker in workers {
        worker.check()?;
        if !ids.insert(worker.id) {
            return Err(SpecError { id: worker.id, fault: SpecFault::IdTwice });
        }
    }
    Ok(())
}
