//! A replay with all threads at once, as a router runs.

use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use crossbeam::channel::{Receiver, Sender, bounded};
use kvradix::{Event, Index, Matches};

use super::monitor::Monitor;
use super::outcome::Played;
use crate::args::ReplayArgs;
use crate::chain::Request;
use crate::fleet::{Fleet, Tally};
use crate::progress;
use crate::router::Decision;
use crate::threads::{join_all, spawn};
use crate::workload::Workload;

/// The most events that are applied in one call.
const BATCH: usize = 64;

/// Plays the whole workload. Routers and appliers run side by side; the time
/// taken ends when the last event is visible.
///
/// # Errors
///
/// The index refused an event, or a thread panicked.
pub fn play(
    args: &ReplayArgs,
    workload: &Workload,
    fleet: &Fleet,
    index: &Index,
) -> Result<Played> {
    let monitor = &Monitor::new(args.routers.into())?;
    let bar = &progress::bar(workload.total(), "requests");
    let played = thread::scope(|scope| {
        let (queues, receivers): (Vec<Sender<Event>>, Vec<Receiver<Event>>) =
            (0..args.appliers).map(|_| bounded(args.queue as usize)).unzip();
        let (stop, stopped) = bounded::<()>(0);

        let watch = move || monitor.watch(&stopped, index, bar, args.plot.is_some());
        let watcher = spawn(scope, "watcher".to_owned(), watch)?;

        let started = Instant::now();
        let mut appliers = Vec::new();
        for (at, events) in receivers.into_iter().enumerate() {
            let run = move || apply(index, monitor, &events);
            appliers.push(spawn(scope, format!("applier {at}"), run)?);
        }
        let mut routers = Vec::new();
        for at in 0..args.routers.into() {
            let queues = queues.clone();
            routers.push(spawn(scope, format!("router {at}"), move || {
                route(at, args.balance, workload, fleet, index, monitor, &queues)
            })?);
        }
        drop(queues);

        let tallies = join_all(routers);
        // What an applier says is why a router could not go on.
        join_all(appliers)?;
        index.flush();
        let took = started.elapsed();
        drop(stop);
        let watched = watcher.join()??;
        Ok(Played { tally: tallies?.into_iter().sum(), took, watched, verified: None })
    });
    bar.finish_and_clear();
    played
}

/// A router thread: takes requests until there are none.
fn route(
    router: usize,
    balance: f64,
    workload: &Workload,
    fleet: &Fleet,
    index: &Index,
    monitor: &Monitor,
    queues: &[Sender<Event>],
) -> Result<Tally> {
    let mut request = Request::default();
    let mut matches = Matches::new();
    let mut decision = Decision::new(balance);
    let mut tally = Tally::default();
    while workload.next(&mut request) {
        monitor.query(router, index, request.query(), &mut matches);
        let mut lost = false;
        let mut emit = |event: Event| {
            // One worker, one queue: its events stay in order.
            let queue = event.worker().id as usize % queues.len();
            monitor.queued();
            lost |= queues[queue].send(event).is_err();
        };
        tally = tally + fleet.dispatch(&request, &matches, &mut decision, &mut emit);
        if lost {
            bail!("an applier has stopped");
        }
        monitor.served();
    }
    Ok(tally)
}

/// An applier thread: applies its queue's events until no router is left.
fn apply(index: &Index, monitor: &Monitor, events: &Receiver<Event>) -> Result<()> {
    let mut batch = Vec::with_capacity(BATCH);
    while let Ok(first) = events.recv() {
        batch.clear();
        batch.push(first);
        batch.extend(events.try_iter().take(BATCH - 1));
        monitor.unqueued(batch.len());
        if let Some(refused) = index.apply_all(&batch).first() {
            bail!("the index refused an event of an engine: {}", refused.error);
        }
    }
    Ok(())
}
