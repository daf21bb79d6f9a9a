//! Matches a request, step by step: its route, the identity of its sender, and the limits that apply.
//!
//! What matching needs from elsewhere is the result of a [`Step`]. The gateway, replays, explanations and tests differ only in how
//! they carry out a step; then they ask for the next one. Each step matches the request anew, with all that is known by then: most
//! requests need only one.
//!
//! Looking up API keys and verifying tokens costs time, and a 401 tells a client that its guess was wrong. Therefore limits
//! that [do not depend on the identity](crate::snapshot::RouteLimit::identity_independent) of the sender are checked
//! first: if one of them is known to refuse, the request is refused before anything is verified. A request that then fails
//! authentication is charged by all limits whose key it has without authentication, and is answered 401 only if they admit
//! it. A request that is authenticated is charged once, by all of its limits together.

use std::borrow::Cow;

use http::Method;
use sluicegate_limiter::Time;

use super::early_reject::EarlyReject;
use super::head_checks;
use super::inputs::Inputs;
use super::limit_selection::{LimitSelection, Scope};
use super::verdict::Matched;
use crate::limit::SelectedLimit;
use crate::rules::KeyQuestion;
use crate::snapshot::{Snapshot, Target};
use sluicegate_auth::lists;
use sluicegate_auth::{Answers, Identified, Identity, Question, Sources, Stop};
use sluicegate_base::incoming::{Request, Routed};
use sluicegate_config::{Params, PathError};
use sluicegate_route::keys;
use sluicegate_route::{
    LaxMatch, NoHost, NormalPath, RouteQuery, host, is_doubtful, is_exempt_preflight, is_plain,
};
use sluicegate_wire::RequestHead;

/// Says whether any of these limits is known to refuse the request, without asking them.
pub type MayRefuse<'a> = &'a dyn Fn(&[SelectedLimit<'_>]) -> bool;

/// The matching of one request.
pub struct Matching<'s, 'r> {
    pub(super) request: Request<'r>,
    /// What it takes besides the request.
    pub inputs: Inputs<'s>,
    /// The limits that the last step has selected. They stay in one place, because they are large.
    pub selection: LimitSelection<'s>,
    /// Whether no step has come to authentication yet.
    is_first: bool,
    /// Whether another proxy describes the request and forwards it: the gateway answers nothing in place of the API.
    pub(super) is_described: bool,
    /// The index of the route that this proxy has named, whatever the request matches.
    pub(super) named_route: Option<usize>,
}

/// What comes next for a request.
pub enum Step<'s> {
    /// All that is to be known is known: the limits in [`Matching::selection`] decide. If authentication failed,
    /// [`Matched::reject`] is set.
    Decide(Matched<'s>),
    /// The request is answered without asking any limit.
    Answer(EarlyReject),
    /// A limit that does not depend on the identity of the sender is likely to refuse. Nothing was verified, and only such
    /// limits are selected. If they admit the request after all, nothing may be charged, and the next step goes on.
    Refuse(Matched<'s>),
    /// A service outside must be asked who sends the request. Its answer goes into [`Inputs::answers`].
    Ask {
        /// The index of the route.
        route: usize,
        /// What to ask.
        question: Box<Question>,
    },
    /// The rules of some keys must be loaded, into [`Inputs::rules`], or [taken to be none](Inputs::without_rules).
    LoadRules {
        /// The index of the route.
        route: usize,
        /// The keys.
        questions: Vec<KeyQuestion>,
    },
}

/// The host and the path that a request is routed by.
struct RoutedBy<'r> {
    host: Cow<'r, str>,
    path: NormalPath<'r>,
    /// Whether the path is in normal form as it was sent.
    is_plain: bool,
}

impl<'s, 'r> Matching<'s, 'r> {
    /// Begins to match a request at `now`.
    #[inline]
    pub fn new(snapshot: &'s Snapshot, request: Request<'r>, now: Time) -> Self {
        let (answers, rules) = (Answers::default(), Vec::new());
        let inputs = Inputs { snapshot, now, answers, rules, without_rules: false };
        let selection = LimitSelection::default();
        Self { request, inputs, selection, is_first: true, is_described: false, named_route: None }
    }

    /// Matches the request as far as possible. The first step asks `may_refuse` before it verifies anything.
    #[inline(never)]
    pub fn step(&mut self, may_refuse: MayRefuse<'_>) -> Step<'s> {
        self.try_step(may_refuse).unwrap_or_else(Step::Answer)
    }

    #[inline(always)]
    fn try_step(&mut self, may_refuse: MayRefuse<'_>) -> Result<Step<'s>, EarlyReject> {
        let (snapshot, request) = (self.inputs.snapshot, self.request);
        let routed_by = routed_by(snapshot, request)?;
        let query = RouteQuery::of(request, &routed_by.host, &routed_by.path.path);
        let mut params = Params::new();
        let index = match self.named_route {
            None => find_route(snapshot, &query, &mut params, self.is_described)?,
            Some(index) => index,
        };
        let lax = match self.named_route {
            None => lax_routes(snapshot, request, &query, &routed_by, index)?,
            Some(index) => admit_client(snapshot, request, index)?,
        };
        let routed = Routed {
            request,
            config: &snapshot.config,
            index,
            host: query.host,
            path: query.path,
            params: &params,
            folded: !snapshot.config.routes[index].matches.exact_spelling,
        };
        let sources = sources(snapshot, index, &lax);
        let identity = match sources.any() && !is_exempt_preflight(&routed) {
            true => match self.identify(&routed, &lax, sources, may_refuse) {
                Ok(identity) => identity,
                Err(step) => return Ok(*step),
            },
            false => Identity::default(),
        };
        Ok(match self.selection.select(&self.inputs, &routed, &lax, &identity, Scope::All) {
            Ok(()) if !self.selection.unknown.is_empty() => {
                Step::LoadRules { route: index, questions: std::mem::take(&mut self.selection.unknown) }
            }
            Ok(()) => Step::Decide(matched(snapshot, &routed, identity)),
            Err(reject) => self.unauthenticated(&routed, &lax, reject),
        })
    }

    /// Authenticates the sender.
    ///
    /// # Errors
    /// What to do instead, if authentication fails or waits for an answer from outside, or if a limit that does not depend on it is
    /// known to refuse.
    #[inline(never)]
    fn identify(
        &mut self,
        routed: &Routed<'_>,
        lax: &[LaxMatch<'_>],
        sources: Sources<'s, '_>,
        may_refuse: MayRefuse<'_>,
    ) -> Result<Identity<'s>, Box<Step<'s>>> {
        let route = &self.inputs.snapshot.routes[routed.index];
        // The state of limits is reported even if they are used up.
        if std::mem::take(&mut self.is_first) && !matches!(route.target, Target::Usage) {
            self.select_unauthenticated(routed, lax, Scope::IdentityIndependent);
            if may_refuse(&self.selection.selected) {
                let matched = matched(self.inputs.snapshot, routed, Identity::default());
                return Err(Box::new(Step::Refuse(matched)));
            }
        }
        let Inputs { answers, now, .. } = &self.inputs;
        sources.identify(&route.name, self.request.head, answers, *now).map_err(|stop| {
            Box::new(match stop {
                Stop::Unproven(why) => {
                    self.unauthenticated(routed, lax, EarlyReject::Unproven { route: routed.index, why })
                }
                Stop::Ask(question) => Step::Ask { route: routed.index, question: Box::new(question) },
            })
        })
    }

    /// Rejects the request, if the limits whose key it has without authentication admit it.
    #[cold]
    fn unauthenticated(
        &mut self,
        routed: &Routed<'_>,
        lax: &[LaxMatch<'_>],
        reject: EarlyReject,
    ) -> Step<'s> {
        self.select_unauthenticated(routed, lax, Scope::Unauthenticated);
        let matched = matched(self.inputs.snapshot, routed, Identity::default());
        Step::Decide(Matched { reject: Some(Box::new(reject)), ..matched })
    }

    /// Selects limits of this scope as long as the sender is not authenticated.
    fn select_unauthenticated(&mut self, routed: &Routed<'_>, lax: &[LaxMatch<'_>], scope: Scope) {
        // Within these scopes a missing key is no error.
        let _ = self.selection.select(&self.inputs, routed, lax, &Identity::default(), scope);
    }
}

/// Checks the head of a request, and reads its host and its path in normal form.
#[inline(always)]
fn routed_by<'r>(snapshot: &Snapshot, request: Request<'r>) -> Result<RoutedBy<'r>, EarlyReject> {
    let Request { head, peer } = request;
    head_checks::check(head, &snapshot.reserved)?;
    let host = host(head).map_err(|NoHost| EarlyReject::Host)?;
    if peer.tls.is_some_and(|tls| tls.is_misdirected(&host)) {
        return Err(EarlyReject::Misdirected);
    }
    let written = head.target.path();
    let is_plain = is_plain(written);
    let path = match is_plain {
        true => NormalPath { path: Cow::Borrowed(written), decoded: None },
        false => normal_path(snapshot, request, &host)?,
    };
    Ok(RoutedBy { host, path, is_plain })
}

#[inline(never)]
fn normal_path<'r>(
    snapshot: &Snapshot,
    request: Request<'r>,
    host: &str,
) -> Result<NormalPath<'r>, EarlyReject> {
    let RequestHead { method, target, .. } = request.head;
    let query = RouteQuery::of(request, host, target.path());
    snapshot.table.normal_path(target.path(), &query).map_err(|error| match error {
        PathError::NotAbsolute if *method == Method::OPTIONS && target.path() == "*" => {
            EarlyReject::Capabilities
        }
        error => EarlyReject::Path(error),
    })
}

/// Finds the route. The parameters of its path are added to `params`.
#[inline(always)]
fn find_route<'n>(
    snapshot: &'n Snapshot,
    query: &RouteQuery<'n>,
    params: &mut Params<'n>,
    is_described: bool,
) -> Result<usize, EarlyReject> {
    let found = snapshot.table.find_into(query, params);
    if let Some(route) = snapshot.preflight(query, found)
        && !is_described
    {
        return Err(EarlyReject::Preflight { route });
    }
    found.ok_or(EarlyReject::NoRoute)
}

/// The earlier routes that the request loosely matches. Checks the address lists of all of its routes.
#[inline(always)]
fn lax_routes<'n>(
    snapshot: &'n Snapshot,
    request: Request<'_>,
    query: &RouteQuery<'n>,
    by: &'n RoutedBy<'_>,
    found: usize,
) -> Result<Vec<LaxMatch<'n>>, EarlyReject> {
    let configs = &snapshot.config.routes;
    if !by.is_plain && !configs[found].matches.exact_spelling && is_doubtful(request.head.target.path()) {
        return Err(EarlyReject::Path(PathError::Ambiguous));
    }
    let mut lax = snapshot.table.lax_matches(query, found, by.is_plain);
    if let Some(decoded) = &by.path.decoded {
        let decoded = RouteQuery { path: decoded, ..*query };
        snapshot.table.add_lax_matches(&mut lax, &decoded, found);
    }
    let lists = &snapshot.config.resources.lists;
    let admits = |route: usize| lists::admits(&configs[route].access, lists, request.peer.client);
    if !admits(found) || !lax.iter().all(|lax| admits(lax.route)) {
        return Err(EarlyReject::AddressDenied { route: found });
    }
    Ok(lax)
}

/// Checks the address lists of a route that a proxy has named. No other route lends it anything.
#[cold]
fn admit_client<'n>(
    snapshot: &Snapshot,
    request: Request<'_>,
    route: usize,
) -> Result<Vec<LaxMatch<'n>>, EarlyReject> {
    let lists = &snapshot.config.resources.lists;
    match lists::admits(&snapshot.config.routes[route].access, lists, request.peer.client) {
        true => Ok(Vec::new()),
        false => Err(EarlyReject::AddressDenied { route }),
    }
}

/// What says who sends a request to this route, which loosely matches others.
#[inline(always)]
pub(super) fn sources<'s>(snapshot: &'s Snapshot, route: usize, lax: &[LaxMatch<'_>]) -> Sources<'s, 's> {
    let Snapshot { config, routes, jwt, introspection, check, .. } = snapshot;
    let wants_user = routes[route].wants_user || lax.iter().any(|lax| routes[lax.route].wants_user);
    let wants_check = check.is_some()
        && (config.routes[route].check || lax.iter().any(|lax| config.routes[lax.route].check));
    Sources {
        api_key: &config.api_key,
        consumers: config.resources.consumers.as_deref(),
        jwt: jwt.as_deref().filter(|_| wants_user),
        introspection: introspection.as_ref().filter(|_| wants_user),
        check: check.as_ref().filter(|_| wants_check),
    }
}

/// The request with the identity of its sender.
#[inline(always)]
fn matched<'s>(snapshot: &'s Snapshot, routed: &Routed<'_>, identity: Identity<'s>) -> Matched<'s> {
    let head = routed.request.head;
    let route = &snapshot.routes[routed.index];
    let affinity = snapshot.affinity(route);
    let affinity = affinity.and_then(|key| keys::affinity(key, Identified { routed, identity: &identity }));
    // A path that is in normal form is that of the target itself, not a copy.
    let is_normal = std::ptr::eq(routed.path, head.target.path());
    let normal_path = (!is_normal).then(|| Box::from(routed.path));
    Matched { route, route_index: routed.index, identity, normal_path, affinity, reject: None }
}
