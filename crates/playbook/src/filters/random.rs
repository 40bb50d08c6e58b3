//! The filters `random` and `shuffle`. With a seed, they give the results of Python's generator
//! (the Mersenne Twister). Without a seed, only the node knows the result.

use super::{Args, Filter, FilterResult, failure, filter, list};
use crate::lang::python;
use crate::vars::scope::on_the_node;
use minijinja::{Error, State, Value};
use sha2::{Digest, Sha512};

pub const FILTERS: &[Filter] =
    &[filter("random", &["start", "step", "seed"], random), filter("shuffle", &["seed"], shuffle)];

fn random(state: &mut State, value: Value, args: Args) -> FilterResult {
    let mut source = source(state, &args)?;
    let (start, step) = (args.number("start")?.unwrap_or(0), args.number("step")?.filter(|n| *n != 0).unwrap_or(1));
    if let Some(end) = value.as_i64() {
        // No sum or product of these numbers overflows 128 bits.
        let (end, start, step) = (i128::from(end), i128::from(start), i128::from(step));
        let count = (end - start + step - step.signum()) / step;
        let count = u32::try_from(count).ok().filter(|count| *count > 0);
        let count = count.ok_or_else(|| failure("random: the range is empty or too large"))?;
        let drawn = start + step * i128::from(source.draw_below(count)?);
        return i64::try_from(drawn).map(Value::from).map_err(|_| failure("random: the number is too large"));
    }
    if args.get("start").is_some() || args.get("step").is_some() {
        return Err(failure("random: start and step can only be used with integer values"));
    }
    let items = list("random", &value)?;
    let count = u32::try_from(items.len()).ok().filter(|count| *count > 0);
    let at = source.draw_below(count.ok_or_else(|| failure("random: the list is empty"))?)?;
    Ok(items[at as usize].clone())
}

fn shuffle(state: &mut State, value: Value, args: Args) -> FilterResult {
    let mut source = source(state, &args)?;
    let mut items = list("shuffle", &value)?;
    for i in (1..items.len()).rev() {
        let count = u32::try_from(i + 1).map_err(|_| failure("shuffle: the list is too long"))?;
        items.swap(i, source.draw_below(count)? as usize);
    }
    Ok(items.into())
}

/// A source of random bits.
enum Source {
    Seeded(Box<MersenneTwister>),
    System,
}

fn source(state: &State, args: &Args) -> Result<Source, Error> {
    match args.get("seed").filter(|seed| !seed.is_none()) {
        None => on_the_node(state).map(|()| Source::System),
        Some(seed) => Ok(Source::Seeded(Box::new(MersenneTwister::with_key(&key(seed)?)))),
    }
}

/// The key of a seed as in Python: an integer as it is, a text with its SHA-512.
fn key(seed: &Value) -> Result<Vec<u32>, Error> {
    let mut bytes = match (seed.as_str(), seed.as_i64()) {
        (Some(text), _) => {
            let hash = Sha512::digest(text.as_bytes());
            let mut all = text.as_bytes().to_vec();
            all.extend_from_slice(&hash);
            all
        }
        (None, Some(number)) => number.unsigned_abs().to_be_bytes().to_vec(),
        _ => return Err(failure(format!("the seed `{}` is neither a text nor an integer", python::text(seed)?))),
    };
    bytes.reverse();
    let mut words: Vec<u32> =
        bytes.chunks(4).map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))).collect();
    while words.len() > 1 && words.last() == Some(&0) {
        words.pop();
    }
    Ok(words)
}

impl Source {
    /// A number below `count`, as Python's `_randbelow` takes it from the bits.
    fn draw_below(&mut self, count: u32) -> Result<u32, Error> {
        let bits = 32 - count.leading_zeros();
        loop {
            let word = match self {
                Self::Seeded(twister) => twister.next(),
                Self::System => getrandom::u32().map_err(|e| failure(format!("no random bits: {e}")))?,
            };
            let number = word >> (32 - bits);
            if number < count {
                return Ok(number);
            }
        }
    }
}

const N: usize = 624;
const M: usize = 397;

/// MT19937, the generator of Python's `random.Random`.
struct MersenneTwister {
    state: [u32; N],
    at: usize,
}

impl MersenneTwister {
    fn with_key(key: &[u32]) -> Self {
        let mut state = [0u32; N];
        state[0] = 19_650_218;
        for i in 1..N {
            state[i] = 1_812_433_253_u32.wrapping_mul(state[i - 1] ^ state[i - 1] >> 30).wrapping_add(i as u32);
        }
        let (mut i, mut j) = (1, 0);
        for _ in 0..N.max(key.len()) {
            let mixed = state[i] ^ (state[i - 1] ^ state[i - 1] >> 30).wrapping_mul(1_664_525);
            state[i] = mixed.wrapping_add(key[j]).wrapping_add(j as u32);
            (i, j) = (i + 1, (j + 1) % key.len());
            if i >= N {
                state[0] = state[N - 1];
                i = 1;
            }
        }
        for _ in 0..N - 1 {
            let mixed = state[i] ^ (state[i - 1] ^ state[i - 1] >> 30).wrapping_mul(1_566_083_941);
            state[i] = mixed.wrapping_sub(i as u32);
            i += 1;
            if i >= N {
                state[0] = state[N - 1];
                i = 1;
            }
        }
        state[0] = 0x8000_0000;
        Self { state, at: N }
    }

    fn next(&mut self) -> u32 {
        if self.at >= N {
            for i in 0..N {
                let y = self.state[i] & 0x8000_0000 | self.state[(i + 1) % N] & 0x7fff_ffff;
                let twist = if y & 1 == 0 { 0 } else { 0x9908_b0df };
                self.state[i] = self.state[(i + M) % N] ^ y >> 1 ^ twist;
            }
            self.at = 0;
        }
        let mut y = self.state[self.at];
        self.at += 1;
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c_5680;
        y ^= y << 15 & 0xefc6_0000;
        y ^ y >> 18
    }
}
