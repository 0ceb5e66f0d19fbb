//! What a worker holds, as events that load into an empty index.
//!
//! The worker's lane is locked throughout, so its own holdings stand still
//! and with them every node named here: a node that is held, or an ancestor
//! of one, is in the tree. Each node is read once, under its lock; what other
//! workers do to it before or after makes no difference to this worker. Pins
//! are taken for a node at a time: an export may take long.
//!
//! A block that the worker does not hold but whose descendants it does is
//! stored under a temporary name and removed by the last event.

use super::link::owner_of;
use super::names::Names;
use super::node::Node;
use super::place::Place;
use super::shared::Shared;
use super::{Holdings, Tree};
use crate::sync::rank::Rank;
use crate::sync::{Arc, Fault, Fold, HashMap, HashSet, fault, pin};
use crate::trace::Span;
use crate::{Block, Event, LocalHash, SequenceHash, WorkerId};

/// A node that the export passes through.
struct Stop {
    node: Arc<Node>,
    /// The stop above, unless it is the root.
    above: Option<usize>,
    /// How much of the run has to be there.
    len: u32,
    /// What the export calls the run's blocks.
    names: Vec<SequenceHash>,
}

/// A block as the export finds it.
struct Seen {
    local: LocalHash,
    column_name: SequenceHash,
    held: bool,
}

struct Export<'a> {
    tree: &'a Tree,
    holdings: &'a Holdings,
    worker: WorkerId,
    stops: Vec<Stop>,
    /// Private names by place, in ascending order.
    aliases: HashMap<Place, Vec<SequenceHash>, Fold>,
    /// Temporary names, in the order of their making.
    temporary: Vec<SequenceHash>,
    taken: HashSet<SequenceHash, Fold>,
    /// The next name to try where a column's will not do.
    fresh: u64,
}

impl Shared {
    /// See [`Index::export`](crate::Index::export); `None` if the worker is
    /// not known.
    pub(crate) fn export(&self, worker: WorkerId) -> Option<Vec<Event>> {
        let _span = Span::export(worker);
        self.with_lane(worker, |tree, holdings| {
            let mut export = Export::new(tree, holdings, worker);
            export.find_stops();
            export.events()
        })
    }
}

impl<'a> Export<'a> {
    fn new(tree: &'a Tree, holdings: &'a Holdings, worker: WorkerId) -> Self {
        let mut aliases = HashMap::<Place, Vec<SequenceHash>, Fold>::with_hasher(tree.fold);
        for (name, place) in holdings.names.privates() {
            aliases.entry(place).or_default().push(name);
        }
        for (_, names) in aliases.iter_mut() {
            names.sort_unstable();
        }
        Self {
            tree,
            holdings,
            worker,
            stops: Vec::new(),
            aliases,
            temporary: Vec::new(),
            taken: HashSet::with_hasher(tree.fold),
            fresh: u64::MAX,
        }
    }

    /// Lists every node with something of the worker's, each after the one it
    /// hangs from.
    fn find_stops(&mut self) {
        let mut known = HashMap::<usize, usize, Fold>::with_hasher(self.tree.fold);
        let mut path: Vec<Arc<Node>> = Vec::new();
        for (start, ()) in self.holdings.names.nodes.iter() {
            let guard = pin();
            let mut node = owner_of(Names::node_of(start, &guard), &guard);
            drop(guard);
            // Up to a node that is listed, or the root.
            let mut above = loop {
                let address = std::ptr::from_ref(&*node).addr();
                if let Some(&at) = known.get(&address) {
                    break Some(at);
                }
                let parent = node.read(Rank::Child).parent.upgrade();
                path.push(node);
                match parent {
                    Some(parent) if !parent.is_root() => node = parent,
                    _ => break None,
                }
            };
            // And down again.
            while let Some(node) = path.pop() {
                if let Some(above) = above {
                    let stop: &mut Stop = &mut self.stops[above];
                    stop.len = stop.len.max(node.offset());
                }
                known.insert(std::ptr::from_ref(&*node).addr(), self.stops.len());
                let len = self.held_end(&node);
                self.stops.push(Stop { node, above, len, names: Vec::new() });
                above = Some(self.stops.len() - 1);
            }
        }
    }

    /// One more than the last position in `node` that the worker holds.
    fn held_end(&self, node: &Node) -> u32 {
        let (slot, guard) = (self.holdings.names.slot, pin());
        let half = node.read(Rank::Child);
        match half.mask(slot) {
            Some(mask) => mask.end(),
            None => super::levels::cutoff_of(node.view(&guard).levels(), slot),
        }
    }

    fn events(mut self) -> Vec<Event> {
        let mut events = Vec::with_capacity(self.stops.len());
        for at in 0..self.stops.len() {
            self.store(at, &mut events);
        }
        if !self.temporary.is_empty() {
            events.push(Event::Removed { worker: self.worker, names: self.temporary });
        }
        events
    }

    /// The stores of one node: its run, then second names one by one.
    fn store(&mut self, at: usize, events: &mut Vec<Event>) {
        fault(Fault::Exporting);
        let stop = &self.stops[at];
        let (node, worker) = (stop.node.clone(), self.worker);
        let parent = stop.above.map(|above| {
            let offset = node.offset() as usize;
            self.stops[above].names[offset - 1]
        });
        let seen = self.read(&node, stop.len);
        let mut blocks = Vec::with_capacity(seen.len());
        let mut seconds = Vec::new();
        for (position, block) in (0..).zip(&seen) {
            let place = Place::new(&node, position);
            let canonical = block.held && self.holdings.names.knows_canonical(place);
            let aliases = if block.held { self.aliases.remove(&place) } else { None };
            let mut names = canonical.then_some(block.column_name).into_iter();
            let mut names = names.by_ref().chain(aliases.into_iter().flatten());
            let sequence = match names.next() {
                Some(name) => name,
                None => self.temporary_name(block.column_name),
            };
            blocks.push(Block { sequence, local: block.local });
            seconds.extend(names.map(|name| (position, name)));
        }
        self.stops[at].names = blocks.iter().map(|block| block.sequence).collect();

        let second_stores = seconds.into_iter().map(|(position, sequence)| {
            let above = (position as usize).checked_sub(1).map(|above| blocks[above].sequence);
            let local = blocks[position as usize].local;
            let blocks = vec![Block { sequence, local }];
            Event::Stored { worker, parent: above.or(parent), blocks }
        });
        let second_stores: Vec<_> = second_stores.collect();
        events.push(Event::Stored { worker, parent, blocks });
        events.extend(second_stores);
    }

    /// The first `len` blocks of a run.
    fn read(&self, node: &Node, len: u32) -> Vec<Seen> {
        let guard = pin();
        let half = node.read(Rank::Child);
        let view = node.view(&guard);
        let levels = view.levels();
        let see = |at| Seen {
            local: half.columns.local(at),
            column_name: half.columns.name(at),
            held: half.holds(levels, self.holdings.names.slot, at),
        };
        (0..len).map(see).collect()
    }

    /// A name for a hole: the column's unless the worker or another hole uses
    /// it, else a fresh one.
    fn temporary_name(&mut self, column_name: SequenceHash) -> SequenceHash {
        let mut name = column_name;
        while self.taken.contains(&name) || self.is_name(name) {
            name = SequenceHash(self.fresh);
            self.fresh -= 1;
        }
        self.taken.insert(name);
        self.temporary.push(name);
        name
    }

    fn is_name(&self, name: SequenceHash) -> bool {
        self.holdings.names.resolve(self.tree, name, &pin()).is_some()
    }
}
