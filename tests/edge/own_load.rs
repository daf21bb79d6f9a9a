//! `overload` of the gateway itself: the least important requests are refused first, and never the admin API.

use crate::harness::{Gateway, RedisServer, Setup, Upstream, until};

fn text(overload: &str) -> String {
    format!(
        "{overload}routes:\n  \
         - {{name: pay, match: {{path: /pay}}, upstream: api, priority: critical}}\n  \
         - {{name: report, match: {{path: /report}}, upstream: api, priority: sheddable}}\n  \
         - {{name: rest, upstream: api}}\n\
         upstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}}}\n"
    )
}

fn pressure(gateway: &Gateway, resource: &str) -> f64 {
    gateway.metric("sluicegate_overload_pressure", &[("resource", resource)])
}

fn refused(gateway: &Gateway, target: &str) -> usize {
    (0..200).filter(|_| gateway.get(target).status == 503).count()
}

/// The gateway may have a little more memory than it uses. `max_delay` is the longest that is possible, so that a busy machine
/// does not press too.
#[test]
fn the_least_important_requests_are_refused_first() {
    let upstream = Upstream::answering("done");
    let gateway =
        crate::harness::Setup::default().upstream(&upstream).start(&text("overload: {max_delay: 10s}\n"));
    assert_eq!((pressure(&gateway, "memory"), refused(&gateway, "/report")), (0.0, 0));
    // 89 % of the memory is a pressure of 0.4. A reload needs memory, too, and memory that is freed is given back later.
    let in_range = || (0.2..0.6).contains(&pressure(&gateway, "memory"));
    let (mut attempts, mut passes, mut all) = (0, 0, [0; 3]);
    let [sheddable, usual, critical] = until("the pressure stays between none and half", || {
        attempts += 1; // so that no two files are the same
        if !in_range() {
            let used = gateway.metric("process_resident_memory_bytes", &[]);
            let most = (used / 0.89) as u64 + attempts;
            gateway.reload(&text(&format!("overload: {{max_memory: {most}, max_delay: 10s}}\n")));
            return None;
        }
        passes += 1;
        let counts = ["/report", "/other", "/pay"].map(|target| refused(&gateway, target));
        all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        in_range().then_some(counts)
    });
    assert!(sheddable >= 40, "{sheddable}");
    assert!(usual < sheddable / 2 && critical == 0, "{usual} and {sheddable}, {critical}");
    let shed = |priority| gateway.metric("sluicegate_overload_shed_total", &[("priority", priority)]);
    assert_eq!([shed("sheddable"), shed("critical")], [all[0] as f64, all[2] as f64]);
    // The requests that are refused never reach the upstream.
    let reported = upstream.seen().iter().filter(|seen| seen.target == "/report").count();
    assert_eq!(reported, 200 * (1 + passes) - all[0]);
}

/// A request is refused as often for the load of the gateway whether its limits are counted here or in a store.
#[test]
fn requests_with_limits_in_the_store_are_not_refused_more_often() {
    const REQUESTS: usize = 400;
    let redis = RedisServer::start();
    let text = |overload: &str| {
        format!(
            "{}{overload}limits:\n  \
               here: {{key: global, rate: 1M/s, scope: local}}\n  \
               there: {{key: global, rate: 1M/s}}\n\
             routes:\n  \
             - {{match: {{path: /here}}, limits: [here], priority: sheddable, respond: {{status: 200}}}}\n  \
             - {{match: {{path: /there}}, limits: [there], priority: sheddable, respond: {{status: 200}}}}\n",
            redis.store()
        )
    };
    let gateway = Setup::default().start(&text("overload: {max_delay: 10s}\n"));
    let mut attempts = 0;
    let [here, there] = until("some requests are refused, and not most", || {
        attempts += 1; // so that no two files are the same
        if !(0.1..0.3).contains(&pressure(&gateway, "memory")) {
            // 87 % of the memory is a pressure of 0.2, at which 40 % of the sheddable requests are refused.
            let most = (gateway.metric("process_resident_memory_bytes", &[]) / 0.87) as u64 + attempts;
            gateway.reload(&text(&format!("overload: {{max_memory: {most}, max_delay: 10s}}\n")));
            return None;
        }
        let mut counts = [0; 2];
        for _ in 0..REQUESTS {
            for (count, target) in counts.iter_mut().zip(["/here", "/there"]) {
                *count += usize::from(gateway.get(target).status == 503);
            }
        }
        (REQUESTS / 5..REQUESTS * 3 / 5).contains(&counts[0]).then_some(counts)
    });
    // Five standard deviations. If each request were decided on twice, some 100 more would be refused.
    assert!(here.abs_diff(there) < 70, "{here} here, {there} there");
}

/// With far too little memory all requests are refused, and say when to come back; the admin API answers.
#[test]
fn everything_is_refused_at_last_but_the_admin_api() {
    let upstream = Upstream::answering("done");
    let start = crate::harness::Setup::default().upstream(&upstream);
    let gateway = start.start(&text("overload: {max_memory: 16MiB}\n"));
    let problem = until("all is refused", || {
        let answer = gateway.get("/pay");
        (answer.status == 503).then_some(answer)
    });
    assert!((1..=6).contains(&problem.number("retry-after")), "{problem:?}");
    assert_eq!(problem.problem()["reason"], "overload");
    let call =
        gateway.ask("POST", "/svc/call", &[("content-type", "application/grpc"), ("content-length", "0")]);
    assert_eq!((call.status, call.header("grpc-status")), (200, Some("14")));
    assert_eq!(pressure(&gateway, "memory"), 1.0);
    assert_eq!(gateway.admin_get("/healthz").status, 200);
    gateway.reload(&text(""));
    until("nothing is refused", || (gateway.get("/report").status == 200).then_some(()));
}
