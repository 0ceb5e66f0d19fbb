//! The example router, run as it runs by itself, and scraped meanwhile.
#![cfg(feature = "metrics")]

#[path = "../examples/router.rs"]
#[allow(dead_code)]
mod router;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use router::{Options, Summary};

/// The metrics of this moment, by name and labels as written.
fn scrape(address: SocketAddr) -> HashMap<String, f64> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200") || head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("openmetrics-text"), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    let samples = body.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.map(|line| line.rsplit_once(' ').expect("a value"));
    samples.map(|(sample, value)| (sample.to_owned(), value.parse().unwrap())).collect()
}

#[test]
fn the_router_serves_its_metrics_and_ends_by_itself() {
    let begun = Instant::now();
    let options = Options { seconds: Some(3.0), port: 0, workers: 3, clients: 12 };
    let (ready, address) = mpsc::channel();
    let running = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(router::run(options, |address| ready.send(address).unwrap())).unwrap()
    });
    let address = address.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(address.ip().is_loopback());

    // Sensible numbers, and later ones are not lower.
    let events = |page: &HashMap<String, f64>, kind| {
        let labels = format!(r#"index="router",kind="{kind}",outcome="applied""#);
        page[&format!("kvradix_events_total{{{labels}}}")]
    };
    let mut pages = Vec::new();
    while pages.len() < 2 {
        let page = scrape(address);
        if events(&page, "store") > 100.0 && events(&page, "remove") > 10.0 {
            pages.push(page);
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    let [first, second] = &pages[..] else { unreachable!() };
    let gauge = |name: &str| second[&format!("kvradix_{name}{{index=\"router\"}}")];
    assert_eq!(gauge("workers"), 3.0);
    assert!(gauge("held_blocks") > 1_000.0 && gauge("held_blocks") < 9_000.0);
    assert!(gauge("tree_blocks") > 0.0 && gauge("tree_blocks") <= gauge("held_blocks"));
    assert!(second[r#"kvradix_memory_bytes{index="router",part="tree"}"#] > 10_000.0);
    assert!(events(second, "store") >= events(first, "store"));
    let queries =
        |page: &HashMap<String, f64>| page[r#"kvradix_query_depth_blocks_count{index="router"}"#];
    assert!(queries(second) >= queries(first) && queries(first) > 100.0);
    // One query a request; those on their way are counted at two moments.
    assert!((queries(second) - second["router_requests_total"]).abs() <= 12.0);
    assert!(second[r#"kvradix_query_duration_seconds_count{index="router"}"#] > 0.0);
    // Turns repeat what was said, and the router finds who has it.
    let share = second["router_cached_blocks_total"] / second["router_prompt_blocks_total"];
    assert!(share > 0.3 && share < 1.0, "{share}");
    let routed = |worker| second[&format!("router_routed_total{{worker=\"{worker}.0\"}}")];
    assert!((0..3).all(|worker| routed(worker) > 10.0), "load is spread");

    let Summary { requests, prompt_blocks, cached_blocks, left } = running.join().unwrap();
    assert!(requests > 100 && prompt_blocks > cached_blocks && cached_blocks > 0);
    assert_eq!(left, 0, "every worker has left");
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}
