//! Every seed, and every input that once went wrong, without a fuzzer.

use std::path::Path;

/// Also shows that the seeds are there and do something.
#[test]
fn every_seed_agrees_with_the_reference() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/stream");
    let mut files: Vec<_> = seeds.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut steps = 0;
    for file in &files {
        println!("{}", file.display());
        let input = std::fs::read(file).unwrap();
        kvradix_fuzz::check(&input);
        steps += kvradix_fuzz::decode::Decoded::of(&input).map_or(0, |decoded| decoded.ops.len());
    }
    assert!(files.len() >= 20 && steps >= 1000, "{} seeds of {steps} steps", files.len());
}
