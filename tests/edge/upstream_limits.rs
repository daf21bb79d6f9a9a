//! Rate limit headers of the API behind the gateway: replaced, kept or renamed.

use crate::harness::{Gateway, Upstream};

/// What a client receives of one family: the gateway's limit or the upstream's, and the one that was renamed.
#[test]
fn headers_of_the_upstream_are_replaced_kept_or_renamed() {
    let upstream = Upstream::scripted(|exchange| {
        let status = if exchange.seen.target.contains("429") { 429 } else { 200 };
        match exchange.seen.target.contains("bare") {
            true => exchange.answer(status, &[], b""),
            false => {
                let own = [
                    ("x-ratelimit-limit", "7"),
                    ("ratelimit", "\"own\";r=3"),
                    ("ratelimit-policy", "\"own\";q=7"),
                ];
                exchange.answer(status, &own, b"");
            }
        }
    });
    for (headers, ours, renamed) in [
        ("[x-ratelimit, ietf]", true, false),
        ("{upstream: replace}", true, false),
        ("{upstream: keep}", false, false),
        ("{upstream: rename}", true, true),
    ] {
        let gateway = Gateway::before(
            &upstream,
            &format!(
                "limits: {{l: {{key: ip, rate: 100/day}}}}\nupstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}}}\n\
                 routes:\n  - {{name: own, match: {{path: /own}}, upstream: api, limits: [l], headers: {{families: []}}}}\n  \
                 - {{name: all, upstream: api, limits: [l], headers: {headers}}}\n"
            ),
        );
        for (target, ours, renamed) in
            [("/", ours, renamed), ("/bare", true, false), ("/429", false, false), ("/429/bare", true, false)]
        {
            let answer = gateway.get(target);
            let limit = if ours { "100" } else { "7" };
            let (ratelimit, policy) =
                if ours { ("\"l\";r=", "\"l\";q=100;w=86400") } else { ("\"own\";r=3", "\"own\";q=7") };
            assert_eq!(answer.header("x-ratelimit-limit"), Some(limit), "{headers} {target}");
            assert!(answer.header("ratelimit").unwrap().starts_with(ratelimit), "{headers} {target}");
            assert_eq!(answer.header("ratelimit-policy"), Some(policy), "{headers} {target}");
            let other = |name, value| renamed.then_some(value) == answer.header(name);
            assert!(other("x-upstream-ratelimit-limit", "7"), "{headers} {target}");
            assert!(other("upstream-ratelimit", "\"own\";r=3"), "{headers} {target}");
            assert!(other("upstream-ratelimit-policy", "\"own\";q=7"), "{headers} {target}");
        }
        assert_eq!(gateway.get("/own").header("x-ratelimit-limit"), Some("7"), "no family is the gateway's");
    }
}
