//! Interactions of two state machines, selected by bytes: for properties and for the fuzzer.

use std::collections::{BTreeMap, VecDeque};

use coracle_protocol::mux::{Announcement, Delivery, Mux, Part};
use coracle_protocol::{MAX_CHANNELS, WINDOW};

/// A frame that was sent and not received yet.
#[derive(Clone, Copy, Debug)]
enum Sent {
    Open(Announcement),
    Part(Part, u64),
    Close,
    Last,
}

/// One end, with its received and unconsumed data.
struct End {
    mux: Mux<u64>,
    under_way: VecDeque<(u32, Sent)>,
    /// Unconsumed data, by channel.
    held: BTreeMap<u32, u64>,
    /// Announced bytes that were not sent yet.
    announced: BTreeMap<u32, u64>,
    data_ended: BTreeMap<u32, bool>,
}

impl End {
    fn new(mux: Mux<u64>) -> Self {
        Self {
            mux,
            under_way: VecDeque::new(),
            held: BTreeMap::new(),
            announced: BTreeMap::new(),
            data_ended: BTreeMap::new(),
        }
    }

    fn send(&mut self, number: u32, sent: Sent) {
        self.under_way.push_back((number, sent));
    }

    /// Sends data as far as the window allows.
    fn send_data(&mut self, number: u32, most: u64, last: bool) {
        if self.data_ended.get(&number) == Some(&true) {
            return;
        }
        if let Some(bytes) = self.mux.reserve(number, 1, most) {
            self.data_ended.insert(number, last);
            self.send(number, Sent::Part(Part::Data { last }, bytes));
        }
    }

    /// Consumes queued data, and returns its credit.
    fn take(&mut self, number: u32, at_once: bool) {
        let bytes = self.held.remove(&number).unwrap_or_default();
        self.mux.release(number, bytes);
        let credits = if at_once { vec![(number, self.mux.take_credit(number))] } else { self.mux.take_due_credit() };
        for (number, credit) in credits.into_iter().filter(|(_, credit)| *credit > 0) {
            self.send(number, Sent::Part(Part::WindowUpdate(credit), 0));
        }
    }

    fn forget(&mut self, number: u32) {
        self.mux.end(number);
        self.held.remove(&number);
        self.announced.remove(&number);
        self.data_ended.remove(&number);
    }

    /// Receives the next frame of the other end.
    fn receive(&mut self, other: &mut Self) {
        let Some((number, sent)) = other.under_way.pop_front() else { return };
        match sent {
            Sent::Open(opening) => self.mux.accept(number, opening, 0).expect("the host must open a free channel"),
            Sent::Close => {}
            Sent::Last => self.forget(number),
            Sent::Part(part, bytes) => {
                let received = self.mux.receive(number, part, bytes).expect("the other end must obey the rules");
                if let (Delivery::Deliver(_), Part::Data { .. }) = (received, part) {
                    let held = self.held.entry(number).or_default();
                    *held += bytes;
                    assert!(*held <= WINDOW, "{held} bytes wait on channel {number}");
                }
                for (number, credit) in self.mux.take_due_credit() {
                    self.send(number, Sent::Part(Part::WindowUpdate(credit), 0));
                }
            }
        }
    }
}

/// Picks one of the open channels of an end.
fn pick(end: &mut End, choice: u8) -> u32 {
    (1..=u32::from(choice)).rev().find(|it| end.mux.is_open(*it)).unwrap_or(1)
}

/// Two ends that obey the rules, with delayed delivery.
///
/// # Panics
/// If one reports the other, holds more than a window, or does not regain its windows.
pub(crate) fn play(bytes: &[u8]) {
    let (mut host, mut guest) = (End::new(Mux::host()), End::new(Mux::guest()));
    for step in bytes.chunks_exact(3) {
        let &[act, choice, amount] = step else { continue };
        let most = u64::from(amount) << 10;
        match act % 12 {
            0 => {
                if let Some(number) = host.mux.open(0) {
                    host.announced.insert(number, most / 2);
                    host.send(
                        number,
                        Sent::Open(Announcement { announced: most, first: most - most / 2, takes_data: true }),
                    );
                }
            }
            1 => {
                let number = pick(&mut host, choice);
                let left = host.announced.get(&number).copied().unwrap_or_default();
                if host.mux.is_open(number) && left > 0 {
                    host.announced.insert(number, left - left.min(most));
                    host.send(number, Sent::Part(Part::Chunk, left.min(most)));
                }
            }
            2 | 3 => {
                let number = pick(&mut host, choice);
                host.send_data(number, most, amount == 0);
            }
            4 | 5 => {
                let number = pick(&mut guest, choice);
                guest.send_data(number, most, amount == 0);
            }
            6 => {
                let number = pick(&mut host, choice);
                host.take(number, false);
            }
            7 => {
                let number = pick(&mut guest, choice);
                guest.take(number, true);
            }
            8 => {
                let number = pick(&mut host, choice);
                host.held.remove(&number);
                host.mux.close(number);
                host.send(number, Sent::Close);
            }
            9 => {
                let number = pick(&mut guest, choice);
                if guest.mux.is_open(number) {
                    guest.forget(number);
                    guest.send(number, Sent::Last);
                }
            }
            10 => host.receive(&mut guest),
            _ => guest.receive(&mut host),
        }
    }
    settle(&mut host, &mut guest);
}

/// Checks that after all data was received and consumed, every open channel has its window again, except for small credit.
fn settle(host: &mut End, guest: &mut End) {
    for _ in 0..3 {
        while !host.under_way.is_empty() || !guest.under_way.is_empty() {
            host.receive(guest);
            guest.receive(host);
        }
        let open: Vec<u32> = (1..=host.announced.len() as u32 * 2 + 255).filter(|it| host.mux.is_open(*it)).collect();
        for number in open {
            host.take(number, false);
            guest.take(number, true);
        }
    }
    for number in (1..=u32::from(u8::MAX)).filter(|it| host.mux.is_open(*it)).collect::<Vec<_>>() {
        assert!(guest.mux.is_open(number), "only the guest's last message ends channel {number}");
        assert!(host.mux.is_all_taken(number), "the guest returns all credit of channel {number}");
        assert!(guest.mux.reserve(number, 1, WINDOW) > Some(WINDOW / 2), "the host returns credit of channel {number}");
    }
}

/// Each end against arbitrary frames.
///
/// # Panics
/// If an end holds more than the announced bytes and a window on a channel, or more channels than allowed.
pub(crate) fn attack(bytes: &[u8]) {
    for mut mux in [Mux::host(), Mux::guest()] {
        let (mut held, mut open) = (BTreeMap::<u32, u64>::new(), 0);
        for step in bytes.chunks_exact(4) {
            let &[act, choice, high, low] = step else { continue };
            let (number, amount) = (u32::from(choice), u64::from(high) << 12 | u64::from(low));
            let part = match act % 8 {
                0 => {
                    let opening = Announcement { announced: amount, first: u64::from(low), takes_data: act > 99 };
                    open += usize::from(mux.accept(number, opening, amount).is_ok());
                    continue;
                }
                1 => {
                    open += usize::from(mux.open(0).is_some());
                    continue;
                }
                2 => {
                    open -= usize::from(mux.end(number).is_some());
                    held.remove(&number);
                    continue;
                }
                3 => {
                    let taken = held.remove(&number).unwrap_or_default();
                    mux.release(number, taken);
                    mux.take_credit(number);
                    continue;
                }
                4 => Part::Chunk,
                5 => Part::WindowUpdate(amount),
                6 => Part::Message,
                _ => Part::Data { last: low == 0 },
            };
            if let Ok(Delivery::Deliver(_)) = mux.receive(number, part, amount)
                && matches!(part, Part::Data { .. })
            {
                let held = held.entry(number).or_default();
                *held += amount;
                assert!(*held <= WINDOW, "{held} bytes wait on channel {number}");
            }
            assert!(open <= 2 * MAX_CHANNELS, "{open} channels are open");
        }
    }
}
