//! The fleet as a file that is watched.
//!
//! ```toml
//! [[worker]]
//! id = 7
//! events = "tcp://10.0.0.7:5557"
//! replay = "tcp://10.0.0.7:5657"
//! engine = "vllm"
//! block_size = 16
//! ranks = 2
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fs, io};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::{error, info};

use super::spec::{SpecError, WorkerSpec, check_all};
use super::{Fleet, Listed};

/// What a `workers.toml` says: a table `[[worker]]` for each
/// [worker](WorkerSpec).
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetFile {
    /// The workers.
    #[serde(default, rename = "worker")]
    pub workers: Vec<WorkerSpec>,
}

/// Why a file says nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// It cannot be read.
    Io(io::Error),
    /// It is no TOML of this form; the text says where.
    Toml(Box<toml::de::Error>),
    /// A worker in it cannot be followed.
    Spec(SpecError),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Io(error) => error.fmt(f),
            FileError::Toml(error) => error.fmt(f),
            FileError::Spec(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FileError {}

impl FleetFile {
    /// Reads it from text.
    ///
    /// # Errors
    /// It is not of this form, or a worker in it cannot be followed.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let file: Self = toml::from_str(text).map_err(|error| FileError::Toml(Box::new(error)))?;
        check_all(&file.workers).map_err(FileError::Spec)?;
        Ok(file)
    }

    /// Reads it from a file.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), or it cannot be read.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::parse(&fs::read_to_string(path).map_err(FileError::Io)?)
    }
}

/// A file that a fleet is kept to. Ends with its drop; the fleet stays as it
/// is.
pub struct Watch {
    error: Arc<Mutex<Option<String>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Reads the file now, and looks at it again `every` so often. What it
    /// says counts once two looks have found the same, so that a file that is
    /// being written is not taken at its half. A file that cannot be read, or
    /// says nothing that can be followed, changes nothing. Nor does one that
    /// has become empty, as where a disk is full: `worker = []` says that
    /// there are no workers.
    ///
    /// The content is compared, so it does not matter how it is replaced.
    ///
    /// # Errors
    /// The file as it is now is of no use.
    pub fn start(fleet: Arc<Fleet>, path: PathBuf, every: Duration) -> Result<Self, FileError> {
        let text = fs::read_to_string(&path).map_err(FileError::Io)?;
        fleet.set_listed(FleetFile::parse(&text)?.workers).map_err(FileError::Spec)?;
        let error = Arc::new(Mutex::new(None));
        let (stop, stopped) = channel();
        let mut looks = Looks { fleet, path, done: Ok(text), before: None, error: error.clone() };
        let run = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                looks.look();
            }
        };
        let named = thread::Builder::new().name("kvradix-workers".to_owned());
        let thread = named.spawn(run).map_err(FileError::Io)?;
        Ok(Self { error, stop: Some(stop), thread: Some(thread) })
    }

    /// What is wrong with the file now, if it is not followed.
    pub fn error(&self) -> Option<String> {
        self.error.lock().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("error", &self.error()).finish_non_exhaustive()
    }
}

/// One look after the other.
struct Looks {
    fleet: Arc<Fleet>,
    path: PathBuf,
    /// What the fleet was last kept to, or told it could not be.
    done: Result<String, String>,
    /// What the last look found, if it was not done.
    before: Option<Result<String, String>>,
    error: Arc<Mutex<Option<String>>>,
}

impl Looks {
    fn look(&mut self) {
        let now = fs::read_to_string(&self.path).map_err(|error| error.to_string());
        if now == self.done {
            self.before = None;
            return;
        }
        if self.before.as_ref() != Some(&now) {
            self.before = Some(now);
            return;
        }
        let set = now.clone().and_then(|text| self.set(&text));
        match &set {
            Ok(Listed { added, changed, removed }) => {
                info!(?added, ?changed, ?removed, "the workers' file has changed");
            }
            Err(error) => {
                error!(path = %self.path.display(), error, "the workers' file is of no use")
            }
        }
        *self.error.lock() = set.err();
        self.done = now;
        self.before = None;
    }

    fn set(&self, text: &str) -> Result<Listed, String> {
        if text.trim().is_empty() {
            return Err("it is empty; `worker = []` says that there are no workers".to_owned());
        }
        let file = FleetFile::parse(text).map_err(|error| error.to_string())?;
        self.fleet.set_listed(file.workers).map_err(|error| error.to_string())
    }
}
