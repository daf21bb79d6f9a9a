//! Which plugin of several applies: Kong runs the one with the most specific scope, and no other of its name.

use super::entities::{Entities, Person, Plugin, Route};
use super::known;

/// The plugin of a name for the requests of a route, of a consumer or of anybody without one of its own.
pub(super) fn plugin<'e, 'a>(
    entities: &'e Entities<'a>,
    name: &str,
    route: &Route<'a>,
    consumer: Option<&Person<'a>>,
) -> Option<&'e Plugin<'a>> {
    let applies = |plugin: &&Plugin<'a>| plugin.name == name && fits(entities, plugin, route, consumer);
    entities.plugins.iter().filter(applies).max_by_key(|plugin| rank(plugin))
}

/// The consumers with a plugin of their own for the requests of a route.
pub(super) fn consumers<'e, 'a>(
    entities: &'e Entities<'a>,
    name: &str,
    route: &Route<'a>,
) -> Vec<(&'e Person<'a>, &'e Plugin<'a>)> {
    let own = entities.consumers.iter().filter_map(|person| {
        let found = plugin(entities, name, route, Some(person))?;
        found.consumer.is_some().then_some((person, found))
    });
    own.collect()
}

/// The numbers of the plugins that restrict the requests of a route.
pub(super) fn restricting(entities: &Entities<'_>, route: &Route<'_>) -> Vec<usize> {
    let of_route = |plugin: &&Plugin<'_>| {
        let person = plugin.consumer.as_ref().and_then(|name| entities.consumer(name));
        known::restricts(plugin.name) && fits(entities, plugin, route, person)
    };
    entities.plugins.iter().filter(of_route).map(|plugin| plugin.field.number).collect()
}

fn fits(
    entities: &Entities<'_>,
    plugin: &Plugin<'_>,
    route: &Route<'_>,
    consumer: Option<&Person<'_>>,
) -> bool {
    let of_route = plugin.route.as_ref().is_none_or(|name| route.is(name));
    let service = route.service.map(|number| &entities.services[number]);
    let of_service =
        plugin.service.as_ref().is_none_or(|name| service.is_some_and(|service| service.is(name)));
    let of_consumer = plugin.consumer.as_ref().is_none_or(|name| {
        consumer.is_some_and(|person| entities.consumer(name).is_some_and(|known| known.name == person.name))
    });
    of_route && of_service && of_consumer && plugin.group.is_none()
}

/// Consumer, route and service together come first, then consumer and route, consumer and service, route and service, consumer, route,
/// service, and what is global last.
fn rank(plugin: &Plugin<'_>) -> u8 {
    match (plugin.consumer.is_some(), plugin.route.is_some(), plugin.service.is_some()) {
        (true, true, true) => 7,
        (true, true, false) => 6,
        (true, false, true) => 5,
        (false, true, true) => 4,
        (true, false, false) => 3,
        (false, true, false) => 2,
        (false, false, true) => 1,
        (false, false, false) => 0,
    }
}
