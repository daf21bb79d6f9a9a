//! From rules with conditions to an ordered list of routes.
//!
//! The rules of a frontend and then of its backend are walked through. Where a rule depends on a test that a route can make, the walk
//! goes on once with the requests that pass it and once with the others. The routes of those that pass come first, so that the route
//! of the others needs no negation.

use super::acl::{Condition, Literal};
use super::criterion::Kind;
use super::limits::{Limits, Tracked, key};
use super::lists::Lists;
use super::place::{Narrowed, Place, Test};
use super::rules::{Action, Denial, Header, Rules, Step};
use super::tree::{Effect, Leaf, Tree, flatten, same};
use crate::accepted;
use crate::marks::Marks;

/// The largest number of routes of a frontend.
const ROUTES: usize = 400;

/// Why a rule that chooses an answer or servers refuses requests.
const REFUSED: &str = "they are refused, because routes do not depend on addresses and counters: use `deny`, `allow`, a limit, or another host or path";

/// The state of a walk.
#[derive(Clone, Default)]
pub(super) struct State {
    pub(super) effect: Effect,
    pub(super) tracked: Vec<Tracked>,
    /// The clients that the rest of a phase does not hold for.
    pub(super) exempt: Vec<String>,
    phase: usize,
    /// Whether a rule has changed the address of the client.
    source_changed: bool,
    /// The status of refusals by limits.
    pub(super) refused: Option<u16>,
}

/// What is known of a listener.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts<'a> {
    pub(super) tls: bool,
    pub(super) port: &'a str,
}

/// What walks share.
pub(super) struct Walker<'a> {
    pub(super) sections: &'a [Rules],
    pub(super) limits: &'a mut Limits,
    pub(super) lists: &'a mut Lists,
    pub(super) marks: &'a mut Marks,
    /// What each route tracks, and its limits: to name what is counted elsewhere.
    pub(super) seen: &'a mut Vec<(Vec<Tracked>, Vec<String>)>,
    pub(super) facts: Facts<'a>,
    pub(super) leaves: usize,
}

/// A test at a place.
enum Known {
    Is(bool),
    /// Those that pass it have routes of their own.
    Divides(Test, Box<Place>),
    /// It does not depend on what routes are chosen by.
    Never,
    Inexpressible(String),
}

/// A condition at a place.
enum Evaluated {
    Split(Test, Box<Place>),
    /// What remains of its alternatives: tests that no route can make.
    Rest(Vec<Vec<Literal>>),
}

impl<'a> Walker<'a> {
    /// The routes of a frontend, in order.
    pub(super) fn routes(&mut self, section: usize) -> Vec<Leaf> {
        let tree = self.walk(&Place::default(), &mut Vec::new(), section, 0, State::default());
        let mut out = Vec::new();
        flatten(tree, &mut out);
        out
    }

    fn walk(
        &mut self,
        place: &Place,
        failed: &mut Vec<Test>,
        section: usize,
        from: usize,
        mut state: State,
    ) -> Tree {
        let sections = self.sections;
        let Rules { name, steps, .. } = &sections[section];
        let mut at = from;
        while let Some(step) = steps.get(at) {
            if state.phase != step.phase {
                state.phase = step.phase;
                state.exempt.clear();
            }
            match self.evaluate(step, place, failed, &state) {
                Evaluated::Split(test, narrowed) => {
                    let yes = self.walk(&narrowed, &mut failed.clone(), section, at, state.clone());
                    failed.push(test.clone());
                    let no = self.walk(place, failed, section, at, state);
                    failed.pop();
                    return if same(&yes, &no) { no } else { Tree::Split(test, Box::new(yes), Box::new(no)) };
                }
                Evaluated::Rest(rest) if rest.is_empty() => {}
                Evaluated::Rest(rest) => match &step.action {
                    Action::Allow if always(&rest) => {
                        self.marks.converted(step.line, "the rules below it do not apply to its routes");
                        let later = steps.iter().position(|other| other.phase > step.phase);
                        at = later.unwrap_or(steps.len());
                        continue;
                    }
                    Action::Backend(backend) if always(&rest) => {
                        state.effect.backend = Some((backend.clone(), step.source.clone()));
                        let found =
                            self.sections.iter().position(|rules| rules.serves && rules.name == *backend);
                        match found {
                            Some(found) if found != section => {
                                self.marks.converted(
                                    step.line,
                                    format!("upstream {}", crate::names::name(backend)),
                                );
                                state.exempt.clear();
                                return self.walk(place, failed, found, 0, state);
                            }
                            _ => {
                                self.marks.unsupported(step.line, format!("there is no backend `{backend}`"));
                                return self.leaf(place, state);
                            }
                        }
                    }
                    Action::OwnServers => {
                        state.effect.backend = Some((name.clone(), step.source.clone()));
                        return self.leaf(place, state);
                    }
                    Action::Answer(field, node) if always(&rest) => {
                        self.marks.converted(step.line, *field);
                        state.effect.answer = Some((field, node.clone(), step.source.clone()));
                        return self.leaf(place, state);
                    }
                    Action::Deny(denial) if always(&rest) => {
                        self.mark(
                            step,
                            denial.differs.clone(),
                            &format!("respond: {{status: {}}}", denial.status),
                        );
                        state.effect.answer = Some(("respond", denial.answer.clone(), step.source.clone()));
                        return self.leaf(place, state);
                    }
                    _ => self.apply(step, &rest, &mut state),
                },
            }
            at += 1;
        }
        self.leaf(place, state)
    }

    fn leaf(&mut self, place: &Place, state: State) -> Tree {
        self.leaves += 1;
        let limits = state.effect.limits.iter().map(|(name, _)| name.clone()).collect();
        self.seen.push((state.tracked, limits));
        Tree::Leaf(Box::new(Leaf { place: place.clone(), effect: state.effect }))
    }

    /// What remains of the condition of a rule for the requests at a place. What cannot be written remains of rules that have to hold
    /// for at least the same requests.
    fn evaluate(&mut self, step: &Step, place: &Place, failed: &[Test], state: &State) -> Evaluated {
        let mut rest = Vec::new();
        'clauses: for clause in &step.condition {
            let mut remains = Vec::new();
            let mut unknown = None;
            let mut lost = None;
            for literal in clause {
                let known = match changed(&literal.kind, state).filter(|_| closes(&step.action)) {
                    Some(why) => Known::Inexpressible(why.to_owned()),
                    None => self.known(step, literal, place, failed),
                };
                match known {
                    Known::Is(value) if value == literal.negated => continue 'clauses,
                    Known::Is(_) => {}
                    Known::Never => remains.push(literal.clone()),
                    Known::Divides(test, narrowed) if self.leaves < ROUTES => {
                        unknown.get_or_insert((test, narrowed));
                    }
                    Known::Divides(..) => {
                        lost =
                            Some("the rules have more combinations than a list of routes can have".to_owned())
                    }
                    Known::Inexpressible(why) => lost = Some(why),
                }
                if closes(&step.action)
                    && let Some(why) = lost.take()
                {
                    remains.push(Literal { negated: false, kind: Kind::Unsupported(why) });
                }
            }
            match (lost, unknown) {
                (Some(why), _) => {
                    let word = place.word();
                    let of =
                        if word.is_empty() { String::new() } else { format!(" on the routes of {word}") };
                    self.marks.unsupported(step.line, format!("left out{of}: {why}"));
                }
                (None, Some((test, narrowed))) => return Evaluated::Split(test, narrowed),
                (None, None) => rest.push(remains),
            }
        }
        Evaluated::Rest(rest)
    }

    fn known(&self, step: &Step, literal: &Literal, place: &Place, failed: &[Test]) -> Known {
        let test = match &literal.kind {
            Kind::Constant(value) => return Known::Is(*value),
            Kind::Tls => return Known::Is(self.facts.tls),
            Kind::Port(ports) => return Known::Is(ports.iter().any(|port| port == self.facts.port)),
            Kind::Source(_) | Kind::SourceFile(_) | Kind::Counter(_) => return Known::Never,
            Kind::Health(holds) => match step.action {
                Action::Backend(_) => return Known::Is(*holds),
                _ => return Known::Inexpressible("it depends on the health of servers".to_owned()),
            },
            Kind::Unsupported(why) => return Known::Inexpressible(why.clone()),
            Kind::Route(test) => test,
            Kind::Near(near) => {
                let narrower = near.narrower.then_some(&near.test);
                let found = match &step.action {
                    Action::Backend(_) => Some(&near.test),
                    action if closes(action) == literal.negated => narrower,
                    action if closes(action) || matches!(action, Action::Allow) => near.wider.as_ref(),
                    _ => Some(&near.test),
                };
                match found {
                    Some(test) => test,
                    None => return Known::Inexpressible(near.why.clone()),
                }
            }
        };
        if failed.contains(test) {
            return Known::Is(false);
        }
        match place.and(test) {
            Narrowed::Always => Known::Is(true),
            Narrowed::Never => Known::Is(false),
            Narrowed::To(narrowed)
                if failed.iter().any(|failed| narrowed.and(failed) == Narrowed::Always) =>
            {
                Known::Is(false)
            }
            Narrowed::To(narrowed) => match accepted::matches(&narrowed.node()) {
                Ok(()) => Known::Divides(test.clone(), narrowed),
                Err(why) => Known::Inexpressible(why),
            },
            Narrowed::Inexpressible => Known::Inexpressible(
                "it combines two tests that one route cannot make: write one expression for both".to_owned(),
            ),
        }
    }

    /// Applies a rule that neither ends the walk nor chooses routes.
    fn apply(&mut self, step: &Step, rest: &Condition, state: &mut State) {
        let conditional = !always(rest);
        match &step.action {
            Action::Lost(why) => self.marks.unsupported(step.line, why.clone()),
            Action::Protect(why) => self.close(step, why, state),
            Action::Needless(why) => self.marks.ignored(step.line, *why),
            Action::Deny(denial) => self.refuse_all(step, denial, rest, state),
            Action::Backend(backend) => match self.refusal(backend) {
                Some(denial) => self.refuse_all(step, denial, rest, state),
                None => {
                    self.refuse_all(step, &Denial::of("use_backend", 403, REFUSED.to_owned()), rest, state)
                }
            },
            Action::Answer(field, _) => {
                self.refuse_all(step, &Denial::of(field, 403, REFUSED.to_owned()), rest, state);
            }
            Action::Track { slot, sample, table, by_request } => {
                self.track(step, (slot, sample, table.as_ref(), *by_request), rest, state)
            }
            Action::Allow => match addresses(rest, false) {
                Some(found) => {
                    let names: Vec<_> =
                        found.iter().map(|kind| self.lists.exempt(kind, &step.source)).collect();
                    state.exempt.extend(names);
                    self.mark(step, None, "exempt of the limits below it");
                }
                None => {
                    self.marks.unsupported(step.line, "left out: routes and exemptions do not depend on this")
                }
            },
            Action::Request(header) if conditional && header.verb != "add" => {
                let text = format!(
                    "{} is removed from all requests of its routes, because routes do not depend on this: servers must not trust that of a client",
                    header.name
                );
                self.marks.unsupported(step.line, text);
                state.effect.request.push(Header { verb: "remove", value: String::new(), ..header.clone() });
            }
            Action::Strip(header, why) => {
                let text = format!(
                    "{} is removed from requests, so that servers do not trust that of a client: {why}",
                    header.name
                );
                self.marks.unsupported(step.line, text);
                state.effect.request.push(header.clone());
            }
            Action::SetSource => {
                let text = "name the proxies in front in client_ip.trusted_proxies, with the header in client_ip.header; rules below it that refuse by `src` deny everybody";
                self.marks.unsupported(step.line, text);
                state.source_changed = true;
            }
            _ if conditional => {
                let text = "left out: routes do not depend on addresses and counters; use `deny`, `allow` or a limit";
                self.marks.unsupported(step.line, text);
            }
            Action::Request(header) => {
                self.marks.converted(step.line, "request_headers");
                state.effect.request.push(header.clone());
            }
            Action::Response(header) => {
                self.marks.converted(step.line, "response_headers");
                state.effect.response.push(header.clone());
            }
            Action::Rewrite(node) if state.effect.rewrite.is_none() => {
                self.marks.converted(step.line, "rewrite");
                self.marks.report.note("routes are chosen by the path that the client sent: ACLs below set-path and replace-path see the changed path in HAProxy");
                state.effect.rewrite = Some((node.clone(), step.source.clone()));
            }
            Action::Rewrite(_) => {
                self.marks.unsupported(step.line, "a route has one rewrite: write one expression for both")
            }
            Action::OwnServers => {}
        }
    }

    fn track(
        &mut self,
        step: &Step,
        (slot, sample, table, by_request): (&str, &str, Option<&String>, bool),
        rest: &Condition,
        state: &mut State,
    ) {
        if let Some(tracked) = state.tracked.iter_mut().find(|tracked| tracked.slot == slot) {
            // The first rule that tracks an entry counts; this one does for requests without the value of that.
            if let (true, Ok(other)) = (always(rest), key(sample))
                && tracked.key.or(&other)
            {
                self.marks
                    .converted(step.line, "the key of requests that have not that of the rule above it");
            }
            return;
        }
        let own = self.sections.iter().find(|rules| rules.steps.iter().any(|other| other.line == step.line));
        let table = table.cloned().or_else(|| own.map(|rules| rules.name.clone())).unwrap_or_default();
        if !self.limits.has_table(&table) {
            self.marks.unsupported(step.line, format!("there is no stick-table in `{table}`"));
            return;
        }
        match key(sample) {
            Ok(key) => {
                let known = always(rest).then(Vec::new).or_else(|| addresses(rest, true));
                let differs = key.differs.clone().or_else(|| {
                    let text = "all requests of its routes are counted, whatever its condition says; use `exempt` of a limit";
                    known.is_none().then(|| text.to_owned())
                });
                let exempt: Vec<_> = known.unwrap_or_default();
                let exempt: Vec<_> =
                    exempt.iter().map(|kind| self.lists.exempt(kind, &step.source)).collect();
                self.mark(step, differs, "the key of the limits that read its counters");
                state.tracked.push(Tracked { slot: slot.to_owned(), table, key, by_request, exempt });
            }
            Err(why) => self.marks.unsupported(step.line, why),
        }
    }
}

/// Whether requests must not get past a rule that cannot be converted as it is. Where it does not hold for exactly the same requests, it
/// holds for more.
fn closes(action: &Action) -> bool {
    match action {
        Action::Deny(_)
        | Action::Protect(_)
        | Action::Answer(..)
        | Action::Track { .. }
        | Action::Backend(_) => true,
        Action::Request(header) => header.verb != "add",
        Action::Strip(..) | Action::SetSource => true,
        _ => false,
    }
}

/// Why a test sees another value in HAProxy: rules above it have changed what routes are chosen by.
fn changed(kind: &Kind, state: &State) -> Option<&'static str> {
    let test = match kind {
        Kind::Route(test) => test,
        Kind::Near(near) => &near.test,
        Kind::Source(_) | Kind::SourceFile(_) => {
            return state.source_changed.then_some("a rule above it changes the address of the client");
        }
        _ => return None,
    };
    let sets = |name: &str| state.effect.request.iter().any(|header| header.name.eq_ignore_ascii_case(name));
    match test {
        Test::Path(_) if state.effect.rewrite.is_some() => Some("a rule above it changes the path"),
        Test::Host(_) if sets("host") => Some("a rule above it changes the host"),
        Test::Header(name, _) if sets(name) => Some("a rule above it changes this header"),
        _ => None,
    }
}

/// Whether a condition holds in any case.
pub(super) fn always(rest: &Condition) -> bool {
    rest.iter().any(Vec::is_empty)
}

/// The addresses that a condition consists of: one alternative each, or, negated, all of one alternative.
fn addresses(rest: &Condition, negated: bool) -> Option<Vec<Kind>> {
    let is_address = |literal: &Literal| {
        literal.negated == negated && matches!(literal.kind, Kind::Source(_) | Kind::SourceFile(_))
    };
    let fits = if negated { rest.len() == 1 } else { rest.iter().all(|clause| clause.len() == 1) };
    let all = rest.iter().flatten();
    (fits && all.clone().all(is_address)).then(|| all.map(|literal| literal.kind.clone()).collect())
}
