//! Where a block lies.

use parking_lot::Mutex;

/// One place that an engine keeps blocks in, told apart by the name it gives
/// its medium. Names are compared without regard to case.
///
/// `GPU`, and no name at all, is [`Tier::DEVICE`]; any other medium, known or
/// not, is not the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tier(u8);

/// The media that engines are known to have. A tier's number is the position
/// here, or after these the order in which others were met.
const KNOWN: [&str; 11] = [
    "GPU",
    "CPU",
    "CPU_PINNED",
    "CPU_TIER1",
    "CPU_TIER2",
    "DISK",
    "STORAGE",
    "FS",
    "OBJ",
    "EXTERNAL",
    "SHARED_STORAGE",
];

impl Tier {
    /// The memory that attention reads: a hit there costs nothing.
    pub const DEVICE: Tier = Tier(0);

    /// How many tiers can be told apart, the device among them.
    pub const MOST: usize = 24;

    /// A number below [`MOST`](Self::MOST).
    pub const fn number(self) -> usize {
        self.0 as usize
    }
}

/// A set of [`Tier`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TierSet(u32);

impl TierSet {
    /// The bits that may be set.
    pub(super) const ALL: u32 = (1 << Tier::MOST) - 1;

    pub(super) const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL)
    }

    /// Whether `tier` is in it.
    pub const fn has(self, tier: Tier) -> bool {
        self.0 & (1 << tier.0) != 0
    }

    /// Whether no tier is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The tiers in it.
    pub fn iter(self) -> impl Iterator<Item = Tier> {
        (0..Tier::MOST as u8).map(Tier).filter(move |&tier| self.has(tier))
    }
}

/// The media met so far.
#[derive(Debug, Default)]
pub(super) struct Media {
    others: Mutex<Vec<Box<str>>>,
}

impl Media {
    /// The tier of a medium, if it has one.
    pub(super) fn find(&self, medium: Option<&str>) -> Option<Tier> {
        let Some(name) = medium else { return Some(Tier::DEVICE) };
        known(name).or_else(|| position(&self.others.lock(), name))
    }

    /// The tier of a medium, which gets one if it has none and there is one
    /// left.
    pub(super) fn find_or_add(&self, medium: Option<&str>) -> Option<Tier> {
        let Some(name) = medium else { return Some(Tier::DEVICE) };
        if let Some(tier) = known(name) {
            return Some(tier);
        }
        let mut others = self.others.lock();
        if let Some(tier) = position(&others, name) {
            return Some(tier);
        }
        if KNOWN.len() + others.len() == Tier::MOST {
            return None;
        }
        others.push(name.into());
        position(&others, name)
    }

    /// The name of a tier's medium.
    pub(super) fn name(&self, tier: Tier) -> Option<String> {
        let number = tier.number();
        match KNOWN.get(number) {
            Some(name) => Some((*name).to_owned()),
            None => self.others.lock().get(number - KNOWN.len()).map(|name| name.to_string()),
        }
    }
}

fn known(name: &str) -> Option<Tier> {
    let position = KNOWN.iter().position(|known| known.eq_ignore_ascii_case(name))?;
    Some(Tier(position as u8))
}

fn position(others: &[Box<str>], name: &str) -> Option<Tier> {
    let position = others.iter().position(|other| other.eq_ignore_ascii_case(name))?;
    Some(Tier((KNOWN.len() + position) as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_gpu_in_any_case_or_nothing() {
        let media = Media::default();
        for medium in [None, Some("GPU"), Some("gpu"), Some("Gpu")] {
            assert_eq!(media.find_or_add(medium), Some(Tier::DEVICE));
        }
        for medium in ["", "CPU", "GPU0", "HBM", "shared_storage", "ＧＰＵ"] {
            assert_ne!(media.find_or_add(Some(medium)), Some(Tier::DEVICE), "{medium}");
        }
    }

    #[test]
    fn media_are_told_apart_until_there_are_too_many() {
        let media = Media::default();
        let mut seen = vec![Tier::DEVICE];
        for medium in KNOWN[1..].iter().map(|name| name.to_lowercase()) {
            seen.push(media.find_or_add(Some(&medium)).unwrap());
        }
        for number in KNOWN.len()..Tier::MOST {
            assert_eq!(media.find(Some(&format!("m{number}"))), None);
            let tier = media.find_or_add(Some(&format!("m{number}"))).unwrap();
            assert_eq!(media.find(Some(&format!("M{number}"))), Some(tier));
            assert_eq!(media.name(tier), Some(format!("m{number}")));
            seen.push(tier);
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), Tier::MOST);
        assert_eq!(media.find_or_add(Some("one more")), None);
        assert_eq!(media.find_or_add(Some("cpu")), media.find(Some("CPU")));
    }
}
