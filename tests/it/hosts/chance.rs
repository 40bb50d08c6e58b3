//! Who is told a second time: real hosts share a machine with whatever else it does, so one failure there may tell nothing of
//! the program. The rules, which are to hide nothing: alone, once, on new hosts, never more than [`AT_MOST`], and said aloud.
//! Only for real hosts: a simulation or a unit test that fails has failed. Knows neither stories nor hosts.

use super::fleets::in_short;
use anyhow::Result;

/// So many failures are no accident of the machine.
pub const AT_MOST: usize = 5;

/// One that failed at first.
#[derive(Debug)]
pub struct Failure<T> {
    pub name: &'static str,
    /// The first line of why.
    pub why: String,
    pub what: T,
}

/// How it ended: lines for the end of the log, and lines of what failed for good.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ending {
    pub flaky: Vec<String>,
    pub failed: Vec<String>,
}

/// Whether there are second chances at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chances {
    /// `REMOOR_STRICT` is set (`make ten`): whoever hunts for what fails one time in a hundred wants to see it.
    Strict,
    Second,
}

impl Chances {
    /// What the environment says.
    pub fn here() -> Chances {
        let set = std::env::var_os("REMOOR_STRICT").is_some_and(|value| !value.is_empty() && value != "0");
        if set { Chances::Strict } else { Chances::Second }
    }

    /// Tells each failure's story once more, one after the other, where the rules allow it.
    pub fn take<T>(self, failures: Vec<Failure<T>>, mut again: impl FnMut(&T) -> Result<(), String>) -> Ending {
        let mut ending = Ending::default();
        let second = self == Chances::Second && failures.len() <= AT_MOST;
        for Failure { name, why, what } in failures {
            if !second {
                ending.failed.push(format!("{name}: {why}"));
                continue;
            }
            // Its number is enough to find it, as it is enough to choose it.
            let number = name.split(' ').next().unwrap_or(name);
            match again(&what) {
                Ok(()) => ending.flaky.push(format!("FLAKY: {number} failed once: {why}")),
                Err(then) => ending.failed.push(format!("{name}: {why}\n    and told alone: {then}")),
            }
        }
        ending
    }
}

/// A test on hosts of its own, by the same rules as the stories.
pub fn told(name: &'static str, test: impl FnMut() -> Result<()>) -> Result<()> {
    told_by(Chances::here(), name, test, &mut |line| eprintln!("{line}"))
}

fn told_by(
    chances: Chances,
    name: &'static str,
    mut test: impl FnMut() -> Result<()>,
    say: &mut dyn FnMut(String),
) -> Result<()> {
    let Err(first) = test() else { return Ok(()) };
    say(format!("FAIL  {name}: {first:#}"));
    let failure = Failure { name, why: in_short(&first), what: () };
    let ending = chances.take(vec![failure], |()| {
        say(format!("hosts: {name} failed, and is told once more"));
        test().map_err(|again| {
            say(format!("FAIL  {name}, told once more: {again:#}"));
            in_short(&again)
        })
    });
    ending.flaky.into_iter().for_each(&mut *say);
    if ending.failed.is_empty() { Ok(()) } else { Err(first.context(ending.failed.join("\n"))) }
}

#[cfg(test)]
fn failures(count: usize) -> Vec<Failure<usize>> {
    let one = |at: usize| Failure { name: "A17b in between", why: format!("waited in vain ({at})"), what: at };
    (0..count).map(one).collect()
}

#[test]
fn one_that_passes_alone_is_flaky_and_one_that_fails_again_has_failed() {
    let ending = Chances::Second.take(failures(2), |at| if *at == 0 { Ok(()) } else { Err("no leader".to_owned()) });
    assert_eq!(ending.flaky, ["FLAKY: A17b failed once: waited in vain (0)"]);
    assert_eq!(ending.failed, ["A17b in between: waited in vain (1)\n    and told alone: no leader"]);
    assert_eq!(Chances::Second.take(failures(0), |_| Ok(())), Ending::default());
}

#[test]
fn many_failures_and_a_strict_run_get_no_second_chance() {
    for (chances, count) in [(Chances::Second, AT_MOST + 1), (Chances::Strict, 1)] {
        let ending = chances.take(failures(count), |_| panic!("told once more"));
        assert_eq!((ending.flaky.len(), ending.failed.len()), (0, count));
    }
    let mut told = 0;
    let ending = Chances::Second.take(failures(AT_MOST), |_| {
        told += 1;
        Ok(())
    });
    assert_eq!((told, ending.flaky.len(), ending.failed.len()), (AT_MOST, AT_MOST, 0));
}

#[test]
fn a_test_of_its_own_is_told_twice_at_most() {
    for (chances, failing, passes, times) in [
        (Chances::Second, 0, true, 1),
        (Chances::Second, 1, true, 2),
        (Chances::Second, 2, false, 2),
        (Chances::Strict, 1, false, 1),
    ] {
        let (mut told, mut said) = (0, Vec::new());
        let test = || {
            told += 1;
            anyhow::ensure!(told > failing, "the reason\nof the {told}th");
            Ok(())
        };
        let ended = told_by(chances, "A99 of its own", test, &mut |line| said.push(line));
        assert_eq!((ended.is_ok(), told), (passes, times), "{chances:?}, {failing} failures");
        assert_eq!(said.contains(&"FLAKY: A99 failed once: the reason of the 1th".to_owned()), passes && failing > 0);
        assert_eq!(said.contains(&"FAIL  A99 of its own: the reason\nof the 1th".to_owned()), failing > 0, "{said:?}");
    }
}
