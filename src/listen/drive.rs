//! Polls hyper's connections.

/// Polls a connection to its end, and tells it when it is to end.
///
/// How a connection ends is the client's business: the errors are malformed requests, resets and deadlines,
/// which the client was told of where it still listened.
macro_rules! drive {
    ($connection:expr, $serving:expr) => {{
        let mut serving = std::pin::pin!($serving);
        let _ = std::future::poll_fn(|context| {
            $connection.deadline.watch(context);
            // Read first: a request that has arrived is served before the connection ends.
            let polled = serving.as_mut().poll(context);
            if polled.is_pending() && $connection.deadline.take_closing() {
                serving.as_mut().graceful_shutdown();
                return serving.as_mut().poll(context);
            }
            polled
        })
        .await;
    }};
}

pub(super) use drive;
