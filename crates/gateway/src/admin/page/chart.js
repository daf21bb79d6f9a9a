// What is under the pointer, or at the cursor of the keyboard: charts say how many slots they have, where these are, and what each shows.
const readings = new WeakMap();
let pointer = null, isTouch = false, cursor = null;
function tip() {
  const tip = at('tip'), focused = document.activeElement;
  document.querySelectorAll('svg .mark').forEach(mark => mark.setAttribute('visibility', 'hidden'));
  const under = pointer && document.elementFromPoint(...pointer);
  let root = under && under.closest('svg'), index = null;
  if (root && readings.has(root)) {
    const {left, width, count} = readings.get(root), box = root.getBoundingClientRect();
    index = Math.floor(((pointer[0] - box.left) / box.width * width - left) / (width - left) * count);
  } else if (cursor !== null && readings.has(focused)) {
    root = focused;
    cursor = Math.max(0, Math.min(cursor, readings.get(root).count - 1));
    index = readings.get(root).count - 1 - cursor;
  }
  const reading = root && readings.get(root);
  tip.hidden = !reading || index === null || index < 0 || index >= reading.count;
  if (tip.hidden) return;
  const box = root.getBoundingClientRect(), x = reading.left + (index + 0.5) / reading.count * (reading.width - reading.left);
  tip.textContent = visible(reading.text(index));
  const mark = root.querySelector('.mark');
  if (mark) {
    mark.setAttribute('x1', x);
    mark.setAttribute('x2', x);
    mark.setAttribute('visibility', 'visible');
  }
  const wide = tip.offsetWidth, from = box.left + x / reading.width * box.width - wide / 2;
  tip.style.left = Math.max(4, Math.min(from, document.documentElement.clientWidth - wide - 4)) + 'px';
  tip.style.top = Math.max(4, box.top - tip.offsetHeight - 4) + 'px';
}
for (const kind of ['pointermove', 'pointerdown']) document.addEventListener(kind, event => { [pointer, isTouch] = [[event.clientX, event.clientY], event.pointerType === 'touch']; tip(); });
document.documentElement.addEventListener('pointerleave', () => { pointer = null; tip(); });
document.addEventListener('scroll', () => { if (isTouch) pointer = null; tip(); }, {passive: true});
document.addEventListener('keydown', event => {
  const steps = {ArrowLeft: 1, ArrowRight: -1}[event.key];
  if (!steps || !readings.has(document.activeElement)) return;
  event.preventDefault();
  [pointer, cursor] = [null, (cursor ?? 0) + steps];
  tip();
});
document.addEventListener('focusin', event => {
  if (!readings.has(event.target)) cursor = null;
  else if (cursor === null) cursor = 0;
  tip();
});
// A small line of counts, a slot of `step` seconds each, the last of which ends at `end`.
function spark(values, color, {end, step, text}) {
  const [width, height] = [120, 22];
  const root = svg('svg', {class: 'spark', viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true', 'data-value': sum(values)});
  const most = Math.max(1, ...values.map(n => n || 0));
  const wide = width / Math.max(1, values.length);
  values.forEach((n, index) => {
    if (!n) return;
    const tall = Math.max(1, n / most * height);
    root.append(svg('rect', {x: (index * wide).toFixed(2), y: (height - tall).toFixed(2), width: Math.max(0.5, wide).toFixed(2), height: tall.toFixed(2), fill: `var(--${color})`}));
  });
  readings.set(root, {left: 0, width, count: values.length, text: index =>
    `${clock(end - (values.length - index) * step)}, ${duration(step)}: ` + (values[index] === null ? 'no data' : `${number(values[index])} ${text}`)});
  return root;
}
// Counts over time, on top of each other. A gap is drawn as a gap. series: [[name, colour, values]…].
function chart(title, ring, series) {
  // About as wide as it is shown, so that its texts have their size on a phone, too.
  const [width, height, left, bottom, top] = [innerWidth < 600 ? 340 : 640, 150, 44, 20, 6];
  const steps = (ring.requests || []).length;
  const root = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', tabindex: '0', 'aria-label': `${title}; arrow keys show values`});
  const sums = Array.from({length: steps}, (_, index) => sum(series.map(one => one[2][index])));
  const most = Math.max(1, ...sums) / ring.step;
  const y = value => top + (1 - value / ring.step / most) * (height - bottom - top);
  for (const share of [0, 0.5, 1]) {
    const level = y(most * share * ring.step);
    root.append(svg('line', {class: 'axis', x1: left, x2: width, y1: level, y2: level}),
      svg('text', {x: left - 4, y: level + 4, 'text-anchor': 'end'}, number(most * share)));
  }
  const wide = (width - left) / Math.max(1, steps);
  for (let index = 0; index < steps; index++) {
    let base = 0;
    for (const [, color, values] of series) {
      const value = values[index];
      if (!value) continue;
      root.append(svg('rect', {x: left + index * wide, width: Math.max(0.6, wide - 0.2), y: y(base + value), height: Math.max(0.8, y(base) - y(base + value)), fill: `var(--${color})`}));
      base += value;
    }
  }
  for (const share of [0, 0.5, 1]) root.append(svg('text', {x: left + share * (width - left), y: height - 5, 'text-anchor': share === 0 ? 'start' : share === 1 ? 'end' : 'middle'}, clock(ring.from + share * steps * ring.step)));
  root.append(svg('line', {class: 'mark', x1: left, x2: left, y1: top, y2: height - bottom, visibility: 'hidden'}));
  readings.set(root, {left, width, count: steps, text: index => `${clock(ring.from + index * ring.step)}: ` +
    (series.some(one => one[2][index] === null) ? 'no data' : series.map(([name, , values]) => `${name} ${number((values[index] || 0) / ring.step)}/s`).join(', '))});
  const legend = el('div', {class: 'legend'}, ...series.map(([name, color]) => {
    const mark = el('i', {});
    mark.style.background = `var(--${color})`;
    return el('span', {}, mark, name);
  }));
  const rows = el('details', {}, el('summary', {text: 'as a table'}));
  rows.addEventListener('toggle', () => {
    if (!rows.open || rows.children.length > 1) return;
    rows.append(el('div', {class: 'scroll'}, el('table', {}, el('tr', {}, el('th', {text: 'from'}), ...series.map(one => el('th', {class: 'number', text: one[0]}))),
      ...Array.from({length: Math.min(steps, 120)}, (_, back) => steps - 1 - back).map(index => el('tr', {}, el('td', {text: clock(ring.from + index * ring.step)}),
        ...series.map(one => el('td', {class: 'number', text: one[2][index] === null ? 'gap' : number(one[2][index])})))))));
  });
  return el('figure', {}, el('h3', {text: title}), legend, root, rows);
}
