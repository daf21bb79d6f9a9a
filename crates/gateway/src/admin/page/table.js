// Tables keep their rows for the filter and for downloads, and the order that was chosen. columns: [[title, kind, place]…]; the kind is
// 'number' (right-aligned), 'chart' (ordered as a number) or null; the place is where a narrow screen shows the cell: in the 'first' or in the
// 'second' line of a card, or only when that is open. rows: {cells, trouble}. There, rows without trouble are behind one line.
const tables = new Map(), orders = new Map(), unfolded = new Set(), openCards = new Set();
const narrow = matchMedia('(max-width: 900px)');
const UNITS = {'µs': 1e-6, ms: 1e-3, s: 1, B: 1, kB: 1e3, MB: 1e6, GB: 1e9};
// What a cell is ordered by: the number that it shows, in one unit, or its text. Nothing comes last.
function rank(cell, kind) {
  const text = cell instanceof Node && cell.dataset.value !== undefined ? cell.dataset.value : textOf(cell);
  if (!kind) return text === '' || text === '–' ? null : text;
  const found = text.match(/(-?[\d,]*\.?\d+)(?: (µs|ms|s|B|kB|MB|GB)$)?/);
  return found ? Number(found[1].replaceAll(',', '')) * (UNITS[found[2]] || 1) : null;
}
function ordered(id, columns, rows) {
  const order = orders.get(id);
  const column = order ? columns.findIndex(one => one[0] === order.title) : -1;
  if (column < 0) return rows;
  const ranked = rows.map(row => [rank(row.cells[column], columns[column][1]), row]);
  const compare = (a, b) => typeof a === 'string' ? a.localeCompare(b, 'en', {numeric: true}) : a - b;
  return ranked.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : order.sign * compare(a, b)).map(one => one[1]);
}
// Numbers begin with the greatest, texts with the first; a third click restores the order of the gateway.
function reorder(id, title, kind) {
  const [order, first] = [orders.get(id), kind ? -1 : 1];
  if (!order || order.title !== title) orders.set(id, {title, sign: first});
  else if (order.sign === first) orders.set(id, {title, sign: -first});
  else orders.delete(id);
  const {columns, rows, options} = tables.get(id);
  table(id, columns, rows, options);
}
// Replaces what a place shows; the focus stays where it was, on the element with the same label.
function redraw(place, ...nodes) {
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute('aria-label') : null;
  place.replaceChildren(...nodes);
  refocus(place, focused);
}
function refocus(place, label) {
  if (label === null || place.contains(document.activeElement)) return;
  const same = [...place.querySelectorAll('[aria-label]')].find(node => node.getAttribute('aria-label') === label);
  if (same) same.focus({preventScroll: true});
}
function heading(id, [title, kind]) {
  const order = orders.get(id);
  const th = el('th', kind === 'number' ? {class: 'number'} : {});
  if (title) th.append(el('button', {type: 'button', class: 'sort', text: title, 'aria-label': `${title}: sort ${id}`, onclick: () => reorder(id, title, kind)}));
  if (order && order.title === title) th.setAttribute('aria-sort', order.sign > 0 ? 'ascending' : 'descending');
  return th;
}
function line(id, columns, row) {
  const name = textOf(row.cells[0]), key = `${id} ${row.key || name}`;
  const tr = el('tr', {class: [row.trouble ? '' : 'calm', openCards.has(key) ? 'open' : ''].join(' ').trim()});
  row.cells.forEach((cell, column) => {
    const [title, kind, place] = columns[column];
    const td = el('td', {'data-label': title, class: [kind === 'number' ? 'number' : '', column ? place || 'rest' : 'name', cell === null || cell === undefined ? 'empty' : ''].join(' ').trim()});
    td.append(cell === null || cell === undefined ? '–' : cell instanceof Node ? cell : visible(cell));
    if (!column) td.append(el('button', {type: 'button', class: 'more', 'aria-expanded': String(openCards.has(key)), 'aria-label': `all of ${row.key || name}`, text: openCards.has(key) ? '▴' : '▾', onclick: () => {
      if (!openCards.delete(key)) openCards.add(key);
      table(id, tables.get(id).columns, tables.get(id).rows, tables.get(id).options);
    }}));
    tr.append(td);
  });
  tr.hidden = !shown(row);
  return tr;
}
// options: {empty: what is shown without rows; calm: [one, many], what rows without trouble are called}.
function table(id, columns, rows, options = {}) {
  const place = at(id);
  const sorted = ordered(id, columns, rows);
  tables.set(id, {columns, rows, sorted, options});
  if (!rows.length) return place.replaceChildren(el('p', {class: 'quiet', text: options.empty || 'none'}));
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute('aria-label') : null;
  if (!place.querySelector('tbody')) {
    place.replaceChildren(el('div', {class: 'scroll'}, el('table', {class: 'cards'}, el('thead', {}, el('tr')), el('tbody'))), el('button', {type: 'button', class: 'fold', 'aria-label': `fold ${id}`, onclick: () => {
      if (!unfolded.delete(id)) unfolded.add(id);
      fold(id);
    }}));
  }
  // What is the same stays: under a pointer, and while a button is pressed.
  const replace = (parent, nodes) => {
    nodes.forEach((node, index) => {
      const old = parent.children[index];
      if (!old) parent.append(node); else if (!old.isEqualNode(node)) old.replaceWith(node);
    });
    while (parent.children.length > nodes.length) parent.lastElementChild.remove();
  };
  replace(place.querySelector('thead tr'), columns.map(column => heading(id, column)));
  replace(place.querySelector('tbody'), sorted.map(row => line(id, columns, row)));
  refocus(place, focused);
  fold(id);
}
// A few rows without trouble are shown; more are behind one line, unless one looks for something.
function fold(id) {
  const {rows, options} = tables.get(id), place = at(id), button = place.querySelector('.fold');
  if (!button) return;
  const calm = rows.filter(row => !row.trouble && shown(row)).length;
  const foldable = Boolean(options.calm) && calm > 3 && !at('filter').value;
  const folded = foldable && !unfolded.has(id);
  place.classList.toggle('folded', folded);
  button.hidden = !foldable;
  if (foldable) button.textContent = `${counted(calm, ...options.calm)} – ${folded ? 'show' : 'hide'}`;
}
// What a cell says to the filter and in downloads; buttons say nothing.
function textOf(cell) {
  if (cell === null || cell === undefined || cell instanceof Element && cell.matches('.actions')) return '';
  return cell instanceof Node ? cell.textContent : String(cell);
}
function shown(row) {
  const wanted = at('filter').value.toLowerCase();
  return (!at('trouble').checked || row.trouble) && (!wanted || row.cells.some(cell => textOf(cell).toLowerCase().includes(wanted)));
}
function filtered() {
  for (const [id, {sorted}] of tables) {
    const lines = at(id).querySelectorAll('tbody > tr');
    sorted.forEach((row, index) => { if (lines[index]) lines[index].hidden = !shown(row); });
    fold(id);
  }
}
function download(id, kind) {
  const {columns, sorted} = tables.get(id) || {columns: [], sorted: []};
  const titles = columns.map(column => column[0]);
  const cells = sorted.map(row => row.cells.map(textOf));
  // A cell that begins like a formula would be one in a spreadsheet.
  const quoted = text => '"' + (/^[=+\-@]/.test(text) && isNaN(text) ? "'" + text : text).replaceAll('"', '""') + '"';
  const text = kind === 'csv' ? [titles, ...cells].map(row => row.map(quoted).join(',')).join('\r\n')
    : JSON.stringify(cells.map(row => Object.fromEntries(row.map((cell, index) => [titles[index], cell]))), null, 1);
  const link = el('a', {href: URL.createObjectURL(new Blob([text], {type: kind === 'csv' ? 'text/csv' : 'application/json'})), download: `${id}.${kind}`});
  link.click();
  URL.revokeObjectURL(link.href);
}
