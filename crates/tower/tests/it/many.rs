//! Many requests at once: exactly as many as the limit says are admitted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use sluicegate_tower::{DAY, Limit, RateLimitLayer};
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::common::TestClock;

/// The statuses of 1,000 requests that clones of one router answer on several threads.
async fn statuses(router: Router) -> Vec<u16> {
    let mut tasks = JoinSet::new();
    for _ in 0..1_000 {
        let router = router.clone();
        tasks.spawn(async move {
            let request = Request::get("/").body(Body::empty()).unwrap();
            router.oneshot(request).await.unwrap().status().as_u16()
        });
    }
    tokio::time::timeout(Duration::from_secs(60), tasks.join_all()).await.expect("answers in a minute")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_thousand_requests_as_many_as_the_limit_are_admitted() {
    type Make = fn(&'static str, u64) -> Limit;
    let limits: [Make; 4] = [
        |name, count| Limit::token_bucket(name, count, DAY),
        |name, count| Limit::fixed_window(name, count, DAY),
        |name, count| Limit::sliding_window(name, count, DAY),
        |name, count| Limit::sliding_log(name, count, DAY),
    ];
    for limit in limits {
        let served = Arc::new(AtomicUsize::new(0));
        let layer = RateLimitLayer::builder([limit("few", 137), limit("many", 600)])
            .clock(TestClock::new().source())
            .build()
            .unwrap();
        let count = Arc::clone(&served);
        let hello = async move || _ = count.fetch_add(1, Ordering::Relaxed);
        let statuses = statuses(Router::new().route("/", get(hello)).layer(layer.clone())).await;
        let with = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
        assert_eq!((with(200), with(429), served.load(Ordering::Relaxed)), (137, 863, 137));
        // What `few` refused was not charged to `many`.
        assert_eq!(layer.handle().usage("many", &()).unwrap().remaining, 600 - 137);
    }
}

/// Each request holds its place until all others have been decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_more_than_the_places_are_in_flight() {
    let layer = RateLimitLayer::new([Limit::concurrency("at-once", 10)]).unwrap();
    let (refused, all_decided) = tokio::sync::watch::channel(0_usize);
    let service = tower::service_fn(move |_: Request<()>| {
        let mut all_decided = all_decided.clone();
        async move {
            all_decided.wait_for(|refused| *refused == 990).await.expect("the sender waits");
            Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
        }
    });
    let service = tower::Layer::layer(&layer, service);
    let mut tasks = JoinSet::new();
    for _ in 0..1_000 {
        let (service, refused) = (service.clone(), refused.clone());
        tasks.spawn(async move {
            let status = service.oneshot(Request::new(())).await.unwrap().status().as_u16();
            if status == 429 {
                refused.send_modify(|count| *count += 1);
            }
            status
        });
    }
    let statuses =
        tokio::time::timeout(Duration::from_secs(60), tasks.join_all()).await.expect("in a minute");
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 10);
    assert_eq!(layer.handle().usage("at-once", &()).unwrap().remaining, 10);
}
