const count = n => n === null || n === undefined ? '–' : Math.round(n).toLocaleString('en');
const percent = (share, digits = 2) => (share * 100).toFixed(digits) + ' %';
const time = seconds => new Date(seconds * 1000).toISOString().replace('T', ' ').slice(0, 19) + ' UTC';

// A round number that is not below n.
function ceiling(n) {
  if (n <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 2.5, 5, 10].map(step => step * power).find(step => step >= n - 1e-12);
}
function short(n) {
  if (n >= 1e6) return +(n / 1e6).toFixed(1) + 'M';
  if (n >= 1e3) return +(n / 1e3).toFixed(1) + 'k';
  return String(+n.toPrecision(3));
}
// What a chart is for those who cannot see it, and its numbers as a table.
function figure(title, picture, names, head, rows) {
  picture.setAttribute('role', 'img');
  picture.setAttribute('aria-label', title);
  const legend = el('div', {class: 'legend'});
  for (const [name, color] of names) {
    const mark = el('i', {});
    mark.style.background = color;
    legend.append(el('span', {}, mark, name));
  }
  const most = 400;
  const body = () => table(head, rows().slice(0, most));
  const details = el('details', {}, el('summary', {text: 'as a table'}));
  details.addEventListener('toggle', () => { if (details.open && details.children.length === 1) details.append(el('div', {class: 'scroll'}, body())); });
  return el('figure', {}, el('h3', {text: title}), legend, picture, details);
}
// head: [[name, is a number]…]; rows: arrays of texts or nodes.
function table(head, rows) {
  const line = row => el('tr', {}, ...row.map((cell, at) => {
    const td = el('td', head[at][1] ? {class: 'number'} : {});
    td.append(cell);
    return td;
  }));
  return el('table', {},
    el('thead', {}, el('tr', {}, ...head.map(([name, number]) => el('th', number ? {class: 'number', text: name} : {text: name})))),
    el('tbody', {}, ...rows.map(line)));
}
// A frame with axes. ticks: [[x share, text]…]. With powers, each step of the scale is ten times the one before.
function frame(most, ticks, unit, powers = 0) {
  const [width, height, left, bottom, top] = [640, 200, 46, 22, 8];
  const root = svg('svg', {viewBox: `0 0 ${width} ${height}`});
  const x = share => left + share * (width - left - 8);
  const height_of = value => powers ? (value < 1 ? 0 : (1 + Math.log10(value)) / (1 + powers)) : value / most;
  const y = value => top + (1 - height_of(value)) * (height - bottom - top);
  const marks = powers ? [0, ...Array.from({length: powers + 1}, (_, at) => 10 ** at)] : [0, most / 2, most];
  for (const mark of marks) {
    root.append(svg('line', {class: 'axis', x1: left, x2: width - 8, y1: y(mark), y2: y(mark)}));
    root.append(svg('text', {x: left - 5, y: y(mark) + 4, 'text-anchor': 'end'}, short(mark) + unit));
  }
  for (const [share, text] of ticks) {
    root.append(svg('text', {x: x(share), y: height - 6, 'text-anchor': share < 0.1 ? 'start' : share > 0.9 ? 'end' : 'middle'}, text));
  }
  return {root, x, y};
}
// The text of a time on an axis: with the date where one begins, and always at the first.
function tick(axis) {
  const length = axis.step * axis.steps;
  return share => {
    const text = time(axis.from + share * length);
    const begins = share === 0 || length > 172800 || text.slice(0, 10) !== time(axis.from + (share - 0.25) * length).slice(0, 10);
    return text.slice(begins ? 5 : 11, 16);
  };
}
// Areas on top of each other over time: series [[name, color, values]…].
function areas(title, axis, series) {
  const steps = axis.steps;
  const sums = Array.from({length: steps}, (_, at) => series.reduce((sum, one) => sum + (one[2][at] || 0), 0));
  const most = ceiling(Math.max(...sums, 1));
  const label = tick(axis);
  const {root, x, y} = frame(most, [0, 0.25, 0.5, 0.75, 1].map(share => [share, label(share)]), '');
  let below = new Array(steps).fill(0);
  for (const [name, color, values] of series) {
    const above = below.map((base, at) => base + (values[at] || 0));
    const along = (heights, back) => {
      const points = [];
      for (let at = 0; at < steps; at++) points.push(`${x(at / steps).toFixed(1)},${y(heights[at]).toFixed(1)} ${x((at + 1) / steps).toFixed(1)},${y(heights[at]).toFixed(1)}`);
      if (back) points.reverse();
      return points.map(point => back ? point.split(' ').reverse().join(' ') : point).join(' ');
    };
    const shape = svg('polygon', {points: along(above) + ' ' + along(below, true), fill: color, 'fill-opacity': 0.85});
    shape.append(svg('title', {}, name));
    root.append(shape);
    below = above;
  }
  const head = [['from', false], ...series.map(([name]) => [name, true])];
  const rows = () => Array.from({length: steps}, (_, at) => [time(axis.from + at * axis.step), ...series.map(one => count(one[2][at]))]);
  return figure(title, root, series, head, rows);
}
// Lines over time or over numbers: points [[x, y]…] with x as a share.
function lines(title, ticks, series, unit, head, rows) {
  const most = ceiling(Math.max(...series.flatMap(one => one[2].map(point => point[1])), 1e-9));
  const {root, x, y} = frame(most, ticks, unit);
  for (const [name, color, points, width] of series) {
    const line = svg('polyline', {points: points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(' '), fill: 'none', stroke: color, 'stroke-width': width || 1.6});
    line.append(svg('title', {}, name));
    root.append(line);
  }
  return figure(title, root, series, head, rows);
}
// Bars: [[label, value, color]…]. The scale is logarithmic, so that one beside thousands can be seen, and each bar has its number.
function bars(title, all, legend, head) {
  const powers = Math.max(1, Math.ceil(Math.log10(Math.max(...all.map(one => one[1]), 1) * 1.5)));
  const {root, x, y} = frame(0, [], '', powers);
  all.forEach(([label, value, color], at) => {
    const [from, to] = [x(at / all.length) + 2, x((at + 1) / all.length) - 2];
    const bar = svg('rect', {x: from, width: Math.max(1, to - from), y: y(value), height: Math.max(0, y(0) - y(value)), fill: color});
    bar.append(svg('title', {}, `${label}: ${count(value)}`));
    root.append(bar, svg('text', {x: (from + to) / 2, y: 194, 'text-anchor': 'middle', 'font-size': 10}, label));
    if (value > 0) root.append(svg('text', {x: (from + to) / 2, y: y(value) - 3, 'text-anchor': 'middle', 'font-size': 10}, short(value)));
  });
  return figure(title, root, legend, head, () => all.map(([label, value]) => [label, count(value)]));
}
