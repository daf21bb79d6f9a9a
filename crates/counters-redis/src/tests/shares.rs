//! `shares.lua` lends as the model does that the simulation of regions uses.

#[path = "../../../leases/tests/home/mod.rs"]
mod home;

use home::{Asked, Home};
use sluicegate_leases::SHARE_BOOKED;

use super::server::Server;
use crate::region_shares::{Region, ShareAsk, arguments};
use crate::script_text::SHARES;

#[test]
fn the_script_lends_as_the_model_does() {
    let server = Server::start();
    let mut connection = server.connection();
    let mut word = 1_u64;
    let mut below = move |most: u64| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (word >> 33) % most
    };
    let life = SHARE_BOOKED.as_nanos() / 1_000_000;
    for round in 0..20 {
        let limits = ["one", "two"];
        let mut homes = [Home::default(), Home::default()];
        let names = ["a", "b-2", "c.3"];
        let floors: Vec<(String, u32)> =
            names.iter().map(|name| ((*name).to_owned(), 50_000 + below(250_000) as u32)).collect();
        let (mut now, mut question) = (1_000_000, 0);
        let mut held = [[0_u32; 6]; 2];
        for step in 0..400 {
            match below(60) {
                0 => now += 30_000,
                1 => now -= 500,
                _ => now += below(900),
            }
            let gateway = below(6) as usize;
            let (region, name) = (names[gateway % 3], format!("gateway {gateway}"));
            // Now and then an old question comes late.
            question += 1;
            let number = if below(30) == 0 { question - 1 } else { question };
            let asks: Vec<ShareAsk> = (0..2)
                .map(|limit| ShareAsk {
                    limit: format!("{round}-{}", limits[limit]),
                    applied: if below(8) == 0 { floors[gateway % 3].1 } else { held[limit][gateway] },
                    demand: below(3) * below(100_000),
                    refused: below(2) * below(1_000),
                })
                .collect();
            let expected: Vec<i64> = (0..2)
                .map(|limit| {
                    let ShareAsk { applied, demand, refused, .. } = asks[limit];
                    let asked = Asked { region, gateway: &name, question: number, applied, demand, refused };
                    homes[limit].lend(now, life, &floors, &asked).map_or(-1, i64::from)
                })
                .collect();
            let mut call = redis::cmd("EVAL");
            call.arg(SHARES).arg(2);
            asks.iter().for_each(|ask| {
                call.arg(&ask.limit);
            });
            arguments(&mut call, now, Region { name: region, floors: &floors }, (&name, number), &asks);
            let reply: Vec<i64> = call.query(&mut connection).unwrap();
            assert_eq!(reply, expected, "round {round}, step {step}");
            for limit in 0..2 {
                if let Ok(part) = u32::try_from(reply[limit]) {
                    held[limit][gateway] = part;
                }
            }
        }
    }
}
