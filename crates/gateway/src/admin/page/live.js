let live = null, status = null, limits = [], outcomes = {}, open = null, by = 'refused', paused = false, wait = 1000, since = 0, pardoned = '';

const TOKEN_MISSING = 'the gateway wants a token: write it into the field above';
async function ask(method, path, body, headers = {}) {
  const token = at('token').value;
  if (token) headers.Authorization = 'Bearer ' + token;
  const answer = await fetch(path, {method, headers, body: body && JSON.stringify(body)});
  const text = await answer.text();
  let value = {};
  try { value = JSON.parse(text); } catch { value = {detail: text}; }
  if (!answer.ok) throw new Error(answer.status === 401 ? TOKEN_MISSING : value.detail || 'the gateway answers ' + answer.status);
  return {value, etag: answer.headers.get('etag')};
}
const read = async path => (await ask('GET', path)).value;

// The slots of an answer replace those that it has; the rest stay.
function merged(old, ring) {
  if (!old) return ring;
  const size = ring.step === 1 ? 120 : 360;
  const join = (before, after) => {
    const keep = Math.max(0, Math.round((ring.from - old.from) / ring.step));
    const gap = new Array(Math.max(0, keep - (before || []).length)).fill(null);
    return [...(before || []).slice(0, keep), ...gap, ...(after || [])].slice(-size);
  };
  const columns = value => Array.isArray(value);
  const result = {step: ring.step, limits: {}};
  for (const [name, value] of Object.entries(ring)) if (columns(value)) result[name] = join(old[name], value);
  for (const [limit, counts] of Object.entries(ring.limits)) {
    result.limits[limit] = {};
    for (const [name, value] of Object.entries(counts)) result.limits[limit][name] = join((old.limits[limit] || {})[name], value);
  }
  result.from = ring.from + (ring.requests.length - result.requests.length) * ring.step;
  return result;
}
// A quota as the file writes it: with its burst, if that is not the count of its rate, and the rates of plans.
const rateOf = rate => rate.replace(/\/(60|3600|86400)s$/, (_, seconds) => ({60: '/min', 3600: '/h', 86400: '/day'})[seconds]).replace(/\/1s$/, '/s');
function quota(limit) {
  const burst = limit.rate && limit.algorithm.endsWith('_bucket') && parseInt(limit.rate) !== limit.capacity && `burst ${limit.capacity}`;
  const plans = Object.entries(limit.plans || {}).map(([name, plan]) => `${name} ${plan.rate ? rateOf(plan.rate) : plan.capacity}`);
  const parts = [limit.algorithm, limit.rate && rateOf(limit.rate), burst, limit.slices > 1 && `${limit.slices} slices`, limit.strict && 'strict', !limit.rate && `${limit.capacity} at once`,
    plans.length && `plans: ${plans.slice(0, 5).join(', ')}${plans.length > 5 ? ' …' : ''}`];
  return parts.filter(Boolean).join(', ');
}
function showTraffic() {
  const [minutes, hour] = live.rings;
  const now = name => last(minutes[name]);
  const open = live.connections.reduce((all, one) => all + one.open, 0);
  const most = live.connections.reduce((all, one) => all + (one.max || 0), 0);
  const box = (title, value, more) => el('div', {}, title, el('b', {text: number(value)}), el('span', {class: 'quiet', text: more}));
  at('numbers').replaceChildren(
    box('requests/s', now('requests'), `peak ${number(live.peak.requests)}`),
    box('refused/s', now('refused'), `peak ${number(live.peak.refused)}`),
    box('errors/s (5xx)', now('errors'), `peak ${number(live.peak.errors)}`),
    box('connections', open, `peak ${number(live.connections.reduce((all, one) => all + one.peak, 0))} · limit ${number(most)} · refused ${number(process.lost)}`),
    el('div', {}, 'processor', el('b', {text: process.cores === null || process.cores === undefined ? '–' : process.cores.toFixed(2) + ' cores'}), el('span', {class: 'quiet', text: `memory ${bytes(process.memory)} · files ${number(process.files)} of ${number(process.most)}`})));
  const series = ring => [
    ['answered', 'good', ring.requests.map((all, index) => all === null ? null : Math.max(0, all - ring.refused[index] - ring.errors[index]))],
    ['refused', 'warn', ring.refused], ['errors', 'bad', ring.errors]];
  if (![...document.querySelectorAll('#traffic details')].some(details => details.open)) {
    redraw(at('minutes'), chart('Requests a second, last 2 minutes', minutes, series(minutes)));
    redraw(at('hour'), chart('Requests a second, last hour', hour, series(hour)));
  }
  const errors = route => (route.classes['5xx'] || 0);
  table('route-table', [['route'], ['requests', 'number', 'second'], ['a second', 'number', 'first'], ['2xx', 'number'], ['3xx', 'number'], ['4xx', 'number', 'second'], ['5xx', 'number', 'second'], ['p50', 'number'], ['p99', 'number', 'second'], ['bytes in', 'number'], ['bytes out', 'number'], ['out/s', 'number']],
    live.routes.filter(route => route.route || route.requests).map(route => ({trouble: errors(route) > 0, cells: [route.route || '(no route)', number(route.requests), perSecond(route.rate),
      ...['2xx', '3xx', '4xx'].map(name => number(route.classes[name] || 0)), errors(route) ? el('span', {class: 'bad', text: number(errors(route))}) : '0', millis(route.p50), millis(route.p99), bytes(route.received.bytes), bytes(route.sent.bytes), bytes(route.sent.rate)]})), {calm: ['route without errors', 'routes without errors']});
}
function showLimits() {
  const hour = live && live.rings[1] ? live.rings[1].limits : {};
  const minutes = live && live.rings[0] ? live.rings[0].limits : {};
  const hourEnd = live && live.rings[1] ? live.rings[1].from + live.rings[1].requests.length * live.rings[1].step : 0;
  table('limit-table', [['limit'], ['quota', null, 'second'], ['mode'], ['refused/s', 'number'], ['admitted, 1 h', 'number'], ['refused, 1 h', 'number', 'first'], ['would refuse, 1 h', 'number'], ['refusals, 1 h', 'chart'], ['keys', 'number'], ['', null, 'second']],
    limits.map(limit => {
      const counts = hour[limit.name] || {}, now = minutes[limit.name] || {};
      const full = limit.entries >= limit.max_keys * 0.9;
      const keys = el('span', full ? {class: 'bad', text: `▲ ${number(limit.keys)} of ${number(limit.max_keys)}`} : {text: `${number(limit.keys)} of ${number(limit.max_keys)}` + (limit.banned ? `, ${number(limit.banned)} banned` : '')});
      const button = el('button', {type: 'button', class: 'link', text: open === limit.name ? 'close' : 'keys', 'aria-label': `keys of ${limit.name}`, onclick: () => { open = open === limit.name ? null : limit.name; pardoned = ''; showLimits(); showTop(); }});
      return {trouble: sum(counts.refused) > 0 || full || limit.overflowed > 0, cells: [el('b', {text: limit.name}), quota(limit) + (limit.scope === 'shared' ? ', shared' : ''), limit.mode, perSecond(last(now.refused)),
        number(sum(counts.admitted)), number(sum(counts.refused)), number(sum(counts.shadow_refused)), spark(counts.refused || [], 'bad', {end: hourEnd, step: 10, text: 'refused'}), keys, button]};
    }), {empty: 'no limits are configured', calm: ['limit without refusals', 'limits without refusals']});
}
async function showTop() {
  const place = at('limit-detail');
  place.hidden = !open;
  if (!open) return;
  const name = open;
  const [refused, requests] = await Promise.all(['refused', 'requests'].map(by => read(`limits/${encodeURIComponent(name)}/top?by=${by}&most=20`)));
  const of = limits.find(limit => limit.name === name);
  const bans = of && of.banned ? await read(`limits/${encodeURIComponent(name)}/bans`) : null;
  if (name !== open) return;
  const rows = top => top.keys.map(one => {
    const readable = one.key !== null && !one.key.includes('sha256:') && !top.fair_by;
    const plain = readable ? one.key.split(',').map(part => part.slice(part.indexOf(':') + 1)).join(',') : null;
    const act = (text, work) => el('button', {type: 'button', class: 'link', text, onclick: work});
    return el('tr', {}, el('td', {}, el('code', {text: one.key === null ? '(no key)' : one.key}), one.consumer ? ` (${one.consumer})` : ''), el('td', {class: 'number', text: number(one.count) + (one.error ? ` ± ${number(one.error)}` : '')}),
      el('td', {}, ...(one.key !== null && !top.fair_by ? [act('pardon', () => pardon(name, one.key))] : []), ...(readable && !at('rules').hidden ? [act('rule', () => ruleFor(name, plain))] : [])));
  });
  const list = (title, top) => el('div', {class: 'scroll'}, el('h3', {text: title}), top.keys.length ? el('table', {}, ...rows(top)) : el('p', {class: 'quiet', text: 'none'}));
  place.replaceChildren(el('h3', {text: `Keys of ${name}, last hour`}), el('p', {id: 'pardon-said', role: 'status', text: pardoned}), el('div', {class: 'columns'}, list('most refused', refused), list('busiest', requests)), ...(bans ? [banned(name, bans)] : []));
}
function banned(limit, bans) {
  const row = one => {
    return el('tr', {}, el('td', {}, el('code', {text: one.key === null ? '(no key)' : one.key}), one.consumer ? ` (${one.consumer})` : ''), el('td', {text: `until ${one.until}, ${duration(one.banned_for)} left`}),
      el('td', {}, one.key === null ? null : el('button', {type: 'button', class: 'link', text: 'pardon', onclick: () => pardon(limit, one.key)})));
  };
  return el('div', {class: 'scroll'}, el('h3', {text: counted(bans.banned, 'banned key')}), el('table', {}, ...bans.keys.map(row)),
    ...(bans.others ? [el('p', {class: 'quiet', text: `${counted(bans.others, 'other')}, not among the most refused keys`})] : []));
}
// It stays while the table is drawn again.
function sayPardoned() {
  if (at('pardon-said')) at('pardon-said').textContent = visible(pardoned);
}
async function pardon(limit, key) {
  try {
    const {value} = await ask('DELETE', `limits/${encodeURIComponent(limit)}/keys/${encodeURIComponent(key)}`);
    pardoned = value.pardoned ? `${key} has its full quota again` : `nothing was counted for ${key}`;
  } catch (error) { pardoned = error.message; }
  sayPardoned();
}
function showStatus() {
  at('status').textContent = `version ${status.version} · up ${duration(status.uptime_seconds)} · ${status.config_file}, generation ${status.generation}, loaded ${moment(status.loaded_at)}`;
  const reload = status.last_reload;
  at('reload').hidden = !reload;
  if (reload) at('reload-text').textContent = `${moment(reload.at)}\n${reload.summary}\n\n` + JSON.stringify(reload.diff, null, 1);
  showServers();
  showQueues();
  const sources = [];
  const source = (name, known, detail) => known && sources.push({trouble: Boolean(known.trouble) || known.up === false, cells: [name, known.trouble || known.up === false ? state(false, 'away') : state(true, 'up'), detail, known.trouble]});
  source('store (redis)', status.store, status.store && counted(status.store.gateways, 'gateway'));
  source('rules', status.rules, status.rules && `${status.rules.source}, version ${status.rules.version}, ${counted(status.rules.cached, 'key')} remembered`);
  source('token keys', status.jwt, status.jwt && counted(status.jwt.keys, 'key'));
  source('token introspection', status.introspection, '');
  source('check of requests', status.check, '');
  if (status.consumers) sources.push({trouble: Boolean(status.consumers.last_reload_error), cells: ['consumers', state(!status.consumers.last_reload_error, status.consumers.last_reload_error ? 'old file in force' : 'up'), `${status.consumers.file}: ${number(status.consumers.consumers)}`, status.consumers.last_reload_error]});
  for (const list of status.lists) sources.push({trouble: Boolean(list.last_reload_error), cells: [`list ${list.name}`, state(!list.last_reload_error, list.last_reload_error ? 'old file in force' : 'up'), counted(list.entries, 'entry', 'entries'), list.last_reload_error]});
  table('source-table', [['source'], ['state', null, 'first'], ['detail', null, 'second'], ['trouble', null, 'second']], sources, {empty: 'all counters are in this process, and nothing is read from elsewhere', calm: ['source without trouble', 'sources without trouble']});
  const certificates = status.tls.flatMap(listener => listener.certificates.map(one => ({listener: listener.listener, days: (Date.parse(one.not_after) - Date.now()) / 86400000, ...one})));
  at('certificates').hidden = !certificates.length;
  table('certificate-table', [['listener'], ['names', null, 'second'], ['expires'], ['days left', 'number', 'first']], certificates.map(one => ({trouble: one.days < 14, cells: [one.listener, one.names.join(', '), one.not_after,
    one.days < 14 ? state(false, one.days.toFixed(1), one.days > 3) : one.days.toFixed(0)]})), {calm: ['valid certificate']});
  table('refusal-table', [['route'], ['reason', null, 'second'], ['requests', 'number', 'first']], status.refusals.map(one => ({trouble: true, cells: [one.route || '(no route)', one.reason, number(one.count)], key: `${one.route} ${one.reason}`})), {empty: 'nothing was refused'});
}
// What is wrong, in a few words each.
function troubles() {
  const all = [];
  for (const upstream of status.upstreams) {
    const ready = upstream.servers.filter(isReady), down = ready.filter(server => server.state !== 'up').length;
    const out = upstream.servers.length - ready.length;
    if (!ready.length) all.push(`${upstream.name}: all servers are drained or in maintenance, requests are answered with 503`);
    else if (down === ready.length) all.push(`${upstream.name}: no server answers`);
    else if (down) all.push(`${upstream.name}: ${down} of ${ready.length} servers down`);
    if (ready.length && out) all.push(`${upstream.name}: ${counted(out, 'server')} drained or in maintenance`);
  }
  for (const one of status.tls.flatMap(listener => listener.certificates)) {
    const days = (Date.parse(one.not_after) - Date.now()) / 86400000;
    if (days < 14) all.push(days < 0 ? `the certificate of ${one.names[0]} has ended` : `the certificate of ${one.names[0]} ends in ${counted(Math.floor(days), 'day')}`);
  }
  if (status.store && !status.store.up) all.push(`the store is away: ${counted(limits.filter(limit => limit.scope === 'shared').length, 'shared limit follows', 'shared limits follow')} on_store_failure`);
  for (const queue of status.queues) {
    if (queue.dead_letters) all.push(`${queue.limit}: ${counted(queue.dead_letters, 'queued request has', 'queued requests have')} failed`);
    if (queue.length + queue.dead_letters >= queue.max_length) all.push(`${queue.limit}: the queue is full`);
  }
  if (status.rules && status.rules.trouble) all.push('the rules cannot be read: those that were read stay in force');
  return all;
}
function banner(failure) {
  // Pairs of a line and a report of several lines.
  const texts = [];
  if (failure) texts.push([`stale since ${clock(since)}: ${failure}`]);
  if (status) {
    if (status.draining) texts.push(['the gateway is going down: it drains']);
    if (status.last_reload_error) texts.push(['the last reload was refused:', status.last_reload_error]);
    for (const [file, error] of Object.entries(status.file_errors || {})) texts.push([`${file}:`, error]);
    const ignored = status.ignored_forwarded;
    if (ignored && ignored.seconds_ago < 300) texts.push([`${ignored.header} of requests from ${ignored.peer} is ignored, because ${ignored.peer} is not a trusted proxy: all clients behind it count as ${ignored.peer}. If it is your proxy:`, `client_ip: {trusted_proxies: ["${ignored.peer}"]}`]);
    const wrong = troubles();
    if (wrong.length) texts.unshift([wrong.join('; ')]);
  }
  const text = JSON.stringify(texts);
  if (at('banner').dataset.text === text) return;
  at('banner').dataset.text = text;
  at('banner').replaceChildren(...texts.flatMap(([line, report]) => [el('p', {text: line}), ...(report ? [el('pre', {text: report})] : [])]));
}
// Counts of upstreams are those of /metrics.
function upstreamCounts(text) {
  const all = {};
  for (const [, kind, labels, value] of text.matchAll(/^sluicegate_upstream_(requests|retries)_total\{([^}]*)\} (\S+)$/gm)) {
    const label = name => (labels.match(new RegExp(name + '="([^"]*)"')) || [])[1];
    (all[label('upstream')] ||= {})[kind === 'retries' ? 'retries' : label('outcome')] = Number(value);
  }
  return all;
}
// What the process uses, by two looks at its own figures.
let process = {};
function processFigures(text) {
  const value = name => Number((text.match(new RegExp('^' + name + ' (\\S+)$', 'm')) || [])[1]);
  const [at, used] = [Date.now() / 1000, value('process_cpu_seconds_total')];
  process = {at, used, cores: process.at ? (used - process.used) / (at - process.at) : null, memory: value('process_resident_memory_bytes'),
    files: value('process_open_fds'), most: value('process_max_fds'),
    lost: sum([...text.matchAll(/^sluicegate_connections_refused_total\{[^}]*\} (\S+)$/gm)].map(found => Number(found[1])))};
}
let turn = 0;
async function refresh() {
  const fresh = await read('live?since=' + (live ? live.time : 0));
  const rings = fresh.rings.map((ring, index) => merged(live && live.rings[index], ring));
  live = {...fresh, rings};
  if (turn++ % 5 === 0) {
    const token = at('token').value;
    const metrics = fetch('metrics', token ? {headers: {Authorization: 'Bearer ' + token}} : {}).then(answer => answer.ok ? answer.text() : '');
    [status, limits, outcomes] = await Promise.all([read('status'), read('limits'), metrics.then(upstreamCounts)]);
    processFigures(await metrics);
    showStatus();
    if (open) showTop().catch(() => {});
    showRules();
  }
  if (live.rings.length) showTraffic();
  showLimits();
  tip();
}
let nextLook = null;
async function loop() {
  nextLook = null;
  if (!paused && !document.hidden) {
    try {
      await refresh();
      [since, wait] = [Date.now() / 1000, 1000];
      banner(null);
    } catch (error) {
      wait = Math.min(wait * 2, 30000);
      since ||= Date.now() / 1000;
      banner(error.message);
    }
  }
  nextLook = setTimeout(loop, wait);
}
