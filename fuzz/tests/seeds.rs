//! Every seed, and every input that once went wrong, without a fuzzer.

use std::fs;
use std::path::{Path, PathBuf};

use kvradix_fuzz::decode::Decoded;

fn seeds(target: &str) -> Vec<PathBuf> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let mut files: Vec<_> = seeds.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Also shows that the seeds are there and do something.
#[test]
fn every_seed_agrees_with_the_reference() {
    let (files, mut steps) = (seeds("stream"), 0);
    for file in &files {
        println!("{}", file.display());
        let input = fs::read(file).unwrap();
        kvradix_fuzz::check(&input);
        steps += Decoded::of(&input).map_or(0, |decoded| decoded.ops.len());
    }
    assert!(files.len() >= 20 && steps >= 1000, "{} seeds of {steps} steps", files.len());
}

/// Some of them are snapshots, others only nearly so.
#[test]
fn every_seed_is_loaded_whole_or_refused_whole() {
    let (files, mut loaded) = (seeds("snapshot"), 0);
    for file in &files {
        println!("{}", file.display());
        loaded += usize::from(kvradix_fuzz::check_snapshot(&fs::read(file).unwrap()));
    }
    assert!((5..files.len() - 3).contains(&loaded), "{loaded} of {} loaded", files.len());
}

#[test]
fn every_seed_of_the_intake_is_read_or_counted() {
    let files = seeds("intake");
    for file in &files {
        println!("{}", file.display());
        kvradix_fuzz::intake::check(&fs::read(file).unwrap());
    }
    assert!(files.len() >= 20, "{} seeds", files.len());
}
