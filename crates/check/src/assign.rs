//! Maximum bipartite matching: assigns one element each to as many matchers as possible. Pure;
//! works on indexes of matchers and elements only.

use std::collections::VecDeque;

/// A maximum matching: for each matcher the index of its element, or None.
///
/// `fits(matcher, element)` is called at most once per pair. Once a matcher has accepted as many
/// elements as there are matchers, `fits` is not called for it again: the other matchers cannot
/// take all these elements. The work after these calls is at most proportional to `matchers`^2.5,
/// regardless of the number of elements.
pub(super) fn assign(
    matchers: usize,
    elements: usize,
    mut fits: impl FnMut(usize, usize) -> bool,
) -> Vec<Option<usize>> {
    let candidates = (0..matchers)
        .map(|matcher| (0..elements).filter(|element| fits(matcher, *element)).take(matchers).collect())
        .collect();
    let mut pairing = Pairing { candidates, element_of: vec![None; matchers], matcher_of: vec![None; elements] };
    while let Some(levels) = pairing.levels() {
        let mut next = vec![0; matchers];
        for matcher in 0..matchers {
            if pairing.element_of[matcher].is_none() {
                pairing.augment(matcher, &levels, &mut next);
            }
        }
    }
    pairing.element_of
}

/// The algorithm of Hopcroft and Karp: each round augments along all shortest paths at once.
struct Pairing {
    candidates: Vec<Vec<usize>>,
    element_of: Vec<Option<usize>>,
    matcher_of: Vec<Option<usize>>,
}

impl Pairing {
    /// For each matcher, its distance in moves from the nearest matcher that has no element. None
    /// if no further matcher can get an element.
    fn levels(&self) -> Option<Vec<usize>> {
        let mut levels: Vec<usize> =
            self.element_of.iter().map(|own| if own.is_none() { 0 } else { usize::MAX }).collect();
        let mut queue: VecDeque<usize> = (0..levels.len()).filter(|matcher| levels[*matcher] == 0).collect();
        let mut room = false;
        while let Some(matcher) = queue.pop_front() {
            for element in &self.candidates[matcher] {
                match self.matcher_of[*element] {
                    None => room = true,
                    Some(other) if levels[other] == usize::MAX => {
                        levels[other] = levels[matcher] + 1;
                        queue.push_back(other);
                    }
                    Some(_) => {}
                }
            }
        }
        room.then_some(levels)
    }

    /// Gives `matcher` an element along a shortest augmenting path: other matchers on this path
    /// move to other elements. Changes nothing if this round has no such path left.
    fn augment(&mut self, matcher: usize, levels: &[usize], next: &mut [usize]) {
        let mut way = vec![matcher];
        while let Some(last) = way.last().copied() {
            let Some(element) = self.candidates[last].get(next[last]).copied() else {
                way.pop();
                continue;
            };
            next[last] += 1;
            match self.matcher_of[element] {
                Some(other) if levels[other] == levels[last] + 1 => way.push(other),
                Some(_) => {}
                None => {
                    for mover in way {
                        let element = self.candidates[mover][next[mover] - 1];
                        self.element_of[mover] = Some(element);
                        self.matcher_of[element] = Some(mover);
                    }
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Reference implementation: tries all combinations.
    fn largest_matching(fits: &[Vec<bool>], taken: &mut BTreeSet<usize>) -> usize {
        let Some((first, rest)) = fits.split_first() else { return 0 };
        let mut best = largest_matching(rest, taken);
        for (element, fits) in first.iter().enumerate() {
            if *fits && taken.insert(element) {
                best = best.max(1 + largest_matching(rest, taken));
                taken.remove(&element);
            }
        }
        best
    }

    proptest! {
        #[test]
        fn as_many_have_one_as_can(fits in (0usize..6).prop_flat_map(|elements| {
            prop::collection::vec(prop::collection::vec(any::<bool>(), elements), 0..6)
        })) {
            let elements = fits.first().map_or(0, Vec::len);
            let own = assign(fits.len(), elements, |matcher, element| fits[matcher][element]);
            let given: Vec<usize> = own.iter().flatten().copied().collect();
            prop_assert_eq!(given.len(), largest_matching(&fits, &mut BTreeSet::new()));
            prop_assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), given.len(), "no element twice");
            prop_assert!(own.iter().enumerate().all(|(matcher, own)| own.is_none_or(|element| fits[matcher][element])));
        }
    }

    /// Each matcher except the last accepts two elements: the one with its own index and the one
    /// after it. The last matcher accepts only element 0, so that all other matchers must move to
    /// their second element.
    #[test]
    fn a_long_chain_of_moves_is_found_with_few_comparisons() {
        const N: usize = 2000;
        let own =
            assign(
                N,
                N,
                |matcher, element| {
                    if matcher == N - 1 { element == 0 } else { element == matcher || element == matcher + 1 }
                },
            );
        assert!(own.iter().all(Option::is_some));
        let mut asked = 0;
        let own = assign(200, 10_000, |_, _| {
            asked += 1;
            true
        });
        assert!(own.iter().all(Option::is_some));
        assert_eq!(asked, 200 * 200);
    }
}
