const at = id => document.getElementById(id);
const number = n => n === null || n === undefined ? '–' : Number(n).toLocaleString('en', {maximumFractionDigits: 1});
const counted = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`;
const millis = s => s === null || s === undefined ? '–' : s < 0.001 ? (s * 1e6).toFixed(0) + ' µs' : s < 1 ? (s * 1e3).toFixed(1) + ' ms' : s.toFixed(2) + ' s';
const bytes = n => n === null || n === undefined ? '–' : n < 1e3 ? `${n.toFixed(0)} B` : n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : n < 1e9 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e9).toFixed(1)} GB`;
const moment = text => text.replace(/\.\d+/, '');
const sum = values => (values || []).reduce((all, n) => all + (n || 0), 0);
const last = values => values && values.length ? values[values.length - 1] : null;
const clock = seconds => new Date(seconds * 1000).toISOString().slice(11, 19) + 'Z';
function duration(seconds) {
  const [d, h, m] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  return d ? `${d} d ${h} h` : h ? `${h} h ${m} min` : m ? `${m} min ${Math.floor(seconds % 60)} s` : `${Math.floor(seconds)} s`;
}
// A state is a word, a sign and a colour.
function state(good, word, warn) {
  const [sign, kind] = good ? ['●', 'good'] : warn ? ['▲', 'warn'] : ['✕', 'bad'];
  return el('span', {class: kind, text: `${sign} ${word}`});
}
// Tables keep their rows for the filter and for downloads. columns: [[title, is a number]…]; rows: {cells, trouble, open}.
const tables = new Map();
function table(id, columns, rows, empty) {
  const place = at(id);
  tables.set(id, {columns, rows});
  if (!rows.length) return place.replaceChildren(el('p', {class: 'quiet', text: empty || 'none'}));
  const line = row => {
    const tr = el('tr', {});
    row.cells.forEach((cell, column) => {
      const td = el('td', {'data-label': columns[column][0], ...(columns[column][1] ? {class: 'number'} : {})});
      td.append(cell === null || cell === undefined ? '–' : cell instanceof Node ? cell : visible(cell));
      tr.append(td);
    });
    tr.hidden = !shown(row);
    return tr;
  };
  place.replaceChildren(el('div', {class: 'scroll'}, el('table', {class: 'cards'},
    el('thead', {}, el('tr', {}, ...columns.map(([title, isNumber]) => el('th', isNumber ? {class: 'number', text: title} : {text: title})))),
    el('tbody', {}, ...rows.map(line)))));
}
const textOf = cell => cell === null || cell === undefined ? '' : typeof cell === 'object' ? cell.textContent : String(cell);
function shown(row) {
  const wanted = at('filter').value.toLowerCase();
  return (!at('trouble').checked || row.trouble) && (!wanted || row.cells.some(cell => textOf(cell).toLowerCase().includes(wanted)));
}
function filtered() {
  for (const [id, {rows}] of tables) {
    const lines = at(id).querySelectorAll('tbody > tr');
    rows.forEach((row, index) => { if (lines[index]) lines[index].hidden = !shown(row); });
  }
}
function download(id, kind) {
  const {columns, rows} = tables.get(id) || {columns: [], rows: []};
  const titles = columns.map(column => column[0]);
  const cells = rows.map(row => row.cells.map(textOf));
  // A cell that begins like a formula would be one in a spreadsheet.
  const quoted = text => '"' + (/^[=+\-@]/.test(text) && isNaN(text) ? "'" + text : text).replaceAll('"', '""') + '"';
  const text = kind === 'csv' ? [titles, ...cells].map(row => row.map(quoted).join(',')).join('\r\n')
    : JSON.stringify(cells.map(row => Object.fromEntries(row.map((cell, index) => [titles[index], cell]))), null, 1);
  const link = el('a', {href: URL.createObjectURL(new Blob([text], {type: kind === 'csv' ? 'text/csv' : 'application/json'})), download: `${id}.${kind}`});
  link.click();
  URL.revokeObjectURL(link.href);
}
// A small line of counts.
function spark(values, color) {
  const [width, height] = [120, 22];
  const root = svg('svg', {class: 'spark', viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true'});
  const most = Math.max(1, ...values.map(n => n || 0));
  const step = width / Math.max(1, values.length);
  values.forEach((n, index) => {
    if (!n) return;
    const tall = Math.max(1, n / most * height);
    root.append(svg('rect', {x: (index * step).toFixed(2), y: (height - tall).toFixed(2), width: Math.max(0.5, step).toFixed(2), height: tall.toFixed(2), fill: `var(--${color})`}));
  });
  return root;
}
// Counts over time, on top of each other. A gap is drawn as a gap. series: [[name, colour, values]…].
function chart(title, ring, series) {
  // About as wide as it is shown, so that its texts have their size on a phone, too.
  const [width, height, left, bottom, top] = [innerWidth < 600 ? 340 : 640, 150, 44, 20, 6];
  const steps = (ring.requests || []).length;
  const root = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title});
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
