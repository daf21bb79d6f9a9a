//! Many writers at the same time.

use std::sync::Arc;

use sluicegate_rules::Precondition;
use sluicegate_rules_redis::WriteError;
use tokio::task::JoinSet;

use crate::common::{Server, batch, put, put_if, rule, run_test};

#[test]
fn read_modify_write_of_200_writers_loses_no_update() {
    let server = Server::start();
    run_test(async {
        let stores = [Arc::new(server.store()), Arc::new(server.store())];
        stores[0].write(batch([put(rule("counter", "k", "0"))])).await.unwrap();
        let mut writers = JoinSet::new();
        for number in 0..200 {
            let store = Arc::clone(&stores[number % 2]);
            writers.spawn(async move {
                loop {
                    let stored = store.get("counter").await.unwrap().unwrap();
                    let next = stored.rule.note.parse::<u64>().unwrap() + 1;
                    let change = put_if(
                        rule("counter", "k", &next.to_string()),
                        Precondition::Version(vec![stored.version]),
                    );
                    match store.write(batch([change])).await {
                        Ok(_) => return,
                        Err(WriteError::Failed(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        while let Some(ended) = writers.join_next().await {
            ended.unwrap();
        }
        assert_eq!(stores[1].get("counter").await.unwrap().unwrap().rule.note, "200");
        assert_eq!(stores[0].version().await.unwrap().version, 201);
    });
}
