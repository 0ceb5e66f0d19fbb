//! The invariants. STUB

use super::shared::Shared;

impl Shared {
    pub(crate) fn check(&self) {
        self.tree.lookup.for_each(|_, _| {});
    }
}
