//! Seeds for the fuzzer: small streams in every layout.

use rand::Rng;

use crate::encode::{ENGINES, batch, bytes, event, random_event, rng};
use crate::residency::{Fleet, Request};

/// Writes them into the directory that `KVRADIX_SEEDS` names.
#[test]
#[ignore = "writes files"]
fn write_the_seeds_of_the_fuzzer() {
    let directory = std::env::var("KVRADIX_SEEDS").expect("KVRADIX_SEEDS names a directory");
    for seed in 0..24 {
        let mut rng = rng(seed);
        // A rank's stream that makes sense, or one of any events.
        let mut input = vec![1 | (seed as u8 & 1) << 2];
        let requests: Vec<_> = (0..4).map(|_| Request::random(&mut rng)).collect();
        let fleet = Fleet::new(seed);
        for number in 0..3 {
            if number > 0 {
                input.extend([0xc1, 0xc1]);
            }
            let (said, engine) = if seed < 16 {
                let (told, engine) = fleet.told(seed as usize % 4, &requests, &mut rng);
                (told.into_iter().map(|told| told.said).collect(), engine)
            } else {
                let engine = ENGINES[rng.random_range(0..ENGINES.len())];
                ((0..3).map(|_| random_event(engine, &mut rng)).collect(), engine)
            };
            let said: Vec<_> = said;
            let events = said.iter().map(|said| event(said, engine, &mut rng)).collect();
            input.extend(bytes(&batch(events, Some(0), &mut rng), &mut rng).0);
        }
        std::fs::write(format!("{directory}/{seed:02}"), input).unwrap();
    }
}
