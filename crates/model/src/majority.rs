//! The size of a majority, and the number of managers that may fail. All commands and warnings use
//! these functions, so their numbers agree.

/// The smallest number that is more than half of `voters`.
pub fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

/// The number of voters that may fail while a majority remains.
pub fn tolerated_losses(voters: usize) -> usize {
    voters.saturating_sub(majority(voters))
}

/// Warns about a single manager or an even number of managers, and names the next better number.
pub fn tolerance_warning(managers: usize) -> Option<String> {
    let survive = |n: usize| match (n, tolerated_losses(n)) {
        (1, _) => "1 manager survives no loss".to_owned(),
        (n, 0) => format!("{n} managers (majority {}) survive no loss", majority(n)),
        (n, lost) => format!("{n} managers (majority {}) survive the loss of {lost}", majority(n)),
    };
    let now = match managers {
        0 => return None,
        1 => survive(1),
        2 => format!("{}: each of the two is needed", survive(2)),
        n if n % 2 == 0 => format!("{}, as {} do", survive(n), n - 1),
        _ => return None,
    };
    Some(format!("{now}; {}", survive(if managers == 1 { 3 } else { managers + 1 })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_number_survives_no_more_than_the_odd_one_below_it() {
        let table: Vec<(usize, usize)> = (1..=9).map(|n| (majority(n), tolerated_losses(n))).collect();
        assert_eq!(table, [(1, 0), (2, 0), (2, 1), (3, 1), (3, 2), (4, 2), (4, 3), (5, 3), (5, 4)]);
        assert_eq!((majority(0), tolerated_losses(0)), (1, 0));
    }

    #[test]
    fn one_manager_and_even_numbers_give_a_warning_with_a_better_number() {
        let warned = |n| tolerance_warning(n).unwrap_or_default();
        assert_eq!(warned(1), "1 manager survives no loss; 3 managers (majority 2) survive the loss of 1");
        assert_eq!(
            warned(2),
            "2 managers (majority 2) survive no loss: each of the two is needed; 3 managers (majority 2) survive the loss of 1"
        );
        assert_eq!(
            warned(4),
            "4 managers (majority 3) survive the loss of 1, as 3 do; 5 managers (majority 3) survive the loss of 2"
        );
        assert!([0, 3, 5, 7].into_iter().all(|n| tolerance_warning(n).is_none()));
    }
}
