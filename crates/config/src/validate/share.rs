//! Shares, as the file writes them.

use crate::model::log::Share;
use crate::read::report::Mistake;

/// `10%`, `0.01%`.
pub(super) fn share(text: &str) -> Result<Share, Mistake> {
    let bad = || Mistake::new(format!("expected a share such as 10% or 0.1%, found `{text}`"));
    let Some(number) = text.trim().strip_suffix('%') else {
        return Err(match text.parse::<f64>() {
            Ok(_) => bad().help(format!("write {text}%")),
            Err(_) => bad(),
        });
    };
    let (whole, fraction) = number.trim().split_once('.').unwrap_or((number.trim(), "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 4 {
        return Err(bad().help("up to four digits behind the point"));
    }
    let fraction: u32 = format!("{fraction:0<4}").parse().map_err(|_| bad())?;
    match whole.parse::<u32>() {
        Ok(whole) if whole < 100 || (whole == 100 && fraction == 0) => {
            Ok(Share::millionths(whole * 10_000 + fraction))
        }
        _ => Err(Mistake::new(format!("a share is between 0% and 100%, not {text}"))),
    }
}
