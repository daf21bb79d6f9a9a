//! How the body of an answer is framed (RFC 9112 §6.3). A malformed framing is refused whatever the method and the status:
//! another receiver may take such a length for the end of a body, also where this one has no body to read.

use http::{Method, StatusCode, header};

use crate::fields::{Fields, Looks};
use crate::framing::Framing;
use crate::number::read_decimal;

/// The fields that frame a message.
static FRAMING: Looks = Looks::of(&[b"content-length", b"transfer-encoding"]);

/// The status of an answer. RFC 9110 §15 has none outside of 100 to 599.
pub(super) fn status(code: u16) -> Result<StatusCode, &'static str> {
    let status = StatusCode::from_u16(code).ok().filter(|_| code < 600);
    status.ok_or("the status is not within 100 to 599")
}

/// The framing of an answer to a request of this method; `old` if its version is 1.0, which has no transfer codings
/// (RFC 9112 §6.1). Where both are given, chunks win over a length, which is then removed.
pub(super) fn of(
    status: StatusCode,
    old: bool,
    headers: &mut Fields,
    method: &Method,
) -> Result<Framing, &'static str> {
    let (mut length, mut again, mut codings, mut chunked) = (None, false, 0, false);
    for (name, value) in headers.like(&FRAMING) {
        match name {
            b"content-length" if length.is_some_and(|other| other != value) => {
                return Err("two content lengths");
            }
            b"content-length" => again = length.replace(value).is_some(),
            b"transfer-encoding" => {
                codings += 1;
                chunked = value.eq_ignore_ascii_case(b"chunked");
            }
            _ => {}
        }
    }
    let announced = match length.map(read_decimal) {
        Some(None) => return Err("a bad content length"),
        Some(announced) => announced,
        None => None,
    };
    match codings {
        0 if again => headers.insert(header::CONTENT_LENGTH, announced.unwrap_or_default().to_string()),
        0 => {}
        _ if old => return Err("a transfer coding in an answer of HTTP/1.0"),
        1 if chunked => _ = headers.remove(header::CONTENT_LENGTH),
        _ => return Err("a transfer coding that is not chunked"),
    }
    if *method == Method::HEAD || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(Framing::Ended);
    }
    Ok(match announced {
        _ if chunked => Framing::chunked(),
        None => Framing::UntilClose,
        Some(0) => Framing::Ended,
        Some(length) => Framing::Length(length),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(headers: &[(&str, &str)], status: u16, method: Method) -> Result<Framing, &'static str> {
        let mut fields = headers.iter().copied().collect();
        of(StatusCode::from_u16(status).unwrap(), false, &mut fields, &method)
    }

    #[test]
    fn where_a_body_ends() {
        let of = |headers: &[(&str, &str)]| framing(headers, 200, Method::GET);
        assert_eq!(of(&[("content-length", "5")]), Ok(Framing::Length(5)));
        assert_eq!(of(&[("content-length", "0")]), Ok(Framing::Ended));
        assert_eq!(of(&[("content-length", "5"), ("content-length", "5")]), Ok(Framing::Length(5)));
        assert_eq!(of(&[]), Ok(Framing::UntilClose));
        let both = [("transfer-encoding", "Chunked"), ("content-length", "5")];
        assert_eq!(of(&both), Ok(Framing::chunked()));
        assert_eq!(framing(&[("content-length", "5")], 200, Method::HEAD), Ok(Framing::Ended));
        assert_eq!(framing(&[("content-length", "5")], 304, Method::GET), Ok(Framing::Ended));
    }

    #[test]
    fn a_malformed_framing_is_none_whatever_is_asked() {
        let lengths = ["-5", "+5", "5 5", "", "0x5", "99999999999999999999", "5,5", "5, 6", "5x"];
        let mut bad: Vec<Vec<(&str, &str)>> =
            lengths.iter().map(|length| vec![("content-length", *length)]).collect();
        bad.push(vec![("content-length", "5"), ("content-length", "6")]);
        bad.push(vec![("transfer-encoding", "chunked"), ("content-length", "x")]);
        bad.push(vec![("transfer-encoding", "gzip, chunked")]);
        bad.push(vec![("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]);
        for headers in bad {
            for (status, method) in
                [(200, Method::GET), (200, Method::HEAD), (304, Method::GET), (204, Method::POST)]
            {
                assert!(framing(&headers, status, method.clone()).is_err(), "{headers:?} {status} {method}");
            }
        }
        let mut chunked = [("transfer-encoding", "chunked")].into_iter().collect();
        assert!(of(StatusCode::OK, true, &mut chunked, &Method::GET).is_err());
    }

    #[test]
    fn a_status_is_within_its_range() {
        assert!([100, 200, 599].into_iter().all(|code| status(code).is_ok()));
        assert!([0, 99, 600, 999, 1000].into_iter().all(|code| status(code).is_err()));
    }
}
