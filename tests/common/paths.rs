//! What a maker of streams believes of paths and workers. Only the choice of
//! the next event hangs on it, never what is right.

use std::collections::HashMap;

/// A path of contents, by number; 0 is the root.
pub type Place = u32;

/// Every path the stream ever took.
#[derive(Default)]
pub struct Paths {
    pub above: Vec<(Place, u64)>,
    /// A hash of the whole path, the same in every stream.
    pub hash: Vec<u64>,
    below: HashMap<(Place, u64), Place>,
    pub children: Vec<Vec<Place>>,
}

impl Paths {
    pub fn new() -> Self {
        Paths {
            above: vec![(0, 0)],
            hash: vec![0],
            below: HashMap::new(),
            children: vec![Vec::new()],
        }
    }

    pub fn step(&mut self, above: Place, content: u64) -> Place {
        *self.below.entry((above, content)).or_insert_with(|| {
            let place = self.above.len() as Place;
            self.above.push((above, content));
            self.hash.push(mix(self.hash[above as usize] ^ mix(content)));
            self.children.push(Vec::new());
            self.children[above as usize].push(place);
            place
        })
    }

    pub fn contents(&self, mut place: Place) -> Vec<u64> {
        let mut contents = Vec::new();
        while place != 0 {
            let (above, content) = self.above[place as usize];
            contents.push(content);
            place = above;
        }
        contents.reverse();
        contents
    }
}

/// What a worker is believed to hold.
#[derive(Default, Clone)]
pub struct State {
    pub names: Vec<u64>,
    /// Where a name stands in `names`, and its place.
    pub at: HashMap<u64, (usize, Place)>,
    pub held: HashMap<Place, Vec<u64>>,
    /// The names of the last store, in its order.
    pub last: Vec<u64>,
}

impl State {
    pub fn forget(&mut self, name: u64) {
        let Some((position, place)) = self.at.remove(&name) else { return };
        self.names.swap_remove(position);
        if let Some(moved) = self.names.get(position) {
            self.at.get_mut(moved).unwrap().0 = position;
        }
        let held = self.held.get_mut(&place).unwrap();
        held.retain(|&other| other != name);
        if held.is_empty() {
            self.held.remove(&place);
        }
    }

    pub fn learn(&mut self, name: u64, place: Place) {
        self.forget(name);
        self.at.insert(name, (self.names.len(), place));
        self.names.push(name);
        self.held.entry(place).or_default().push(name);
    }
}

pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The two hashes at the ends are as good as any.
pub fn hash(number: u64) -> u64 {
    match number {
        1 => 0,
        2 => u64::MAX,
        number => mix(number),
    }
}
