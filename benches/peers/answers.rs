//! What the programs that time requests have in common: where an answer ends, and percentiles.

use std::time::Duration;

/// The length of the body that a whole head announces, and where the body begins. None while the head goes on.
pub(crate) fn head(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(end) = response.parse(bytes).expect("an answer in HTTP/1.1") else {
        return None;
    };
    let length = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = std::str::from_utf8(length.expect("a Content-Length").value).unwrap().parse().unwrap();
    Some((length, end))
}

/// Percentiles in microseconds, as names and numbers.
pub(crate) fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)]
        .map(|(name, part)| {
            let at = times[((times.len() - 1) as f64 * part) as usize];
            format!("{name} {:.0}", at.as_secs_f64() * 1e6)
        })
        .join(" ")
}
