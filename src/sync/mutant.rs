//! Negative controls: steps of the protocol that a model, or the fuzzer, can be
//! told to leave out, so that it shows that it would notice.

/// A step to leave out or to weaken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(kvradix_loom), allow(dead_code))]
pub enum Mutant {
    /// A view is published by SeqCst, stronger than needed: harmless, every model must survive it.
    Harmless,
    /// A view is published without a release.
    ViewPublishRelaxed,
    /// A view is loaded without an acquire.
    ViewLoadRelaxed,
    /// The columns of a sole holder's run are loaded without an acquire.
    ColumnsLoadRelaxed,
    /// They are shown without a release.
    ColumnsMoveRelaxed,
    /// The columns' address is not looked at again once the state was loaded.
    ColumnsUnchecked,
    /// Shorter columns are shown before the view that does with them.
    ColumnsCutEarly,
    /// Nobody pins; asked for in the stand-ins alone.
    #[cfg_attr(not(kvradix_loom), allow(dead_code))]
    NoPin,
    /// Nothing that was retired is freed.
    NoReclaim,
    /// A drain takes its first name before it has the lane's lock.
    PopUnlocked,
    /// A detach does not go on with the parent.
    ClimbStops,
    /// What an event retired is freed without waiting for the pins.
    FreeAtOnce,
    /// A detached node is freed without waiting for the pins.
    NodeFreedAtOnce,
    /// After a trim, slots that older views cover are written again.
    NoHighWaterMark,
    /// A detach does not look again whether the child is empty.
    DetachUnchecked,
    /// The same in a hub.
    DetachUncheckedInHub,
    /// A detach takes out whatever is at the key, not this very node.
    DetachByKey,
    /// A detached node is not marked.
    NoMark,
    /// A store goes on in a node that is marked.
    MarkIgnored,
    /// The mark is shown before the parent's view is out.
    MarkShownEarly,
    /// The last holder leaves the entry in the lookup.
    EntryStays,
    /// A block whose name is another place's entry is not flagged.
    NoFlag,
    /// Who brings names together by the lookup's shards takes them as named,
    /// whatever is there.
    TogetherUnchecked,
    /// Who takes an ownerless block again makes no entry.
    RetakeWithoutEntry,
    /// A child is added to a hub without a look under the shard's lock.
    HubInsertUnchecked,
    /// A new child is let go of between its linking and its naming.
    LinkedUnlocked,
    /// A slot shows its child without a release.
    SlotPutRelaxed,
    /// A slot loses its child without a release.
    SlotTakeRelaxed,
    /// The sieve is asked without an acquire.
    SieveLoadRelaxed,
    /// A child's bit is set once others can join it.
    SieveSetLate,
    /// A bit is cleared without a release.
    SieveClearRelaxed,
    /// A bit is cleared without a look for other children that have it.
    SieveClearUnchecked,
    /// A shard whose bits are found anew keeps none.
    SieveKeepsNone,
    /// A hub's new array is shown without a release.
    HubResizeRelaxed,
    /// A reader takes the workers' table before it pins.
    TableBeforePin,
    /// The workers' next table is shown without a release.
    TableShownRelaxed,
    /// The workers' table is taken without an acquire.
    TablePeekRelaxed,
    /// The workers' table that another took the place of is freed without
    /// waiting for the pins.
    TableFreedAtOnce,
    /// A leaver's slot is given out again without waiting for the pins.
    SlotAtOnce,
    /// A store does not apply the removals that were queued before it.
    StoreBeforeDrain,
    /// A removal is counted as applied before it is visible.
    AppliedCountedEarly,
    /// A removal is counted as applied without a release.
    AppliedRelaxed,
    /// Moved names give up their old places before the new ones are there.
    MovedNamesFirst,
    /// A flush looks at the queue, not at what is unapplied.
    FlushAsksTheQueue,
    /// A task says that it is no longer on its way after its drain.
    ScheduledClearedLate,
    /// A task takes a lane off the list after its drain.
    ListedClearedLate,
    /// A tick says that the alarm is off after it emptied the list.
    ArmedClearedLate,
    /// A store goes on in a lane that was closed.
    StoreIntoClosed,
    /// A remover does not look whether the lane was closed.
    RemoveIntoClosed,
    /// A task takes what it will drain before it takes the lane off the list.
    LeftTakenEarly,
    /// A caller above the bound that drains a part takes the lane off the list.
    PartUnlisted,
    /// A caller above the bound drains, and does not list the lane.
    DrainerUnlisted,
    /// A moved name's old place is asked whether it is the worker's, not by
    /// which name.
    SuspectUnnamed,
    /// A worker's level stays where it was when a hole opens above it.
    HoleUnseen,
    /// View children that become a table leave one behind.
    TableLeavesOne,
    /// A table that widens leaves a child behind.
    WideLeavesOne,
    /// A table that becomes view children leaves one behind.
    FewLeaveOne,
    /// A worker's first store makes a lane without a look for one.
    LaneUnchecked,
    /// A store asks whether there is room, and takes it in a second step.
    RoomUnreserved,
    /// A removal gives its room back without a release.
    RoomRelaxed,
    /// A removal gives its room back before its blocks are gone.
    RoomGivenBackEarly,
    /// A poisoned worker is in answers again before it is healed.
    HealedBeforeBits,
    /// A slot is loaded without an acquire.
    SlotLoadRelaxed,
    /// A batch's flag is read without an acquire.
    ReadyRelaxed,
    /// Remover and task tell each other by relaxed swaps.
    ScheduledRelaxed,
    /// A leaving lane's figures are for a moment in neither place.
    DepartedLate,
}

/// Whether to leave the step out: never.
#[cfg(not(any(kvradix_loom, kvradix_faults)))]
#[inline(always)]
pub(crate) const fn mutant(_: Mutant) -> bool {
    false
}

/// Whether to leave the step out: the environment variable `KVRADIX_MUTANT`
/// names it. One build carries all mutants.
#[cfg(any(kvradix_loom, kvradix_faults))]
pub(crate) fn mutant(which: Mutant) -> bool {
    use std::sync::OnceLock;
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("KVRADIX_MUTANT").ok());
    chosen.as_deref().is_some_and(|chosen| chosen == format!("{which:?}"))
}
