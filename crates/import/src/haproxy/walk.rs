//! From rules with conditions to an ordered list of routes.
//!
//! The rules of a frontend and then of its backend are walked through. Where a rule depends on a test that a route can make, the walk
//! goes on once with the requests that pass it and once with the others. The routes of those that pass come first, so that the route
//! of the others needs no negation.

use super::acl::{Condition, Literal};
use super::answer::reject;
use super::criterion::Kind;
use super::limits::{Limits, Tracked, key};
use super::lists::Lists;
use super::place::{Narrowed, Place, Test};
use super::rules::{Action, Denial, Rules, Step};
use super::tree::{Effect, Leaf, Tree, flatten, same};
use crate::marks::Marks;
use crate::report::Outcome;

/// The largest number of routes of a frontend.
const ROUTES: usize = 400;

/// The state of a walk.
#[derive(Clone, Default)]
struct State {
    effect: Effect,
    tracked: Vec<Tracked>,
    exempt: Vec<String>,
    /// The status of refusals by limits.
    refused: Option<u16>,
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
            match self.evaluate(step, place, failed) {
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
                        at = steps.iter().position(|other| other.after_allow).unwrap_or(steps.len());
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

    /// What remains of the condition of a rule for the requests at a place.
    fn evaluate(&mut self, step: &Step, place: &Place, failed: &[Test]) -> Evaluated {
        let mut rest = Vec::new();
        'clauses: for clause in &step.condition {
            let mut remains = Vec::new();
            let mut unknown = None;
            let mut lost = None;
            for literal in clause {
                let known = match &literal.kind {
                    Kind::Constant(value) => Some(*value),
                    Kind::Tls => Some(self.facts.tls),
                    Kind::Port(ports) => Some(ports.iter().any(|port| port == self.facts.port)),
                    Kind::Route(test) if failed.contains(test) => Some(false),
                    Kind::Route(test) => match place.and(test) {
                        Narrowed::Always => Some(true),
                        Narrowed::Never => Some(false),
                        Narrowed::To(narrowed) => {
                            let excluded =
                                failed.iter().any(|failed| narrowed.and(failed) == Narrowed::Always);
                            if !excluded {
                                unknown.get_or_insert((test.clone(), narrowed));
                                continue;
                            }
                            Some(false)
                        }
                        Narrowed::Inexpressible => {
                            let why = "it combines two tests that one route cannot make: write one expression for both".to_owned();
                            match literal.negated && protects(&step.action) {
                                true => remains.push(Literal { negated: true, kind: Kind::Unsupported(why) }),
                                false => lost = Some(why),
                            }
                            continue;
                        }
                    },
                    // A rule that denies all but those who pass a test.
                    Kind::Unsupported(_) if literal.negated && protects(&step.action) => None,
                    Kind::Unsupported(why) => {
                        lost = Some(why.clone());
                        continue;
                    }
                    Kind::Source(_) | Kind::SourceFile(_) | Kind::Counter(_) => None,
                };
                match known {
                    Some(value) if value == literal.negated => continue 'clauses,
                    Some(_) => {}
                    None => remains.push(literal.clone()),
                }
            }
            match (lost, unknown) {
                (Some(why), _) => {
                    let word = place.word();
                    let of =
                        if word.is_empty() { String::new() } else { format!(" on the routes of {word}") };
                    self.marks.unsupported(step.line, format!("left out{of}: {why}"));
                }
                (None, Some(_)) if self.leaves >= ROUTES => {
                    self.marks.unsupported(
                        step.line,
                        "left out: the rules have more combinations than a list of routes can have",
                    );
                }
                (None, Some((test, narrowed))) => return Evaluated::Split(test, narrowed),
                (None, None) => rest.push(remains),
            }
        }
        Evaluated::Rest(rest)
    }

    /// Applies a rule that neither ends the walk nor chooses routes.
    fn apply(&mut self, step: &Step, rest: &Condition, state: &mut State) {
        let conditional = !always(rest);
        if let Action::Backend(backend) = &step.action
            && let Some(denial) = self.refusal(backend)
        {
            self.refuse_all(step, denial, rest, state);
            return;
        }
        match &step.action {
            Action::Lost(why) => self.marks.unsupported(step.line, why.clone()),
            Action::Protect(why) => self.close(step, why, state),
            Action::Needless(why) => self.marks.ignored(step.line, *why),
            Action::Deny(denial) => self.refuse_all(step, denial, rest, state),
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
            Action::Backend(_) | Action::OwnServers | Action::Answer(..) => {}
        }
    }

    fn track(
        &mut self,
        step: &Step,
        (slot, sample, table, by_request): (&str, &str, Option<&String>, bool),
        rest: &Condition,
        state: &mut State,
    ) {
        if state.tracked.iter().any(|tracked| tracked.slot == slot) {
            return; // the first rule that tracks an entry counts
        }
        let own = self.sections.iter().find(|rules| rules.steps.iter().any(|other| other.line == step.line));
        let table = table.cloned().or_else(|| own.map(|rules| rules.name.clone())).unwrap_or_default();
        if !self.limits.has_table(&table) {
            self.marks.unsupported(step.line, format!("there is no stick-table in `{table}`"));
            return;
        }
        match key(sample) {
            Ok(_) if !always(rest) && addresses(rest, true).is_none() => {
                self.marks.unsupported(
                    step.line,
                    "left out: what is counted does not depend on this; use `exempt` of a limit",
                );
            }
            Ok(key) => {
                let exempt: Vec<_> = addresses(rest, true).unwrap_or_default();
                let exempt: Vec<_> =
                    exempt.iter().map(|kind| self.lists.exempt(kind, &step.source)).collect();
                self.mark(step, key.differs.clone(), "the key of the limits that read its counters");
                state.tracked.push(Tracked { slot: slot.to_owned(), table, key, by_request, exempt });
            }
            Err(why) => self.marks.unsupported(step.line, why),
        }
    }

    /// What a backend answers that refuses all requests, such as one for clients on a list.
    fn refusal(&self, backend: &str) -> Option<&'a Denial> {
        let sections = self.sections;
        let rules = sections.iter().find(|rules| rules.serves && rules.name == backend)?;
        match rules.steps.first() {
            Some(Step { action: Action::Deny(denial), condition, .. }) if always(condition) => Some(denial),
            _ => None,
        }
    }

    fn refuse_all(&mut self, step: &Step, denial: &Denial, rest: &Condition, state: &mut State) {
        for clause in rest {
            if let Err(why) = self.refuse(step, denial, clause, state) {
                self.marks.unsupported(step.line, format!("left out: {why}"));
            }
        }
    }

    /// A rule that refuses by addresses or counters.
    fn refuse(
        &mut self,
        step: &Step,
        denial: &Denial,
        clause: &[Literal],
        state: &mut State,
    ) -> Result<(), String> {
        let counters: Vec<_> =
            clause.iter().filter(|literal| matches!(literal.kind, Kind::Counter(_))).collect();
        let sources = |negated: bool| -> Vec<Kind> {
            let of = clause
                .iter()
                .filter(|literal| literal.negated == negated && !matches!(literal.kind, Kind::Counter(_)));
            of.map(|literal| literal.kind.clone()).collect()
        };
        let protected = clause.iter().find_map(|literal| match &literal.kind {
            Kind::Unsupported(why) => Some(why.as_str()),
            _ => None,
        });
        if let Some(why) = protected {
            self.close(step, why, state);
            return Ok(());
        }
        let (within, outside) = (sources(false), sources(true));
        match counters.as_slice() {
            [] if within.is_empty() && state.effect.allow.is_some() => {
                self.close(step, "two rules admit different clients: write one list for both", state);
                Ok(())
            }
            [] if within.len() == 1 && outside.is_empty() => {
                let list = self.lists.named(&within[0], &step.source, "denied");
                if !state.effect.deny.contains(&list) {
                    state.effect.deny.push(list);
                }
                self.said_list(step, denial, "deny", state);
                Ok(())
            }
            [] if within.is_empty() && state.effect.allow.is_none() => {
                let lists =
                    outside.iter().map(|kind| self.lists.named(kind, &step.source, "allowed")).collect();
                state.effect.allow = Some(lists);
                self.said_list(step, denial, "allow", state);
                Ok(())
            }
            [] => Err(
                "write lists by hand: `deny` refuses the clients on a list, `allow` admits only those on one"
                    .to_owned(),
            ),
            [Literal { negated: false, kind: Kind::Counter(counter) }] if within.is_empty() => {
                if let Some(slot) = &counter.slot
                    && !state.tracked.iter().any(|tracked| tracked.slot == *slot)
                    && self.is_tracked(slot)
                {
                    if self.is_lost(slot) {
                        return Err(format!("the rule that tracks requests as sc{slot} is left out"));
                    }
                    return Ok(()); // these requests have no counter, and so are not refused
                }
                let mut exempt = state.exempt.clone();
                exempt.extend(outside.iter().map(|kind| self.lists.exempt(kind, &step.source)));
                let name = self.limits.used(counter, &state.tracked, &exempt, &step.source, self.marks)?;
                self.limited(step, denial, name, state);
                Ok(())
            }
            _ => {
                Err("a limit refuses what is above its number, for all clients but those of `exempt`"
                    .to_owned())
            }
        }
    }

    /// Whether any rule that can be converted tracks this entry.
    fn is_tracked(&self, wanted: &str) -> bool {
        let tracks = |step: &Step| match &step.action {
            Action::Track { slot, sample, .. } => slot == wanted && key(sample).is_ok(),
            _ => false,
        };
        self.sections.iter().flat_map(|rules| &rules.steps).any(tracks)
    }

    /// Whether a rule that tracks this entry was left out.
    fn is_lost(&self, wanted: &str) -> bool {
        let tracks = |step: &&Step| matches!(&step.action, Action::Track { slot, .. } if slot == wanted);
        let mut found = self.sections.iter().flat_map(|rules| &rules.steps).filter(tracks);
        found.any(|step| {
            self.marks.first(step.line).is_some_and(|(outcome, _)| *outcome == Outcome::Unsupported)
        })
    }

    /// Denies everybody in place of a rule that admits only those who pass a test, so that nothing that was protected becomes public.
    fn close(&mut self, step: &Step, why: &str, state: &mut State) {
        let everybody = Kind::Source(vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()]);
        let list = self.lists.named(&everybody, &step.source, "everybody");
        if !state.effect.deny.contains(&list) {
            state.effect.deny.push(list);
        }
        self.marks.unsupported(step.line, format!("its routes deny everybody until you replace it: {why}"));
    }

    fn said_list(&mut self, step: &Step, denial: &Denial, field: &str, state: &State) {
        let exempted = (!state.exempt.is_empty())
            .then(|| "it holds for the clients of the `allow` rule above it, too".to_owned());
        let status = (denial.status != 403)
            .then(|| format!("such clients are answered 403 in place of {}", denial.status));
        self.mark(
            step,
            denial.differs.clone().or(status).or(exempted),
            &format!("{field} of its routes; such clients are answered 403"),
        );
    }

    /// Adds a limit to a route, and the answer of its refusals.
    fn limited(&mut self, step: &Step, denial: &Denial, name: String, state: &mut State) {
        let status = if denial.given { denial.status } else { 429 };
        let mut differs = denial.differs.clone();
        if !denial.given {
            self.marks.report.note(format!(
                "refused requests are answered 429 with Retry-After where the rule names no status; HAProxy answers {}. reject: {{status: {}}} on a route keeps it",
                denial.status, denial.status
            ));
        }
        match state.refused {
            Some(known) if known != status => {
                differs = Some(format!(
                    "a route has one status for all refusals of its limits: {known}, not {status}"
                ));
            }
            Some(_) => {}
            None => {
                state.refused = Some(status);
                state.effect.reject =
                    (400..=599).contains(&status).then(|| reject(&denial.answer, status)).flatten();
            }
        }
        self.mark(step, differs, &format!("limit {name}"));
        if !state.effect.limits.iter().any(|(known, _)| *known == name) {
            state.effect.limits.push((name, step.source.clone()));
        }
    }

    fn mark(&mut self, step: &Step, differs: Option<String>, text: &str) {
        match differs {
            Some(differs) => self.marks.mark(step.line, Outcome::Approximated, format!("{text}; {differs}")),
            None => self.marks.converted(step.line, text),
        }
    }
}

/// Whether a rule refuses requests.
fn protects(action: &Action) -> bool {
    matches!(action, Action::Deny(_) | Action::Protect(_))
}

/// Whether a condition holds in any case.
fn always(rest: &Condition) -> bool {
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
