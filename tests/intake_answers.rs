//! Replay sockets that answer as none should, followed by a fleet: what they
//! say may cost a question, and nothing that is known.

#![cfg(feature = "fleet")]

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use kvradix::fleet::{Fleet, Options, State, Totals, WorkerSpec};
use zmq::{Context, ROUTER, Socket, XPUB};

/// One block of SGLang's, with token 1 of a page of one.
const STORED: &[u8] =
    b"\x93\xcb\x3f\xf8\0\0\0\0\0\0\x91\x97\xabBlockStored\x91\x01\xc0\x91\x01\x01\xc0\xa3GPU\0";
const END: [u8; 8] = [0xff; 8];

/// A publisher of one batch, whose answers the test gives, and who follows it.
struct Played {
    events: Socket,
    replay: Socket,
    fleet: Fleet,
}

impl Played {
    fn start() -> Self {
        let context = Context::new();
        let bound = |kind| {
            let socket = context.socket(kind).expect("a socket");
            socket.bind("tcp://127.0.0.1:*").expect("a free port");
            socket.set_linger(0).expect("no linger");
            let endpoint = socket.get_last_endpoint().expect("it is bound").expect("text");
            (socket, endpoint)
        };
        let ((events, published), (replay, asked)) = (bound(XPUB), bound(ROUTER));
        for socket in [&events, &replay] {
            socket.set_rcvtimeo(10_000).expect("a time");
        }
        let mut spec = WorkerSpec::new(1, published, NonZeroU32::MIN);
        spec.replay = Some(asked.as_str().into());
        let fleet = Fleet::new(Options {
            check_after: Duration::from_millis(100),
            replay_timeout: Duration::from_secs(2),
            ..Options::default()
        });
        let fleet = fleet.expect("threads");
        fleet.add(spec).expect("a new worker");
        Self { events, replay, fleet }
    }

    /// Who asks.
    fn asked(&self) -> Vec<u8> {
        let question = self.replay.recv_multipart(0).expect("a question");
        question.into_iter().next().expect("an identity")
    }

    fn send(&self, to: &[u8], number: [u8; 8], payload: &[u8]) {
        let parts = [to, b"", &number, payload];
        self.replay.send_multipart(parts, 0).expect("it can be sent");
    }

    fn counts(&self) -> Totals {
        self.fleet.worker(1).expect("it is there").publishers[0].counts
    }
}

#[test]
fn what_comes_behind_the_end_of_an_answer_is_none_to_the_next_question() {
    let played = Played::start();
    for _ in 0..4 {
        let to = played.asked();
        played.send(&to, [0; 8], STORED);
        played.send(&to, END, b"");
        played.send(&to, END, b"");
    }
    let counts = played.counts();
    assert_eq!((counts.restarts, counts.replayed), (0, 1), "{counts:?}");
    assert!(counts.malformed > 0, "{counts:?}");
    let rank = &played.fleet.worker(1).expect("it is there").publishers[0];
    assert_eq!((rank.state, rank.blocks.device), (State::Live, 1));
}

#[test]
fn an_answer_that_repeats_itself_for_ever_is_given_up() {
    let played = Played::start();
    let to = played.asked();
    let began = Instant::now();
    let again = loop {
        played.send(&to, [0; 8], STORED);
        if let Ok(question) = played.replay.recv_multipart(zmq::DONTWAIT) {
            break question;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "nothing is held back for ever");
        std::thread::sleep(Duration::from_millis(20));
    };
    played.send(&again[0], [0; 8], STORED);
    played.send(&again[0], END, b"");
    played.asked();
    let counts = played.counts();
    assert_eq!((counts.restarts, counts.replayed, counts.unanswered), (0, 1, 1), "{counts:?}");
}

#[test]
fn two_publishers_at_one_endpoint_do_not_have_the_history_read_for_each_batch() {
    let played = Played::start();
    let mut other = STORED.to_vec();
    *other.last_mut().expect("not empty") = 1;
    // What is published before the subscription has arrived is not sent.
    assert_eq!(played.events.recv_bytes(0).expect("somebody subscribes"), [1]);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1_500) {
        for payload in [STORED, &other] {
            let batch: [&[u8]; 3] = [b"", &[0; 8], payload];
            played.events.send_multipart(batch, 0).expect("it can be sent");
        }
        while let Ok(question) = played.replay.recv_multipart(zmq::DONTWAIT) {
            played.send(&question[0], [0; 8], STORED);
            played.send(&question[0], END, b"");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let counts = played.counts();
    assert!((1..=4).contains(&counts.restarts), "{counts:?}");
    assert!(counts.asked <= 8, "{counts:?}");
}
