//! A fleet of engines, followed over ZeroMQ.
//!
//! A [`Fleet`] subscribes to every rank of every worker it is told of and
//! keeps their [residency](crate::intake) true: it watches the sequence
//! numbers, heals gaps by the publishers' replay sockets, notices engines that
//! begin anew, that are gone, and that are back. Who belongs to it is said by
//! calls, or by a [file](FleetFile) that is watched.
//!
//! ```no_run
//! use std::num::NonZeroU32;
//!
//! use kvradix::fleet::{Engine, Fleet, Options, Question, WorkerSpec};
//! use kvradix::intake::Prompt;
//!
//! let fleet = Fleet::new(Options::default())?;
//! let block_size = NonZeroU32::new(16).expect("not zero");
//! let mut worker = WorkerSpec::new(7, "tcp://10.0.0.7:5557", block_size);
//! worker.replay = Some("tcp://10.0.0.7:5657".into());
//! worker.engine = Engine::Vllm;
//! fleet.add(worker)?;
//!
//! let found = fleet.ask(&Question::tokens(Prompt::new(&[1; 64])))?;
//! for found in &found {
//!     println!("{} has {} blocks on its device", found.worker, found.device);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is true when
//!
//! Each rank has a [`State`]. While it is [live](State::Live) its blocks are
//! those that its engine holds, but for batches under way. While it is
//! [degraded](State::Degraded) they are some of those: what the engine stored
//! before its history begins is not known. While it is
//! [healing](State::Healing) they are those of the moment before the gap.
//! [Dead](State::Dead) ones keep theirs for a
//! [while](Options::forget_after).

mod file;
mod follower;
mod members;
mod options;
mod question;
mod source;
mod spec;
mod status;
mod wire;

pub use file::{FileError, FleetFile, Watch};
pub use members::{AddError, Fleet, Listed, Model, WorkerStatus};
pub use options::Options;
pub use question::{Found, Question, QuestionError, Wanted};
pub use spec::{Attach, Endpoints, Engine, MAX_RANKS, Ranks, SpecError, SpecFault, WorkerSpec};
pub use status::{Blocks, PublisherStatus, State, Totals};
