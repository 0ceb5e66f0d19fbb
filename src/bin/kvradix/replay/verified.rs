//! A replay that checks every answer.
//!
//! Goes in rounds, so that index and reference have taken the same events when
//! a query is made: first the round's queries, by all router threads; then, in
//! order, the requests are served; then their events are applied, by all
//! applier threads, each with workers of its own; then a flush.

use std::thread;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use crossbeam::channel::bounded;
use kvradix::reference::ReferenceIndex;
use kvradix::{Event, Index, Match, Matches, Stats};

use super::monitor::Monitor;
use super::outcome::Played;
use crate::args::{Names, ReplayArgs};
use crate::chain::Request;
use crate::fleet::{Fleet, Tally};
use crate::progress;
use crate::router::Decision;
use crate::threads::{join_all, spawn};
use crate::workload::Workload;

/// Requests of a round.
const ROUND: usize = 32;

/// Plays the whole workload, comparing every answer as a whole, and after
/// every round what both indexes hold.
///
/// # Errors
///
/// The first difference, a refused event or a panicked thread.
pub fn play(
    args: &ReplayArgs,
    workload: &Workload,
    fleet: &Fleet,
    index: &Index,
) -> Result<Played> {
    let monitor = &Monitor::new(args.routers.into())?;
    let bar = &progress::bar(workload.total(), "requests");
    let played = thread::scope(|scope| {
        let (stop, stopped) = bounded::<()>(0);
        let watch = move || monitor.watch(&stopped, index, bar, args.plot.is_some());
        let watcher = spawn(scope, "watcher".to_owned(), watch)?;
        let started = Instant::now();
        let tally = play_rounds(args, workload, fleet, index, monitor)?;
        let took = started.elapsed();
        drop(stop);
        let verified = Some(tally.requests);
        Ok(Played { tally, took, watched: watcher.join()??, verified })
    });
    bar.finish_and_clear();
    played
}

fn play_rounds(
    args: &ReplayArgs,
    workload: &Workload,
    fleet: &Fleet,
    index: &Index,
    monitor: &Monitor,
) -> Result<Tally> {
    let mut reference = ReferenceIndex::new();
    let mut round = vec![Asked::default(); ROUND];
    let mut decision = Decision::new(args.balance);
    let mut tally = Tally::default();
    loop {
        let filled = round.iter_mut().map(|asked| workload.next(&mut asked.request));
        let asked = filled.take_while(|filled| *filled).count();
        if asked == 0 {
            break;
        }
        query(args, &mut round[..asked], tally.requests, index, &reference, monitor)?;
        let mut events = vec![Vec::new(); args.appliers.into()];
        let mut emit = |event: Event| {
            let applier = event.worker().id as usize % events.len();
            events[applier].push(event);
        };
        for Asked { request, matches } in &round[..asked] {
            tally = tally + fleet.dispatch(request, matches, &mut decision, &mut emit);
            monitor.served();
        }
        apply(&events, index, &mut reference)?;
        compare_sizes(&index.stats(), &reference.stats(), tally.requests)?;
    }
    compare_lookup(args.names, &index.stats(), reference.held_places())?;
    Ok(tally)
}

/// A request and the index's answer.
#[derive(Clone, Default, Debug)]
struct Asked {
    request: Request,
    matches: Matches,
}

/// Looks up the round's requests, shared out among the router threads, and
/// compares every answer.
fn query(
    args: &ReplayArgs,
    round: &mut [Asked],
    asked_before: u64,
    index: &Index,
    reference: &ReferenceIndex,
    monitor: &Monitor,
) -> Result<()> {
    let share = round.len().div_ceil(args.routers.into());
    thread::scope(|scope| {
        let mut routers = Vec::new();
        for (router, share_of) in round.chunks_mut(share).enumerate() {
            let first = asked_before + (router * share) as u64 + 1;
            routers.push(spawn(scope, format!("router {router}"), move || {
                let mut expected = Matches::new();
                for (number, Asked { request, matches }) in (first..).zip(share_of) {
                    monitor.query(router, index, request.query(), matches);
                    reference.matches_into(request.query(), &mut expected);
                    compare_answers(number, request, matches, &expected)?;
                }
                Ok(())
            })?);
        }
        join_all(routers).map(drop)
    })
}

/// Applies each list of events to the index in a thread of its own, and all of
/// them to the reference.
fn apply(events: &[Vec<Event>], index: &Index, reference: &mut ReferenceIndex) -> Result<()> {
    thread::scope(|scope| {
        let mut appliers = Vec::new();
        for (at, events) in events.iter().enumerate() {
            appliers.push(spawn(scope, format!("applier {at}"), move || {
                match index.apply_all(events).first() {
                    Some(refused) => bail!("the index refused an event: {}", refused.error),
                    None => Ok(()),
                }
            })?);
        }
        // Workers are independent, so their order among each other is free.
        if let Some(refused) = reference.apply_all(events.iter().flatten()).first() {
            bail!("the reference refused an event: {}", refused.error);
        }
        join_all(appliers).map(drop)
    })?;
    index.flush();
    Ok(())
}

/// Every worker and its depth must be the same in both answers.
fn compare_answers(
    number: u64,
    request: &Request,
    found: &Matches,
    expected: &Matches,
) -> Result<()> {
    let (found, expected) = (sorted(found), sorted(expected));
    if found == expected {
        return Ok(());
    }
    let all = found.iter().chain(&expected).map(|either| either.worker);
    let differs = |worker| depths(&found, worker) != depths(&expected, worker);
    let worker = all.filter(|worker| differs(*worker)).min();
    let about = worker.map_or_else(
        || "in the order of a worker's entries".to_owned(),
        |worker| {
            let says = |depths: Vec<u32>| match *depths {
                [] => "nothing".to_owned(),
                [depth] => format!("{depth} blocks"),
                _ => format!("{depths:?} blocks, several entries"),
            };
            let (found, expected) = (depths(&found, worker), depths(&expected, worker));
            format!("worker {worker}: index {}, reference {}", says(found), says(expected))
        },
    );
    bail!(
        "query {number} ({} blocks; {} workers in the index's answer, {} in the reference's) is \
         answered differently; {about}",
        request.prompt_blocks,
        found.len(),
        expected.len(),
    )
}

fn sorted(matches: &Matches) -> Vec<Match> {
    let mut all: Vec<Match> = matches.iter().collect();
    all.sort_unstable_by_key(|found| (found.worker, found.depth));
    all
}

fn depths(matches: &[Match], worker: kvradix::WorkerId) -> Vec<u32> {
    matches.iter().filter(|found| found.worker == worker).map(|found| found.depth).collect()
}

/// After a flush both must keep the same blocks.
fn compare_sizes(index: &Stats, reference: &Stats, requests: u64) -> Result<()> {
    for (what, found, expected) in [
        ("known workers", index.workers, reference.workers),
        ("held blocks", index.held_blocks, reference.held_blocks),
        ("blocks in the tree", index.tree_blocks, reference.tree_blocks),
        ("unknown removals", index.unknown_removals, reference.unknown_removals),
        ("pending removals", index.pending_removals, 0),
    ] {
        ensure!(
            found == expected,
            "after {requests} requests the index counts {found} {what}, the reference {expected}"
        );
    }
    Ok(())
}

/// The look-up keeps an entry for every held place if workers name alike, else
/// at most that.
fn compare_lookup(names: Names, index: &Stats, held_places: u64) -> Result<()> {
    let entries = index.lookup_entries;
    let right = match names {
        Names::Shared => entries == held_places,
        Names::PerWorker => entries <= held_places,
    };
    ensure!(right, "at the end there are {entries} look-up entries for {held_places} held places");
    Ok(())
}
