//! Which server of an upstream a request goes to.

/// Smooth weighted round robin: 2:1 gives a a b a a b …, spread as evenly as it can be.
pub(super) fn turns(weights: &[u32]) -> Vec<usize> {
    let common = weights.iter().copied().reduce(gcd).unwrap_or(1).max(1);
    let weights: Vec<i64> = weights.iter().map(|weight| i64::from(weight / common)).collect();
    let total: i64 = weights.iter().sum();
    let mut current = vec![0_i64; weights.len()];
    let mut turns = Vec::new();
    for _ in 0..total {
        current.iter_mut().zip(&weights).for_each(|(current, weight)| *current += weight);
        // The first of the largest.
        let chosen = (0..current.len()).rev().max_by_key(|i| current[*i]).unwrap_or(0);
        current[chosen] -= total;
        turns.push(chosen);
    }
    turns
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_the_weights() {
        assert_eq!(turns(&[1]), [0]);
        assert_eq!(turns(&[1, 1]), [0, 1]);
        assert_eq!(turns(&[2, 1]), [0, 1, 0]);
        assert_eq!(turns(&[200, 100]), [0, 1, 0]);
        assert_eq!(turns(&[5, 1, 1]).iter().filter(|turn| **turn == 0).count(), 5);
    }
}
