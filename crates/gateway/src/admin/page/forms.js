// Explaining a request.
at('explain-form').addEventListener('submit', async event => {
  event.preventDefault();
  const query = new URLSearchParams();
  if (at('e-request').value) query.set('request', at('e-request').value.trim());
  else {
    query.set('method', at('e-method').value || 'GET');
    query.set('url', at('e-url').value);
    for (const name of ['from', 'consumer']) if (at(`e-${name}`).value) query.set(name, at(`e-${name}`).value.trim());
    for (const line of at('e-headers').value.split('\n')) if (line.trim()) query.append('header', line.trim());
  }
  at('explained').replaceChildren();
  try {
    const told = await read('explain?' + query);
    const good = told.outcome === 'admitted';
    at('explain-said').replaceChildren(state(good, told.outcome), visible(` ${[told.reason, told.limit, told.detail].filter(Boolean).join('; ')} `),
      told.status === null ? 'the upstream answers' : String(told.status));
    const pairs = [['route', told.route || 'none'], ['client', told.client && `${told.client}: ${told.client_why}`], ['consumer', told.consumer && [told.consumer, told.plan].filter(Boolean).join(', plan ')], ['at', told.at]];
    const cell = (name, value) => el('tr', {}, el('th', {text: name}), el('td', {}, el('code', {text: value})));
    const limit = one => el('tr', {}, ...[one.name + (one.candidate ? ' (candidate)' : ''), one.outcome, one.key, one.rule, one.remaining === null ? null : `${one.remaining} of ${one.capacity}`,
      one.reset === null ? null : one.reset.toFixed(3) + ' s', one.retry_after === undefined ? null : one.retry_after.toFixed(3) + ' s', one.why].map(text => el('td', {text: text === null || text === undefined ? '–' : text})));
    at('explained').append(
      el('table', {}, ...pairs.filter(pair => pair[1]).map(pair => cell(...pair))),
      el('h3', {text: 'Limits'}), el('div', {class: 'scroll'}, el('table', {}, el('tr', {}, ...['limit', 'says', 'key', 'rule', 'left', 'full again in', 'retry after', ''].map(text => el('th', {text}))), ...told.limits.map(limit))),
      el('h3', {text: 'Other routes'}), el('table', {}, ...told.passed_over.map(route => cell(route.route, route.why))),
      el('h3', {text: 'Headers'}), el('table', {}, ...Object.entries(told.headers).map(pair => cell(...pair))));
  } catch (error) { at('explain-said').replaceChildren(el('span', {class: 'bad', text: error.message})); }
});

// Rules of single keys.
const TEXTS = ['id', 'limit', 'key', 'rate', 'mode', 'from', 'until', 'note'], NUMBERS = ['burst', 'max', 'priority'];
let etag = null, next = null;
function choices(id, texts, first) {
  const chosen = at(id).value;
  at(id).replaceChildren(...texts.map(text => el('option', {value: text === first ? '' : text, text})));
  if (texts.includes(chosen)) at(id).value = chosen;
}
function say(text, good) {
  at('said').textContent = visible(text);
  at('said').className = good ? 'good' : 'bad';
}
async function attempt(work) {
  try { await work(); } catch (error) { say(error.message, false); }
}
function showRules() {
  if (!status.rules) return;
  const {source, version, trouble} = status.rules;
  at('source').textContent = `in ${source}, version ${version}` + (trouble ? `; they cannot be read: ${trouble}` : '');
  if (!at('rules').hidden) return;
  at('rules').hidden = false;
  navigation();
  choices('of-limit', ['all limits', ...limits.map(limit => limit.name)], 'all limits');
  choices('f-limit', limits.map(limit => limit.name));
  attempt(() => list(false));
}
function changes(rule) {
  const parts = ['rate', 'burst', 'max', 'mode'].filter(name => rule[name] != null).map(name => `${name} ${rule[name]}`);
  return rule.exempt ? 'exempt' : parts.join(', ');
}
async function list(further) {
  const query = new URLSearchParams({most: 50});
  if (at('of-limit').value) query.set('limit', at('of-limit').value);
  if (at('of-key').value) query.set('key', at('of-key').value);
  if (further) query.set('after', next);
  const value = await read('rules?' + query);
  const force = rule => [rule.from && 'from ' + rule.from, rule.until && 'until ' + rule.until].filter(Boolean).join(' ') || 'always';
  const rows = value.rules.map(rule => el('tr', {}, ...[rule.id, rule.limit, rule.key, changes(rule), rule.priority, force(rule)].map((text, column) => el('td', {class: ['name', 'second', 'second', 'second', 'second number', 'second'][column], 'data-label': ['', '', '', '', 'priority', ''][column], text: text ?? ''})),
    el('td', {class: 'second note', text: rule.note ?? ''}), el('td', {class: 'first'}, el('button', {type: 'button', text: 'Edit', onclick: () => attempt(() => edit(rule.id))}))));
  rows.push(...(value.unreadable || []).map(one => el('tr', {}, el('td', {text: one.id}), el('td', {colspan: 7, class: 'bad', text: one.detail}))));
  if (further) at('list').append(...rows); else at('list').replaceChildren(...rows);
  next = value.next;
  at('more').hidden = !next;
}
function put(rule, version) {
  at('rule-form').open ||= Boolean(rule.limit);
  etag = version;
  for (const name of [...TEXTS, ...NUMBERS]) at('f-' + name).value = rule[name] ?? '';
  if (!rule.limit) at('f-limit').selectedIndex = 0;
  at('f-exempt').checked = rule.exempt === true;
  at('remove').hidden = !version;
  at('f-id').disabled = Boolean(version);
  at('title').textContent = version ? 'Rule ' + rule.id : 'New rule';
}
function ruleFor(limit, key) {
  put({limit, key}, null);
  at('rules').scrollIntoView();
  at('f-id').focus();
}
async function edit(id) {
  const {value, etag} = await ask('GET', 'rules/' + encodeURIComponent(id));
  put(value, etag);
  say('', true);
}
function written() {
  const rule = {};
  for (const name of TEXTS) if (at('f-' + name).value) rule[name] = at('f-' + name).value;
  for (const name of NUMBERS) if (at('f-' + name).value !== '') rule[name] = Number(at('f-' + name).value);
  if (at('f-exempt').checked) rule.exempt = true;
  return rule;
}
// A rule that somebody else has changed or created meanwhile is not overwritten.
const condition = () => etag ? {'If-Match': etag} : {'If-None-Match': '*'};
async function save(dry) {
  const rule = written();
  if (!rule.id) throw new Error('a rule needs an id, which you choose');
  const path = 'rules/' + encodeURIComponent(rule.id) + (dry ? '?dry_run=1' : '');
  const answer = await ask('PUT', path, rule, {'Content-Type': 'application/json', ...condition()});
  if (dry) {
    const keys = answer.value.keys.map(key => `; ${key.key} has ${key.remaining} left now, and its capacity would be ${key.capacity_after}`);
    return say('it would be in force at once' + keys.join('') + '; nothing was written', true);
  }
  put(answer.value, answer.etag);
  say('saved, and in force', true);
  await list(false);
}
async function remove() {
  if (!confirm(`Remove the rule ${visible(at('f-id').value)}? Its key has the limit's own numbers then, or those of another rule.`)) return;
  await ask('DELETE', 'rules/' + encodeURIComponent(at('f-id').value), undefined, condition());
  put({}, null);
  say('removed', true);
  await list(false);
}
at('find').addEventListener('click', () => attempt(() => list(false)));
at('more').addEventListener('click', () => attempt(() => list(true)));
at('try').addEventListener('click', () => attempt(() => save(true)));
at('save').addEventListener('click', () => attempt(() => save(false)));
at('remove').addEventListener('click', () => attempt(remove));
at('clear').addEventListener('click', () => { put({}, null); say('', true); });

// The head of the page.
at('controls').addEventListener('submit', event => event.preventDefault());
function navigation() {
  const all = [...document.querySelectorAll('section[data-title]')].filter(section => !section.hidden);
  at('nav').replaceChildren(...all.map(section => el('a', {href: '#' + section.id, text: section.dataset.title})));
}
for (const section of document.querySelectorAll('section[data-title]')) {
  const links = el('span', {});
  const own = [...section.querySelectorAll('div[id$=-table]')].map(place => place.id);
  for (const id of own) {
    if (own.length > 1) links.append(` ${id.replace('-table', 's')}`);
    for (const kind of ['csv', 'json']) links.append(el('button', {type: 'button', class: 'link', text: kind, 'aria-label': `${id} as ${kind}`, onclick: () => download(id, kind)}));
  }
  section.prepend(el('h2', {}, section.dataset.title, links));
}
navigation();
// Forms are behind their summary on a narrow screen, and open otherwise.
function fitForms() {
  for (const details of document.querySelectorAll('details.phone')) details.open = !narrow.matches;
}
narrow.addEventListener('change', fitForms);
fitForms();
at('filter').addEventListener('input', filtered);
at('trouble').addEventListener('change', filtered);
function pause() {
  paused = !paused;
  at('pause').textContent = paused ? 'Resume' : 'Pause';
  at('pause').setAttribute('aria-pressed', String(paused));
}
at('pause').addEventListener('click', pause);
document.addEventListener('keydown', event => {
  if (event.target.closest('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/') { event.preventDefault(); at('filter').focus(); }
  if (event.key === 'p') pause();
});
// A browser may forbid that anything is remembered.
function remembered(id, storage, change) {
  try {
    at(id).value = storage.getItem('sluicegate-' + id) || '';
    at(id).addEventListener('change', () => storage.setItem('sluicegate-' + id, at(id).value));
  } catch { /* then it is asked for again */ }
  at(id).addEventListener('change', change);
  change();
}
remembered('theme', localStorage, () => { document.documentElement.dataset.theme = at('theme').value; });
// That a token is missing is said until there is another one; then it is tried at once.
remembered('token', sessionStorage, () => {
  [turn, wait] = [0, 1000];
  if (pardoned === TOKEN_MISSING) pardoned = '';
  sayPardoned();
  for (const id of ['said', 'explain-said', 'server-said']) if (at(id).textContent === TOKEN_MISSING) at(id).textContent = '';
  if (nextLook !== null) {
    clearTimeout(nextLook);
    nextLook = null;
    loop();
  }
});
at('config').addEventListener('toggle', async () => {
  if (!at('config').open) return;
  try { at('config-text').textContent = JSON.stringify(await read('config'), null, 1); } catch (error) { at('config-text').textContent = error.message; }
});
loop();
