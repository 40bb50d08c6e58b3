//! Checks whether a history of writes and reads of one register is linearizable, by the search of
//! Wing and Gong with Lowe's memory of tried states. Each write has a unique value, which keeps the
//! search short.

use std::collections::HashSet;

/// Maximum number of states that are tried. The history of a round needs some hundreds.
const TRIED_MAX: usize = 2_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Write(u64),
    Read(u64),
}

/// One operation of a client. `asked` and `answered` are times of the same clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    pub client: usize,
    pub act: Act,
    pub asked: u64,
    /// None: there was no answer, or the answer leaves the result open. The operation may have
    /// happened at any later time, or never.
    pub answered: Option<u64>,
}

impl Op {
    fn ends(&self) -> u64 {
        self.answered.unwrap_or(u64::MAX)
    }
}

/// Searches an order of `ops` that keeps the real-time order and in which each read returns the
/// last written value. `first` is the initial value. Returns an error if there is no such order, or
/// if none was found in time. The error contains the operations that did not fit.
pub fn check(first: u64, ops: &[Op]) -> Result<(), String> {
    let read: HashSet<u64> =
        ops.iter().filter_map(|op| if let Act::Read(v) = op.act { Some(v) } else { None }).collect();
    // A read without an answer proves nothing. If no read returned its value, a write without an
    // answer possibly never happened.
    let counts = |op: &&Op| op.answered.is_some() || matches!(op.act, Act::Write(v) if read.contains(&v));
    let mut ops: Vec<Op> = ops.iter().filter(counts).copied().collect();
    ops.sort_by_key(|op| (op.asked, op.ends()));
    let mut search = Search { ops: &ops, tried: HashSet::new(), deepest: Vec::new() };
    search.run(first)
}

struct Search<'a> {
    ops: &'a [Op],
    tried: HashSet<(Vec<u64>, u64)>,
    /// The longest order found so far.
    deepest: Vec<usize>,
}

/// The beginning of an order: the operations that are in it so far, and the resulting value of the
/// register.
struct Place {
    done: Vec<u64>,
    order: Vec<usize>,
    value: u64,
    /// Index of the first operation that is not in the order yet.
    from: usize,
}

impl Place {
    fn is_done(&self, at: usize) -> bool {
        self.done[at / 64] & (1 << (at % 64)) != 0
    }

    fn take(&mut self, at: usize) {
        self.done[at / 64] |= 1 << (at % 64);
        self.order.push(at);
    }
}

impl Search<'_> {
    fn run(&mut self, first: u64) -> Result<(), String> {
        let begin = Place { done: vec![0; self.ops.len() / 64 + 1], order: Vec::new(), value: first, from: 0 };
        let mut open = vec![begin];
        while let Some(mut place) = open.pop() {
            self.read_on(&mut place);
            if place.order.len() > self.deepest.len() {
                self.deepest.clone_from(&place.order);
            }
            let left = (place.from..self.ops.len()).filter(|at| !place.is_done(*at));
            if left.clone().all(|at| self.ops[at].answered.is_none()) {
                return Ok(());
            }
            // A write replaces the current value, which never returns. So if reads of the current
            // value remain, no write may be next, and this order is not possible.
            let next: Vec<usize> = self.next(&place).filter(|at| matches!(self.ops[*at].act, Act::Write(_))).collect();
            if left.clone().any(|at| self.ops[at].act == Act::Read(place.value)) {
                continue;
            }
            for at in next {
                let Act::Write(value) = self.ops[at].act else { continue };
                let mut after = Place { done: place.done.clone(), order: place.order.clone(), value, from: place.from };
                after.take(at);
                if self.tried.insert((after.done.clone(), value)) {
                    open.push(after);
                }
            }
            if self.tried.len() > TRIED_MAX {
                return Err(format!("no order found in {TRIED_MAX} places; {}", self.stuck(first)));
            }
        }
        Err(self.stuck(first))
    }

    /// Adds the reads of the current value to the order. No order is lost by adding a read as early
    /// as possible.
    fn read_on(&self, place: &mut Place) {
        loop {
            while place.from < self.ops.len() && place.is_done(place.from) {
                place.from += 1;
            }
            let fits = self.next(place).filter(|at| self.ops[*at].act == Act::Read(place.value)).collect::<Vec<_>>();
            if fits.is_empty() {
                return;
            }
            fits.into_iter().for_each(|at| place.take(at));
        }
    }

    /// The operations that can be next: they began before any other remaining operation was
    /// answered.
    fn next<'b>(&'b self, place: &'b Place) -> impl Iterator<Item = usize> + 'b {
        let left = move || (place.from..self.ops.len()).filter(|at| !place.is_done(*at));
        let soonest = left().map(|at| self.ops[at].ends()).min().unwrap_or(u64::MAX);
        left().take_while(move |at| self.ops[*at].asked <= soonest)
    }

    fn stuck(&self, first: u64) -> String {
        let value = self.deepest.iter().rev().find_map(|at| match self.ops[*at].act {
            Act::Write(value) => Some(value),
            Act::Read(_) => None,
        });
        let done: HashSet<usize> = self.deepest.iter().copied().collect();
        let left = (0..self.ops.len()).filter(|at| !done.contains(at)).take(12);
        let left: Vec<String> = left.map(|at| format!("{:?}", self.ops[at])).collect();
        let last: Vec<String> =
            self.deepest.iter().rev().take(6).rev().map(|at| format!("{:?}", self.ops[*at])).collect();
        format!(
            "{} of {} done, {} held; last\n  {}\nleft\n  {}",
            done.len(),
            self.ops.len(),
            value.unwrap_or(first),
            last.join("\n  "),
            left.join("\n  ")
        )
    }
}

fn op(client: usize, act: Act, asked: u64, answered: u64) -> Op {
    Op { client, act, asked, answered: Some(answered) }
}

fn open(client: usize, act: Act, asked: u64) -> Op {
    Op { client, act, asked, answered: None }
}

#[test]
fn linearizable_histories_are_accepted() {
    use Act::{Read, Write};
    let good: [&[Op]; 7] = [
        &[],
        &[op(0, Read(0), 1, 2), op(0, Write(1), 3, 4), op(1, Read(1), 5, 6)],
        // Two concurrent writes may have either order, and a concurrent read may return either
        // value.
        &[op(0, Write(1), 1, 9), op(1, Write(2), 2, 8), op(2, Read(2), 3, 4), op(2, Read(1), 5, 6)],
        &[op(0, Write(1), 1, 9), op(1, Write(2), 2, 8), op(2, Read(1), 3, 4), op(2, Read(2), 10, 11)],
        // An operation without an answer happens never, or much later.
        &[open(0, Write(1), 1), op(1, Read(0), 5, 6), op(1, Write(2), 7, 8), op(1, Read(2), 9, 10)],
        &[open(0, Write(1), 1), op(1, Write(2), 7, 8), op(1, Read(2), 9, 10), op(1, Read(1), 11, 12)],
        &[open(0, Read(7), 1), op(1, Read(0), 5, 6)],
    ];
    for (at, ops) in good.into_iter().enumerate() {
        assert_eq!(check(0, ops), Ok(()), "history {at}");
    }
}

#[test]
fn other_histories_are_rejected() {
    use Act::{Read, Write};
    let wrong: [(&str, &[Op]); 8] = [
        ("stale read", &[op(0, Write(1), 1, 2), op(0, Write(2), 3, 4), op(1, Read(1), 5, 6)]),
        ("lost write", &[op(0, Write(1), 1, 2), op(1, Read(0), 3, 4)]),
        ("lost write, seen once", &[op(0, Write(1), 1, 2), op(1, Read(1), 3, 4), op(1, Read(0), 5, 6)]),
        ("never written", &[op(0, Write(1), 1, 2), op(1, Read(7), 3, 4)]),
        ("read before it was asked for", &[op(1, Read(1), 1, 2), op(0, Write(1), 3, 4)]),
        (
            "two readers that disagree",
            &[
                op(0, Write(1), 1, 20),
                op(1, Write(2), 1, 20),
                op(2, Read(1), 2, 3),
                op(2, Read(2), 4, 5),
                op(3, Read(2), 2, 3),
                op(3, Read(1), 6, 7),
            ],
        ),
        ("an open write that comes and goes", &[open(0, Write(1), 1), op(1, Read(1), 2, 3), op(1, Read(0), 4, 5)]),
        (
            "an open write that happened twice",
            &[open(0, Write(1), 1), op(1, Read(1), 2, 3), op(1, Write(2), 4, 5), op(1, Read(1), 6, 7)],
        ),
    ];
    for (what, ops) in wrong {
        assert!(check(0, ops).is_err(), "{what}");
    }
}

/// Makes histories of random clients of a correct register. Then one answer of each history is
/// changed to an overwritten value.
#[test]
fn random_correct_histories_pass_and_a_changed_answer_fails() {
    for seed in 1..=20 {
        let mut rng = super::Rng(seed);
        let (mut clock, mut value, mut written) = (1, 0, 0);
        // The current operation of each of eight clients: its start, its kind, and whether it has
        // happened.
        let mut busy: Vec<Option<(u64, Act, bool)>> = vec![None; 8];
        let mut ops = Vec::new();
        for _ in 0..2_000 {
            clock += 1;
            let client = rng.up_to(8);
            busy[client] = match busy[client] {
                None if rng.up_to(2) == 0 => {
                    written += 1;
                    Some((clock, Act::Write(written), false))
                }
                None => Some((clock, Act::Read(0), false)),
                Some((asked, Act::Write(wrote), false)) => {
                    // One of twenty writes is never answered, and half of these writes happen.
                    let lost = rng.up_to(20) == 0;
                    if !lost || rng.up_to(2) == 0 {
                        value = wrote;
                    }
                    if lost {
                        ops.push(open(client, Act::Write(wrote), asked));
                    }
                    (!lost).then_some((asked, Act::Write(wrote), true))
                }
                Some((asked, Act::Read(_), false)) => Some((asked, Act::Read(value), true)),
                Some((asked, act, true)) => {
                    ops.push(op(client, act, asked, clock));
                    None
                }
            };
        }
        // The remaining operations were not answered yet.
        for (client, (asked, act, _)) in busy.into_iter().enumerate().filter_map(|(at, busy)| Some((at, busy?))) {
            ops.push(open(client, act, asked));
        }
        assert_eq!(check(0, &ops), Ok(()), "seed {seed}");
        let late = (0..ops.len()).rev().find(|at| matches!(ops[*at].act, Act::Read(_)) && ops[*at].answered.is_some());
        let late = late.expect("a read");
        let writes: Vec<Op> =
            ops.iter().filter(|op| matches!(op.act, Act::Write(_)) && op.answered.is_some()).copied().collect();
        let over = |old: &&Op| writes.iter().any(|new| new.asked > old.ends() && new.ends() < ops[late].asked);
        let gone: Vec<Op> = writes.iter().filter(over).copied().collect();
        let Act::Write(old) = gone[rng.up_to(gone.len())].act else { unreachable!("writes") };
        ops[late].act = Act::Read(old);
        assert!(check(0, &ops).is_err(), "seed {seed}: {:?} passed", ops[late]);
    }
}
