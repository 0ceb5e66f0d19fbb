//! The sockets of one publisher.
//!
//! Three of them: the subscription, a monitor that tells when its connection
//! comes and goes, and the one that history is asked from. Frames are taken
//! apart here; nothing else knows them.

use std::time::Duration;

use zmq::{Context, DEALER, Error, Message, PAIR, SUB, Socket, SocketEvent};

use super::options::Options;
use super::spec::{Attach, Publisher};

/// The number that ends an answer.
const END: [u8; 8] = [0xff; 8];

/// The bytes of a batch, as they came.
#[derive(Debug)]
pub(super) struct Payload(Message);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A message of the live stream.
pub(super) enum Live {
    Batch(u64, Payload),
    Malformed,
}

/// A message of the replay socket.
pub(super) enum Replayed {
    Batch(u64, Payload),
    End,
    Malformed,
}

/// What became of the connection.
pub(super) enum Link {
    Up,
    Down,
}

/// The subscription and its monitor.
pub(super) struct Subscription {
    pub(super) socket: Socket,
    pub(super) monitor: Socket,
    /// The next peer to be reported gone never came about.
    failed: bool,
}

/// A handshake that failed. The same peer is then reported gone.
const FAILED: [SocketEvent; 3] = [
    SocketEvent::HANDSHAKE_FAILED_NO_DETAIL,
    SocketEvent::HANDSHAKE_FAILED_PROTOCOL,
    SocketEvent::HANDSHAKE_FAILED_AUTH,
];

impl Subscription {
    pub(super) fn open(
        context: &Context,
        publisher: &Publisher,
        attach: Attach,
        topic: &str,
        monitor_name: &str,
        options: &Options,
    ) -> Result<Self, Error> {
        let socket = context.socket(SUB)?;
        set_up(&socket, &publisher.events, options)?;
        socket.set_rcvhwm(at_least_one(options.queued_batches))?;
        socket.set_subscribe(topic.as_bytes())?;
        let events = [SocketEvent::HANDSHAKE_SUCCEEDED, SocketEvent::DISCONNECTED];
        let events = events.iter().chain(&FAILED).map(|&event| event as i32);
        socket.monitor(monitor_name, events.fold(0, |all, event| all | event))?;
        let monitor = context.socket(PAIR)?;
        monitor.set_linger(0)?;
        monitor.connect(monitor_name)?;
        match attach {
            Attach::Connect => socket.connect(&publisher.events)?,
            Attach::Bind => socket.bind(&publisher.events)?,
        }
        Ok(Self { socket, monitor, failed: false })
    }

    /// The next thing that became of the connection, if any.
    pub(super) fn link(&mut self) -> Option<Link> {
        loop {
            let event = self.monitor.recv_bytes(zmq::DONTWAIT).ok()?;
            // The other frame is the peer's address.
            while self.monitor.get_rcvmore() == Ok(true) {
                self.monitor.recv_bytes(zmq::DONTWAIT).ok()?;
            }
            let Some(kind) = event.first_chunk().map(|kind| u16::from_ne_bytes(*kind)) else {
                continue;
            };
            let is = |event: SocketEvent| event.to_raw() == kind;
            if is(SocketEvent::HANDSHAKE_SUCCEEDED) {
                return Some(Link::Up);
            }
            self.failed |= FAILED.into_iter().any(is);
            if is(SocketEvent::DISCONNECTED) && !std::mem::take(&mut self.failed) {
                return Some(Link::Down);
            }
        }
    }

    /// The next message, if any: topic, number, payload.
    pub(super) fn next(&self) -> Option<Live> {
        let frames: [Message; 3] = match frames(&self.socket)? {
            Frames::Three(frames) => frames,
            _ => return Some(Live::Malformed),
        };
        let [_, number, payload] = frames;
        Some(match number_of(&number) {
            // The end of an answer has no place here.
            Some(number) if number != u64::MAX => Live::Batch(number, Payload(payload)),
            _ => Live::Malformed,
        })
    }
}

/// The socket that history is asked from. It has one question at a time.
pub(super) struct History {
    pub(super) socket: Socket,
}

impl History {
    pub(super) fn open(
        context: &Context,
        endpoint: &str,
        options: &Options,
    ) -> Result<Self, Error> {
        let socket = context.socket(DEALER)?;
        set_up(&socket, endpoint, options)?;
        socket.set_rcvhwm(at_least_one(options.queued_batches))?;
        socket.connect(endpoint)?;
        Ok(Self { socket })
    }

    pub(super) fn ask(&self, start: u64) -> Result<(), Error> {
        self.socket.send_multipart([&[][..], &start.to_be_bytes()], zmq::DONTWAIT)
    }

    /// The next message, if any: an empty frame, in newer publishers the
    /// topic, number, payload.
    pub(super) fn next(&self) -> Option<Replayed> {
        let (number, payload) = match frames(&self.socket)? {
            Frames::Three([_, number, payload]) | Frames::Four([_, _, number, payload]) => {
                (number, payload)
            }
            Frames::Other => return Some(Replayed::Malformed),
        };
        Some(match number_of(&number) {
            Some(_) if number[..] == END && payload.is_empty() => Replayed::End,
            Some(number) => Replayed::Batch(number, Payload(payload)),
            None => Replayed::Malformed,
        })
    }
}

/// The frames of one message.
enum Frames {
    Three([Message; 3]),
    Four([Message; 4]),
    Other,
}

fn frames(socket: &Socket) -> Option<Frames> {
    let first = socket.recv_msg(zmq::DONTWAIT).ok()?;
    // Frames of a message arrive together.
    let more = || match socket.get_rcvmore() {
        Ok(true) => socket.recv_msg(zmq::DONTWAIT).ok(),
        _ => None,
    };
    let (second, third, fourth, fifth) = (more(), more(), more(), more());
    if fifth.is_some() {
        while more().is_some() {}
        return Some(Frames::Other);
    }
    Some(match (second, third, fourth) {
        (Some(second), Some(third), None) => Frames::Three([first, second, third]),
        (Some(second), Some(third), Some(fourth)) => Frames::Four([first, second, third, fourth]),
        _ => Frames::Other,
    })
}

fn number_of(frame: &Message) -> Option<u64> {
    let bytes = <[u8; 8]>::try_from(&frame[..]).ok()?;
    Some(u64::from_be_bytes(bytes))
}

fn set_up(socket: &Socket, endpoint: &str, options: &Options) -> Result<(), Error> {
    socket.set_linger(0)?;
    if endpoint.starts_with("tcp://[") {
        // Not for names: theirs may be tried as IPv6 alone.
        socket.set_ipv6(true)?;
    }
    socket.set_reconnect_ivl(milliseconds(options.reconnect_min))?;
    socket.set_reconnect_ivl_max(milliseconds(options.reconnect_max))?;
    socket.set_connect_timeout(milliseconds(options.dead_after))?;
    socket.set_handshake_ivl(milliseconds(options.dead_after))?;
    socket.set_heartbeat_ivl(milliseconds(options.dead_after / 3))?;
    socket.set_heartbeat_timeout(milliseconds(options.dead_after))?;
    let largest = i64::try_from(options.payload.payload).unwrap_or(i64::MAX);
    socket.set_maxmsgsize(largest)
}

/// At least one: zero means no limit, or never.
fn milliseconds(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX).max(1)
}

fn at_least_one(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX).max(1)
}
