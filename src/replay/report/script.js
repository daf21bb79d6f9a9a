const data = JSON.parse(document.getElementById('data').textContent);
const main = document.getElementById('main');
const contents = document.getElementById('contents');
const color = name => `var(--${name})`;
const axis = {from: data.from, step: data.step, steps: data.traffic.requests.length};
const decided = data.admitted + data.refused + data.unmatched;
const share = (part, all) => all ? part / all : 0;

function section(id, title, ...children) {
  contents.append(el('a', {href: '#' + id, text: title}), ' ');
  main.append(el('section', {id}, el('h2', {text: title}), ...children));
}
function copied(text) {
  const button = el('button', {type: 'button', text: 'copy'});
  button.addEventListener('click', () => {
    const area = el('textarea', {});
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    button.textContent = done ? 'copied' : 'select and copy';
  });
  return button;
}
function keyOf(one) { return el('code', {text: one.key === null ? '(no key)' : one.key}); }

document.getElementById('summary').textContent =
  `Of ${count(decided)} requests ${percent(share(data.refused, decided))} (${count(data.refused)}) would have been refused.`;
document.getElementById('facts').textContent =
  `${data.config} on ${data.logs.join(', ')}: ${count(data.lines)} lines, ${count(data.unreadable)} unreadable, ${count(data.unmatched)} match no route. ` +
  (axis.steps ? `From ${time(data.from)} to ${time(data.to)}.` : '');
const trust = data.trust || [];
document.getElementById('trust').append(...trust.map(one => el('li', {class: one.level === 'doubt' ? 'bad' : ''}, el('b', {text: one.level}), ' ' + one.text)));
document.getElementById('assumptions').append(...data.assumptions.map(text => el('li', {text})));
document.getElementById('footer').textContent = `sluicegate ${data.version}, replay. Times are UTC; here it is ${new Date().toString().slice(25, 33)}.`;

const admitted = data.traffic.requests.map((all, at) => all - data.traffic.refused[at] - data.traffic.unmatched[at]);
section('traffic', 'Traffic', areas('Requests over time', axis, [
  ['admitted', color('good'), admitted], ['refused', color('bad'), data.traffic.refused], ['unmatched', color('third'), data.traffic.unmatched]]));

for (const limit of data.limits) {
  const parts = [el('p', {class: 'quiet', text: limit.quota})];
  parts.push(el('p', {text: `${count(limit.admitted)} admitted, ${count(limit.refused)} refused` +
    (limit.shadow_refused ? `, ${count(limit.shadow_refused)} would have been (shadow)` : '') +
    (limit.candidate_refused ? `; its candidate would have refused ${count(limit.candidate_refused)}` : '') +
    (limit.clients === null ? '.' : `. ${count(limit.clients_refused)} of ${count(limit.clients)} clients were refused something (${percent(share(limit.clients_refused, limit.clients), 3)}).`)}));
  const charts = el('div', {class: 'columns'});
  charts.append(areas('Admitted and refused', axis, [['admitted', color('good'), limit.series.admitted], ['refused', color('bad'), limit.series.refused]]));
  const peaks = limit.peaks;
  if (peaks.clients.some(n => n > 0)) {
    const label = at => at < peaks.bounds.length ? String(peaks.bounds[at]) : 'more';
    const all = peaks.clients.map((n, at) => [label(at), n, at < peaks.bounds.length && peaks.bounds[at] <= 1 ? color('good') : color('bad')]);
    charts.append(bars('How close to the limit clients come: clients by the largest share of the limit that they needed', all,
      [['within the limit', color('good')], ['above it', color('bad')]], [['times the limit', false], ['clients', true]]));
  }
  parts.push(charts);
  if (limit.suggested.length) {
    const best = limit.suggested[0];
    parts.push(el('div', {class: 'advice'}, el('p', {text: best.current ? `${best.rate} is enough as it is: it refuses requests of ${count(best.clients_refused)} of ${count(best.clients)} clients.` : `Suggested: ${best.rate}. It would have refused requests of ${count(best.clients_refused)} of ${count(best.clients)} clients (at most ${percent(best.refused_clients, 1)}).`}),
      el('p', {}, el('code', {text: best.yaml}), ' ', copied(best.yaml))));
    parts.push(el('div', {class: 'scroll'}, table([['clients refused', true], ['rate', false], ['in the file', false]],
      limit.suggested.map(one => [`≤ ${percent(one.refused_clients, 1)} (${count(one.clients_refused)})`, one.rate, el('code', {text: one.yaml})]))));
  }
  if (limit.refused_from_to.length) {
    const spans = limit.refused_from_to;
    parts.push(el('h3', {text: 'When it would refuse'}), el('div', {class: 'scroll'}, table([['from', false], ['to', false], ['refused', true]],
      spans.map(one => [time(one.from), time(one.to), count(one.refused)]))));
  }
  if (limit.suggestion_note) parts.push(el('p', {class: 'quiet', text: limit.suggestion_note}));
  if (limit.top_refused.length) {
    const most = limit.top_refused[0].refused;
    parts.push(el('h3', {text: 'Keys most refused'}), el('div', {class: 'scroll'}, table(
      [['key', false], ['refused', true], ['', false], ['admitted', true], ['first at', false]],
      limit.top_refused.map(one => {
        const bar = el('span', {class: 'bar'});
        bar.style.width = (share(one.refused, most) * 6).toFixed(2) + 'em';
        return [keyOf(one), count(one.refused), bar, count(one.admitted), one.first === null ? '–' : time(one.first)];
      }))));
  }
  section('limit-' + limit.name, `Limit ${limit.name}`, ...parts);
}

if (data.against) {
  const against = data.against;
  section('against', `Against ${against.old}`,
    el('p', {text: `${count(against.newly_refused)} requests of ${count(against.clients_newly_refused)} clients are newly refused, ${count(against.freed)} of ${count(against.clients_freed)} are freed.`}),
    areas('Differences over time', axis, [['newly refused', color('bad'), against.series.newly_refused], ['freed', color('good'), against.series.freed]]),
    el('div', {class: 'columns'},
      el('div', {class: 'scroll'}, table([['limit', false], ['newly refused', true], ['freed', true]], against.limits.map(one => [one.name, count(one.newly_refused), count(one.freed)]))),
      el('div', {class: 'scroll'}, table([['key', false], ['newly refused', true], ['freed', true]], against.keys.map(one => [keyOf(one), count(one.newly_refused), count(one.freed)])))));
}

for (const compared of data.algorithms || []) {
  const palette = ['exact', 'good', 'link', 'bad', 'third', 'quiet', 'text'].map(color);
  const points = counts => counts.map((n, at) => [(at + 0.5) / Math.max(1, counts.length), n]);
  const series = compared.curves.map((curve, at) => [curve.label, palette[at % palette.length], points(curve.counts), at === 0 ? 5 : 1.6]);
  const label = tick(axis);
  const others = series.slice(1).map(one => lines(`${one[0]} (the wide grey line is the exact log)`, [0, 0.5, 1].map(at => [at, label(at)]), [series[0], [one[0], color('link'), one[2], 1.6]], '',
    [['from', false], [series[0][0], true], [one[0], true]], () => Array.from({length: axis.steps}, (_, at) => [time(axis.from + at * axis.step), count(compared.curves[0].counts[at]), count(compared.curves.find(curve => curve.label === one[0]).counts[at])])));
  const window = compared.windows;
  const along = field => window.map((one, at) => [(at + 0.5) / window.length, one[field] * 100]);
  const ticks = window.map((one, at) => [(at + 0.5) / window.length, String(one.n)]);
  section('algorithms-' + compared.limit, `Algorithms at ${compared.rate} (${compared.limit})`,
    el('p', {class: 'quiet', text: 'Each algorithm decides the same requests at the same rate, beside an exact sliding log. "Most in a window" is the most that it admitted to one key within any period, in parts of the limit.'}),
    el('h3', {text: 'Admitted over time'}), el('div', {class: 'columns'}, ...others),
    el('div', {class: 'scroll'}, table([['algorithm', false], ['refused', true], ['wrongly refused', true], ['wrongly admitted', true], ['most in a window', true]],
      compared.rows.map(one => [one.label, count(one.refused), percent(one.wrongly_refused, 3), percent(one.wrongly_admitted, 3), one.worst.toFixed(2) + ' ×']))),
    lines('sliding_window by its number of sub-windows (not strict)', ticks,
      [['wrongly refused', color('bad'), along('wrongly_refused')], ['wrongly admitted', color('third'), along('wrongly_admitted')], ['mean error of the estimate', color('exact'), along('mean_error')]], ' %',
      [['slices', true], ['wrongly refused', true], ['wrongly admitted', true], ['mean error', true], ['most in a window', true]],
      () => window.map(one => [String(one.n), percent(one.wrongly_refused, 3), percent(one.wrongly_admitted, 3), percent(one.mean_error, 3), one.worst.toFixed(2) + ' ×'])));
}

const groups = Object.entries(data.groups).filter(([, all]) => all.length);
if (groups.length) {
  section('groups', 'Who would feel it', el('div', {class: 'columns'}, ...groups.map(([kind, all]) => el('div', {class: 'scroll'}, table(
    [[kind, false], ['requests', true], ['refused', true], ['share', true]],
    all.map(one => [one.name, count(one.requests), count(one.refused), percent(share(one.refused, one.requests))]))))));
}
if (data.unmatched_paths.length) {
  section('unmatched', 'Requests that match no route',
    el('ul', {}, ...data.unmatched_why.map(one => el('li', {text: `${count(one.count)} differ from the nearest route in: ${one.why}`}))),
    el('div', {class: 'scroll'}, table([['target', false], ['requests', true]], data.unmatched_paths.map(one => [el('code', {text: one.target}), count(one.count)]))));
}
