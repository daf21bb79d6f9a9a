//! Whole-number arithmetic whose intermediate results may not fit 128 bits.

/// `a · b / c`, rounded up, for c below 2¹²⁷. It is exact also if the product does not fit: then the division is made bit
/// by bit of `b`.
pub(crate) fn scale_up(a: u128, b: u128, c: u128) -> u128 {
    debug_assert!(c > 0 && c < 1 << 127);
    if let Some(product) = a.checked_mul(b) {
        return product.div_ceil(c);
    }
    let (whole, rest) = (a / c, a % c);
    let (mut quotient, mut remainder) = (0_u128, 0_u128);
    for bit in (0..128).rev() {
        quotient = quotient.saturating_mul(2);
        remainder *= 2;
        if (b >> bit) & 1 == 1 {
            quotient = quotient.saturating_add(whole);
            remainder += rest;
        }
        quotient = quotient.saturating_add(remainder / c);
        remainder %= c;
    }
    quotient.saturating_add(u128::from(remainder > 0))
}

/// `a · b / c`, rounded down, for b ≤ c.
pub(crate) fn scale_down(a: u128, b: u128, c: u128) -> u128 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => a - scale_up(a, c - b, c),
    }
}

/// `a / b`. A division of two words is a library call of some 20 ns, so numbers that fit a word are divided as words.
#[inline]
pub(crate) fn divide(a: u128, b: u64) -> u128 {
    match u64::try_from(a) {
        Ok(a) => u128::from(a / b),
        Err(_) => a / u128::from(b),
    }
}

pub(crate) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_is_exact_even_where_the_product_does_not_fit() {
        assert_eq!(scale_up(50, 10, 100), 5);
        assert_eq!(scale_up(1, 1, 3), 1);
        let huge = 31_622_400_000_000_000_u128 * 1_000_000_000;
        assert_eq!(scale_up(huge / 2, huge, huge), huge / 2);
        // (h − 1)(h − 7) / (h − 3) = h − 5 − 8 / (h − 3)
        assert_eq!(scale_up(huge - 1, huge - 7, huge - 3), huge - 5);
    }
}
