//! Random schedules of whole-index scenarios: eight threads, every atomic in
//! one order. Built by `schedules.sh`; nothing in other builds.

#[cfg(kvradix_shuttle)]
mod scenario;

#[cfg(kvradix_shuttle)]
fn main() {
    scenario::main();
}

#[cfg(not(kvradix_shuttle))]
fn main() {
    println!("./schedules.sh runs these");
}
