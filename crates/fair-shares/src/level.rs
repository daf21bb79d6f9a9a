//! The level of a max-min fair division.

use std::cmp::Ordering;

/// The share of a weight of one, in millionths of a token per second, if consumers with these demands (in the same unit) and weights
/// divide `capacity`. `None` if there is enough for all. The order of `demands` is changed.
pub fn level(capacity: u64, demands: &mut [(u64, u32)]) -> Option<u64> {
    let demanded: u128 = demands.iter().map(|(demand, _)| u128::from(*demand)).sum();
    if demanded <= u128::from(capacity) {
        return None;
    }
    // Those that demand the least for their weight are satisfied first.
    demands.sort_unstable_by(|(a, of_a), (b, of_b)| {
        let (a, b) = (u128::from(*a) * u128::from(*of_b), u128::from(*b) * u128::from(*of_a));
        a.cmp(&b).then(Ordering::Equal)
    });
    let mut weights: u128 = demands.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let mut left = u128::from(capacity);
    for (demand, weight) in demands {
        let (demand, weight) = (u128::from(*demand), u128::from(*weight));
        if demand * weights > left * weight {
            break;
        }
        left -= demand;
        weights -= weight;
    }
    Some(u64::try_from(left / weights.max(1)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_demands_little_gets_it_and_the_others_get_the_same() {
        assert_eq!(level(120, &mut [(1_000, 1), (50, 1), (10, 1)]), Some(60));
        assert_eq!(level(120, &mut [(1_000, 1), (1_000, 3)]), Some(30));
        assert_eq!(level(120, &mut [(60, 1), (60, 1)]), None);
        assert_eq!(level(0, &mut [(1, 1)]), Some(0));
        assert_eq!(level(100, &mut []), None);
    }

    /// By definition: what all get at the level is the capacity, and one more would be too much.
    #[test]
    fn the_level_divides_the_whole_capacity() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let mut demands: Vec<(u64, u32)> =
                (0..=random(12)).map(|_| (random(1_000), 1 + random(9) as u32)).collect();
            let capacity = random(4_000);
            let given = |level: u64, demands: &[(u64, u32)]| -> u64 {
                demands.iter().map(|(demand, weight)| (*demand).min(u64::from(*weight) * level)).sum()
            };
            match level(capacity, &mut demands) {
                None => assert!(demands.iter().map(|(demand, _)| demand).sum::<u64>() <= capacity),
                Some(level) => {
                    assert!(given(level, &demands) <= capacity, "{level} of {capacity}: {demands:?}");
                    assert!(given(level + 1, &demands) > capacity, "{level} of {capacity}: {demands:?}");
                }
            }
        }
    }
}
