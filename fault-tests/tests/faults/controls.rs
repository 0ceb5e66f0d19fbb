//! Negative controls: what is done after a panic is left out, one thing at a
//! time, and a test must notice.

use std::process::Command;

/// The omission, as the library calls it, and the test that fails without.
const CONTROLS: [(&str, &str); 8] = [
    ("NodeUnmended", "a_panic_at_any_point_leaves_the_others_exact_and_is_healed"),
    ("ChildUnmended", "a_panic_at_any_point_leaves_the_others_exact_and_is_healed"),
    ("Unpoisoned", "a_panic_at_any_point_leaves_the_others_exact_and_is_healed"),
    ("StillInTable", "a_panic_at_any_point_leaves_the_others_exact_and_is_healed"),
    ("RetiredKept", "a_leaver_that_panics_gives_back_what_it_retired"),
    ("BooksTrusted", "a_panic_at_any_point_leaves_the_others_exact_and_is_healed"),
    ("TailsLeft", "a_panic_at_any_point_leaves_the_others_exact_and_is_healed"),
    ("SlotKept", "workers_whose_first_stores_panic_give_their_slots_back"),
];

#[test]
fn each_step_that_is_left_out_is_noticed() {
    let exe = std::env::current_exe().expect("this binary");
    for (omission, test) in CONTROLS {
        let run = |omission: Option<&str>| {
            let mut command = Command::new(&exe);
            command.args([test, "--test-threads=1"]);
            command.env("KVRADIX_FAULTS", "150").env("KVRADIX_PATIENCE", "20");
            command.env("RUST_BACKTRACE", "0");
            omission.map(|omission| command.env("KVRADIX_OMISSION", omission));
            command.output().expect("this binary runs")
        };
        let output = run(Some(omission));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("running 1 test"), "no test {test}");
        assert!(!output.status.success(), "{omission} was not noticed:\n{said}");
        let why = said.lines().skip_while(|line| !line.contains("panicked at")).nth(1);
        println!("{omission}: {:.90}", why.unwrap_or("ended"));
    }
}
