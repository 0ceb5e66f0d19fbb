//! The one runner of all models.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, io, panic, process, thread};

use crate::keep;

/// A model and how far it is searched.
#[derive(Clone, Copy)]
pub struct Model {
    /// Named by the race that it searches.
    pub name: &'static str,
    /// How often a thread may be preempted in one run; `None` for any number.
    pub bound: Option<usize>,
    /// Fewer iterations than this mean that the model lost its race.
    pub least: u64,
    /// More than this mean that nobody knows how long it takes.
    pub most: u64,
    /// One run.
    pub body: fn(),
    /// The outcomes that its iterations together [`saw`], no fewer and no
    /// more.
    pub sees: &'static [&'static str],
    /// What it must fail with, where it must fail.
    pub fails: Option<&'static str>,
}

impl Model {
    /// A model with no bound, to be narrowed.
    pub const fn new(name: &'static str, body: fn()) -> Self {
        Self { name, bound: None, least: 2, most: 200_000, body, sees: &[], fails: None }
    }

    /// At most so many preemptions in one run.
    pub const fn bound(self, bound: usize) -> Self {
        Self { bound: Some(bound), ..self }
    }

    /// At least and at most so many iterations.
    pub const fn iterations(self, least: u64, most: u64) -> Self {
        Self { least, most, ..self }
    }

    /// The outcomes it must see.
    pub const fn sees(self, sees: &'static [&'static str]) -> Self {
        Self { sees, ..self }
    }

    /// A control of the bench itself: it must fail with these words.
    pub const fn fails(self, message: &'static str) -> Self {
        Self { fails: Some(message), ..self }
    }
}

static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Notes an outcome of this iteration.
pub fn saw(outcome: impl ToString) {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert(outcome.to_string());
}

/// A step left out, and the model that must notice.
#[derive(Clone, Copy)]
pub struct Negative {
    /// The switch, as `KVRADIX_MUTANT` names it.
    pub mutant: &'static str,
    /// What is left out.
    pub step: &'static str,
    /// The model that must fail.
    pub model: &'static str,
    /// What it must say; `None` for the one that must survive.
    pub message: Option<&'static str>,
}

/// Branches of one run, far above what any model has.
const BRANCHES: usize = 50_000;
/// Seconds that a model may take, mutated or not, unless `KVRADIX_PATIENCE`
/// says another number.
const PATIENCE: u64 = 300;

fn patience() -> Duration {
    let seconds = env::var("KVRADIX_PATIENCE").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(PATIENCE))
}

static ITERATIONS: AtomicU64 = AtomicU64::new(0);

/// Runs all models, or those whose name contains an argument; with
/// `--mutants`, the negative controls instead, whose table goes to `table`.
pub fn main(
    models: &'static [Model],
    negatives: &'static [Negative],
    table: &'static str,
) -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if let [one, name] = &args[..]
        && one == "--one"
    {
        let model = models.iter().find(|model| model.name == name);
        run_here(model.expect("a model of this name"));
        return ExitCode::SUCCESS;
    }
    let words: Vec<&str> =
        args.iter().map(String::as_str).filter(|a| !a.starts_with('-')).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    if args.iter().any(|arg| arg == "--list") {
        models.iter().for_each(|model| println!("{}: test", model.name));
        return ExitCode::SUCCESS;
    }
    let green = if args.iter().any(|arg| arg == "--mutants") {
        run_mutants(models, negatives, &wanted, words.is_empty().then_some(table))
    } else {
        run_models(models, &wanted)
    };
    if green { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one model in this process, which ends at the first panic.
fn run_here(model: &Model) {
    let name = model.name;
    panic::set_hook(Box::new(move |info| {
        let message = info.payload_as_str().unwrap_or("a panic without a message");
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let iteration = ITERATIONS.load(Ordering::Relaxed);
        eprintln!("{name}, iteration {iteration}: {message}\n  at {place}");
        process::exit(101);
    }));
    let mut builder = loom::model::Builder::new();
    builder.max_branches = BRANCHES;
    builder.preemption_bound = bound_of(model);
    // Counts are told of the bound and the source as they are.
    let changed =
        ["KVRADIX_BOUND", "KVRADIX_MUTANT"].iter().any(|name| env::var_os(name).is_some());
    let (least, most) = if changed { (2, u64::MAX) } else { (model.least, model.most) };
    let body = model.body;
    let start = Instant::now();
    builder.check(move || {
        let iteration = ITERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(iteration <= most, "hit its cap of {most} iterations: nothing was proved");
        keep::begin();
        kvradix::model::begin();
        body();
        kvradix::model::end();
    });
    let iterations = ITERATIONS.load(Ordering::Relaxed);
    assert!(iterations > 1, "ran one iteration: loom saw no race in it");
    assert!(
        iterations >= least,
        "ran {iterations} iterations, {least} at least were known: it lost its race"
    );
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(
        model.sees.is_empty() || seen.iter().eq(&BTreeSet::from_iter(model.sees.iter().copied())),
        "saw {seen:?}, should have seen {:?}",
        model.sees
    );
    println!("{iterations} {:.2}", start.elapsed().as_secs_f64());
}

/// The model's bound, unless `KVRADIX_BOUND` says another, `any`, or how many
/// more (`+1`).
fn bound_of(model: &Model) -> Option<usize> {
    let Ok(bound) = env::var("KVRADIX_BOUND") else { return model.bound };
    match bound.strip_prefix('+') {
        Some(more) => Some(model.bound? + more.parse::<usize>().ok()?),
        None => bound.parse().ok(),
    }
}

/// What became of a model's process.
enum Ended {
    Passed { iterations: String, seconds: String },
    Failed { message: String },
    TimedOut,
}

struct Running {
    child: Child,
    start: Instant,
}

impl Running {
    fn start(model: &str, mutant: Option<&str>) -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--one", model]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(mutant) = mutant {
            command.env("KVRADIX_MUTANT", mutant);
        }
        Ok(Self { child: command.spawn()?, start: Instant::now() })
    }

    fn over(&mut self) -> bool {
        if self.start.elapsed() > patience() {
            let _ = self.child.kill();
        }
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn end(self) -> Ended {
        let late = self.start.elapsed() > patience();
        let Ok(output) = self.child.wait_with_output() else {
            return Ended::Failed { message: "could not be waited for".into() };
        };
        if late {
            return Ended::TimedOut;
        }
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            let (iterations, seconds) = out.trim().split_once(' ').unwrap_or(("?", "?"));
            return Ended::Passed { iterations: iterations.into(), seconds: seconds.into() };
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let message =
            if message.is_empty() { format!("no message, {}", output.status) } else { message };
        Ended::Failed { message }
    }
}

/// Starts every job, as many at a time as the machine has cores, and hands
/// each end to `seen`.
fn run_all<J>(
    jobs: impl Iterator<Item = J>,
    start: impl Fn(&J) -> io::Result<Running>,
    mut seen: impl FnMut(J, Ended),
) {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let at_once = env::var("KVRADIX_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(cores);
    let mut waiting: VecDeque<J> = jobs.collect();
    let mut running: Vec<(J, Running)> = Vec::new();
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < at_once
            && let Some(job) = waiting.pop_front()
        {
            match start(&job) {
                Ok(started) => running.push((job, started)),
                Err(error) => seen(job, Ended::Failed { message: error.to_string() }),
            }
        }
        thread::sleep(Duration::from_millis(5));
        let mut i = 0;
        while i < running.len() {
            if running[i].1.over() {
                let (job, ended) = running.remove(i);
                seen(job, ended.end());
            } else {
                i += 1;
            }
        }
    }
}

fn run_models(models: &'static [Model], wanted: &dyn Fn(&str) -> bool) -> bool {
    let start = Instant::now();
    let (mut ran, mut red) = (0, Vec::new());
    println!("{:<60} {:>5} {:>10} {:>8}", "model", "bound", "iterations", "seconds");
    run_all(
        models.iter().filter(|model| wanted(model.name)),
        |model| Running::start(model.name, None),
        |model, ended| {
            ran += 1;
            let bound = bound_of(model).map_or("any".into(), |bound| bound.to_string());
            let name = model.name;
            match (ended, model.fails) {
                (Ended::Passed { iterations, seconds }, None) => {
                    println!("{name:<60} {bound:>5} {iterations:>10} {seconds:>8}");
                }
                (Ended::Failed { message }, Some(expected)) if message.contains(expected) => {
                    println!("{name:<60} {bound:>5} fails, as it must: {expected}");
                }
                (Ended::Failed { message }, _) => {
                    println!("{name:<60} {bound:>5} FAILED\n{message}");
                    red.push(name);
                }
                (Ended::Passed { .. }, Some(expected)) => {
                    println!("{name:<60} {bound:>5} PASSED, but must fail: {expected}");
                    red.push(name);
                }
                (Ended::TimedOut, _) => {
                    println!("{name:<60} {bound:>5} TIMED OUT");
                    red.push(name);
                }
            }
        },
    );
    println!(
        "\n{ran} models in {:.0} s, {} failed {red:?}",
        start.elapsed().as_secs_f64(),
        red.len()
    );
    ran > 0 && red.is_empty()
}

fn run_mutants(
    models: &'static [Model],
    negatives: &'static [Negative],
    wanted: &dyn Fn(&str) -> bool,
    table_at: Option<&str>,
) -> bool {
    let mut rows: Vec<(usize, String)> = Vec::new();
    let mut red = Vec::new();
    for negative in negatives {
        let known = models.iter().any(|model| model.name == negative.model);
        assert!(known, "{} names a model that is not there: {}", negative.mutant, negative.model);
    }
    run_all(
        negatives.iter().enumerate().filter(|(_, n)| wanted(n.mutant) || wanted(n.model)),
        |(_, negative)| Running::start(negative.model, Some(negative.mutant)),
        |(at, negative), ended| {
            let (good, said) = match (ended, negative.message) {
                (Ended::Failed { message }, Some(expected)) => {
                    (message.contains(expected), message)
                }
                (Ended::Failed { message }, None) => (false, message),
                (Ended::Passed { .. }, None) => (true, "survives, as it must".into()),
                (Ended::Passed { .. }, Some(_)) => (false, "SURVIVED".into()),
                (Ended::TimedOut, _) => (false, "VOID: timed out".into()),
            };
            println!(
                "{} {} on {}\n    {said}",
                if good { "ok" } else { "BAD" },
                negative.mutant,
                negative.model
            );
            if !good {
                red.push(negative.mutant);
            }
            let said =
                negative.message.map_or("(survives)".into(), |message| format!("`{message}`"));
            let (mutant, step, model) = (negative.mutant, negative.step, negative.model);
            rows.push((at, format!("| `{mutant}` | {step} | `{model}` | {said} |")));
        },
    );
    rows.sort_unstable();
    println!("\n{} mutants, {} not as they must be {red:?}", rows.len(), red.len());
    if let Some(table_at) = table_at
        && red.is_empty()
    {
        let mut table = String::from(
            "# Mutants\n\nMade by `./mutants.sh`: each step below was left out, one at a time, and the model \
             named\nfailed with a message that holds the words shown.\n\n\
             | mutant | step left out | model | message |\n| --- | --- | --- | --- |\n",
        );
        for (_, row) in &rows {
            let _ = writeln!(table, "{row}");
        }
        if let Err(error) = fs::write(table_at, table) {
            println!("{table_at}: {error}");
            return false;
        }
    }
    !rows.is_empty() && red.is_empty()
}
