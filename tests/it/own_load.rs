//! `overload` of the gateway itself: the least important requests are refused first, and never the admin API.

use crate::harness::{Gateway, Upstream, until};

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

/// The gateway may have a little more memory than it uses.
#[test]
fn the_least_important_requests_are_refused_first() {
    let upstream = Upstream::answering("done");
    let gateway = crate::harness::Setup::default().upstream(&upstream).start(&text("overload: {}\n"));
    assert_eq!((pressure(&gateway, "memory"), refused(&gateway, "/report")), (0.0, 0));
    // 89 % of the memory is a pressure of 0.4. A reload needs memory, too.
    let mut attempts = 0;
    until("the pressure is between none and half", || {
        let found = (0.2..0.6).contains(&pressure(&gateway, "memory"));
        if !found {
            attempts += 1; // so that no two files are the same
            let used = gateway.metric("process_resident_memory_bytes", &[]);
            let most = (used / 0.89) as u64 + attempts;
            gateway.reload(&text(&format!("overload: {{max_memory: {most}}}\n")));
        }
        found.then_some(())
    });
    let sheddable = refused(&gateway, "/report");
    assert!(sheddable >= 40, "{sheddable}");
    let usual = refused(&gateway, "/other");
    assert!(usual < sheddable / 2 && refused(&gateway, "/pay") == 0, "{usual} and {sheddable}");
    let shed = |priority| gateway.metric("sluicegate_overload_shed_total", &[("priority", priority)]);
    assert!(shed("sheddable") >= 40.0 && shed("critical") == 0.0);
    // The requests that are refused never reach the upstream.
    assert_eq!(upstream.seen().iter().filter(|seen| seen.target == "/report").count(), 200 + 200 - sheddable);
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
