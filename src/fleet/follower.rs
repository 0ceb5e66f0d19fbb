//! A thread that follows many publishers.
//!
//! It waits for whatever socket has something, gives each a turn, and looks at
//! the clock. A publisher is followed by one thread, which also applies its
//! batches, so they keep their order and there is no queue between. Where the
//! thread falls behind, the sockets' own bounded queues fill, then those of
//! the publishers; what these drop is a gap.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use zmq::{Context, POLLIN, PULL, PUSH, PollItem, Socket};

use super::options::Options;
use super::source::{Shown, Source};
use super::spec::{Publisher, WorkerSpec};
use crate::intake::{Decoder, Rank};

/// Sources that share a context: its limit is 1,023 sockets, a source has up
/// to four, one of them inside of ZeroMQ.
const SOURCES_PER_CONTEXT: usize = 200;

/// Fewer sources than this are looked at for each batch.
const FEW: usize = 8;

/// What a follower is asked to do.
enum Command {
    Follow(Box<Follow>),
    /// No longer follow the worker; the answer is that it is done.
    Leave(u64, Sender<()>),
    Stop,
}

/// One publisher to follow.
pub(super) struct Follow {
    pub(super) spec: Arc<WorkerSpec>,
    pub(super) publisher: Publisher,
    pub(super) rank: Rank,
    pub(super) shown: Arc<Mutex<Shown>>,
}

/// The handle of a thread that follows publishers. It ends with it.
pub(super) struct Follower {
    commands: Sender<Command>,
    /// Interrupts the thread's wait.
    wake: Mutex<Socket>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    pub(super) fn start(number: usize, options: Arc<Options>) -> Result<Self, zmq::Error> {
        let context = Context::new();
        let name = format!("inproc://wake-{number}");
        let woken = context.socket(PULL)?;
        woken.bind(&name)?;
        let wake = context.socket(PUSH)?;
        wake.set_linger(0)?;
        wake.connect(&name)?;
        let (commands, received) = channel();
        let run = move || {
            let decoder = Decoder::new(options.payload);
            let contexts = Contexts { current: context, sources: 0, named: 0 };
            Run { received, woken, contexts, options, decoder, sources: Vec::new() }.run();
        };
        let named = thread::Builder::new().name(format!("kvradix-follow-{number}"));
        // No thread to be had: nothing this process could do would work.
        let thread = named.spawn(run).expect("a thread can be started");
        Ok(Self { commands, wake: Mutex::new(wake), thread: Some(thread) })
    }

    pub(super) fn follow(&self, follow: Follow) {
        self.send(Command::Follow(Box::new(follow)));
    }

    /// Returns once the worker's sockets are closed.
    pub(super) fn leave(&self, worker: u64) {
        let (done, wait) = channel();
        self.send(Command::Leave(worker, done));
        // An error is a thread that has ended: its sockets are closed.
        _ = wait.recv();
    }

    fn send(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            // If its queue is full, the thread is awake.
            _ = self.wake.lock().send(&[][..], zmq::DONTWAIT);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Contexts for new sources.
struct Contexts {
    current: Context,
    sources: usize,
    named: u64,
}

impl Contexts {
    fn next(&mut self) -> (Context, String) {
        if self.sources == SOURCES_PER_CONTEXT {
            self.current = Context::new();
            self.sources = 0;
        }
        self.sources += 1;
        self.named += 1;
        (self.current.clone(), format!("inproc://monitor-{}", self.named))
    }
}

/// What the thread has.
struct Run {
    received: Receiver<Command>,
    woken: Socket,
    contexts: Contexts,
    options: Arc<Options>,
    decoder: Decoder,
    sources: Vec<Source>,
}

impl Run {
    fn run(mut self) {
        let mut looked = Instant::now();
        loop {
            let began = Instant::now();
            let patience = self.patience();
            let readable = self.wait(patience);
            let now = Instant::now();
            let stalled = stall(now - looked, patience, &self.options);
            looked = now;
            let mut busy = false;
            for (source, readable) in self.sources.iter_mut().zip(readable) {
                busy |= readable != [false; 3];
                source.excuse(stalled);
                source.read(readable, &mut self.decoder, &self.options, now);
                source.tick(&mut self.decoder, &self.options, now);
            }
            if self.obey() {
                return;
            }
            if busy && self.sources.len() > FEW {
                // One look at all sockets for more than one batch.
                thread::sleep(self.options.pace.saturating_sub(began.elapsed()));
            }
        }
    }

    /// Waits until there is something to read or to do. Says what is readable.
    fn wait(&self, patience: Option<Duration>) -> Vec<[bool; 3]> {
        let sockets: Vec<_> = self.sources.iter().map(Source::sockets).collect();
        let mut items = vec![self.woken.as_poll_item(POLLIN)];
        let open = sockets.iter().flatten().flatten();
        items.extend(open.map(|socket| socket.as_poll_item(POLLIN)));
        // Interrupted by a signal: there is nothing to read yet.
        _ = zmq::poll(&mut items, patience.map_or(-1, milliseconds));
        while self.woken.recv_bytes(zmq::DONTWAIT).is_ok() {}
        let mut items = items.iter().skip(1);
        let mut is_readable = |socket: Option<&Socket>| {
            socket.is_some() && items.next().is_some_and(PollItem::is_readable)
        };
        sockets.iter().map(|sockets| sockets.map(&mut is_readable)).collect()
    }

    /// How long to wait until something is due, if anything ever is.
    fn patience(&self) -> Option<Duration> {
        let due = self.sources.iter().map(|source| source.due(&self.options)).min()?;
        Some(due.saturating_duration_since(Instant::now()).min(Duration::from_secs(3_600)))
    }

    /// Does what was asked for. Whether to end.
    fn obey(&mut self) -> bool {
        loop {
            match self.received.try_recv() {
                Ok(Command::Follow(follow)) => {
                    let (context, monitor) = self.contexts.next();
                    let source =
                        Source::new(*follow, context, monitor, &self.options, Instant::now());
                    self.sources.push(source);
                }
                Ok(Command::Leave(worker, done)) => {
                    self.sources.retain(|source| source.worker() != worker);
                    // Whoever asked may have gone.
                    _ = done.send(());
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return true,
                Err(TryRecvError::Empty) => return false,
            }
        }
    }
}

/// Rounded up: nothing is due before.
fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(i64::MAX)
}

/// For how long the thread did not look at its sockets, though it was to wait
/// no longer than `patience`: the process was stopped, or a history took long.
/// That is no silence of a publisher's. Less than counts is none.
fn stall(since: Duration, patience: Option<Duration>, options: &Options) -> Duration {
    let stalled = patience.map_or(Duration::ZERO, |patience| since.saturating_sub(patience));
    if stalled < options.dead_after / 8 { Duration::ZERO } else { stalled }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_what_goes_beyond_the_wait_and_is_worth_counting() {
        let options = Options { dead_after: Duration::from_secs(8), ..Options::default() };
        let seconds = Duration::from_secs_f64;
        let of = |since, patience| stall(seconds(since), patience, &options);
        assert_eq!(of(0.5, Some(seconds(0.4))), Duration::ZERO);
        assert_eq!(of(1.3, Some(seconds(0.4))), Duration::ZERO);
        assert_eq!(of(30.0, Some(seconds(0.5))), seconds(29.5));
        assert_eq!(of(30.0, Some(seconds(60.0))), Duration::ZERO);
        assert_eq!(of(30.0, None), Duration::ZERO);
    }
}
