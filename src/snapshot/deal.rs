//! Dealing out what is read to the threads that load it.
//!
//! The caller's thread reads and verifies frames. Workers are independent of
//! each other, so whole workers are dealt out, the next to the loader that has
//! the fewest names so far; a worker's frames reach its loader in their order.
//! Frames on their way share a budget of bytes, so that a reader far ahead
//! waits. The first fault stops everybody.

use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use super::contents::{Contents, Part};
use super::loader::{Job, Loader};
use super::read::{Frames, decode};
use super::{Cursor, Error};
use crate::{Index, WorkerId};

/// Bytes of frames that wait for loaders, at most, one frame more or less.
const AHEAD: usize = 32 << 20;

/// What reader and loaders share.
#[derive(Default)]
pub(super) struct State {
    /// The first fault of a loader.
    fault: Mutex<Option<Error>>,
    /// Bytes of frames on their way.
    ahead: Mutex<usize>,
    fewer: Condvar,
}

/// A frame on its way; its bytes count until it is dropped.
pub(super) struct Payload<'a> {
    pub(super) bytes: Vec<u8>,
    /// Where its frame begins.
    pub(super) at: u64,
    state: &'a State,
}

impl State {
    fn failed(&self) -> bool {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Does what comes, up to the first fault.
    fn run(&self, mut loader: Loader<'_>, jobs: Receiver<Job<'_>>) {
        for job in jobs {
            if let Err(error) = loader.take(job) {
                let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
                fault.get_or_insert(error);
                return;
            }
        }
    }

    /// Waits until so few bytes are on their way that these may be, too.
    fn payload(&self, bytes: Vec<u8>, at: u64) -> Payload<'_> {
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = self.fewer.wait_while(ahead, |ahead| *ahead > AHEAD);
        *ahead.unwrap_or_else(PoisonError::into_inner) += bytes.len();
        Payload { bytes, at, state: self }
    }
}

impl Drop for Payload<'_> {
    fn drop(&mut self) {
        let mut ahead = self.state.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        *ahead -= self.bytes.len();
        self.state.fewer.notify_one();
    }
}

/// Where whole workers go.
enum Loaders<'a> {
    /// The reader's own thread loads.
    Here(Loader<'a>),
    /// Of each, the names it has got so far.
    Threads(Vec<(u64, Sender<Job<'a>>)>),
}

impl<'a> Loaders<'a> {
    /// Whose the next worker, of so many names, shall be.
    fn next(&mut self, names: u64) -> usize {
        let Loaders::Threads(loaders) = self else { return 0 };
        let fewest = (0..loaders.len()).min_by_key(|&loader| loaders[loader].0);
        let loader = fewest.expect("there is one");
        loaders[loader].0 = loaders[loader].0.saturating_add(names).saturating_add(1);
        loader
    }

    /// Hands over; whether anybody took it. A loader that is gone has left
    /// word why; or it has panicked, and so does the scope.
    fn send(&mut self, to: usize, job: Job<'a>) -> Result<bool, Error> {
        match self {
            Loaders::Here(loader) => loader.take(job).map(|()| true),
            Loaders::Threads(loaders) => Ok(loaders[to].1.send(job).is_ok()),
        }
    }
}

/// Loads all frames by so many threads; the cursors. The index's limits hold
/// for the whole: its parts may be above them meanwhile, by a batch each.
pub(super) fn load<R: Read>(
    index: &Index,
    frames: &mut Frames<R>,
    threads: usize,
) -> Result<Vec<(WorkerId, Cursor)>, Error> {
    let lenient = Lenient::new(index, threads.max(1));
    let cursors = load_leniently(index, frames, threads)?;
    drop(lenient);
    // Also of the tree, if anybody is there to have filled it.
    let exceeded = cursors.iter().find_map(|(worker, _)| index.exceeded(*worker));
    exceeded.map_or(Ok(cursors), |error| Err(Error::Refused { error }))
}

/// While it lives, the index's limits are lenient.
struct Lenient<'a>(&'a Index);

impl<'a> Lenient<'a> {
    fn new(index: &'a Index, loaders: usize) -> Self {
        index.set_loaders(loaders);
        Self(index)
    }
}

impl Drop for Lenient<'_> {
    fn drop(&mut self) {
        self.0.set_loaders(0);
    }
}

fn load_leniently<R: Read>(
    index: &Index,
    frames: &mut Frames<R>,
    threads: usize,
) -> Result<Vec<(WorkerId, Cursor)>, Error> {
    let state = State::default();
    if threads == 0 {
        return deal(frames, &state, Loaders::Here(Loader::new(index)));
    }
    let read = thread::scope(|scope| {
        let mut loaders = Vec::new();
        for number in 0..threads {
            let (sender, jobs) = channel();
            let state = &state;
            let thread = thread::Builder::new().name(format!("kvradix-load-{number}"));
            match thread.spawn_scoped(scope, move || state.run(Loader::new(index), jobs)) {
                Ok(_) => loaders.push((0, sender)),
                // Fewer will do.
                Err(_) if number > 0 => break,
                Err(error) => return Err(Error::Io(error)),
            }
        }
        deal(frames, &state, Loaders::Threads(loaders))
    });
    // A loader's fault comes before the end of reading that it has caused.
    let fault = state.fault.into_inner().unwrap_or_else(PoisonError::into_inner);
    fault.map_or(read, Err)
}

/// Reads all frames and deals them out; the cursors, unless a loader has
/// failed.
fn deal<'a, R: Read>(
    frames: &mut Frames<R>,
    state: &'a State,
    mut loaders: Loaders<'a>,
) -> Result<Vec<(WorkerId, Cursor)>, Error> {
    let (mut contents, mut payload) = (Contents::default(), Vec::new());
    // The worker's loader, and how many names are to be there in the end.
    let mut current: Option<(usize, u64)> = None;
    loop {
        let at = frames.next(&mut payload)?;
        let part = contents.take(&decode(&payload, at)?, at)?;
        let mut taken = true;
        if let (Some((to, names)), Part::Worker(..) | Part::End) = (current, &part) {
            taken = loaders.send(to, Job::Done(names))?;
        }
        match (part, current) {
            (Part::Worker(worker, names), _) => {
                let to = loaders.next(names);
                taken &= loaders.send(to, Job::Worker(worker))?;
                current = Some((to, names));
            }
            (Part::Content, Some((to, _))) => {
                let payload = state.payload(std::mem::take(&mut payload), at);
                taken &= loaders.send(to, Job::Payload(payload))?;
            }
            (Part::Content, None) => unreachable!("contents begin with a worker"),
            (Part::End, _) => return Ok(contents.cursors),
        }
        if !taken || state.failed() {
            return Ok(Vec::new());
        }
    }
}
