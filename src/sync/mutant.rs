//! Negative controls: steps of the protocol that a model can be told to leave
//! out, so that it shows that it would notice.

/// A step to leave out or to weaken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// None: the harmless one, which every model must survive.
    Nothing,
}

/// Whether to leave the step out: never.
#[cfg(not(kvradix_loom))]
#[inline(always)]
pub(crate) const fn mutant(_: Mutant) -> bool {
    false
}

/// Whether to leave the step out: the environment variable `KVRADIX_MUTANT`
/// names it. One build carries all mutants.
#[cfg(kvradix_loom)]
pub(crate) fn mutant(which: Mutant) -> bool {
    use std::sync::OnceLock;
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("KVRADIX_MUTANT").ok());
    chosen.as_deref().is_some_and(|chosen| chosen == format!("{which:?}"))
}
