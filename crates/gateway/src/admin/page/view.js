const at = id => document.getElementById(id);
const number = n => n === null || n === undefined ? '–' : Number(n).toLocaleString('en', {maximumFractionDigits: 1});
const counted = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`;
const millis = s => s === null || s === undefined ? '–' : s < 0.001 ? (s * 1e6).toFixed(0) + ' µs' : s < 1 ? (s * 1e3).toFixed(1) + ' ms' : s.toFixed(2) + ' s';
const bytes = n => n === null || n === undefined ? '–' : n < 1e3 ? `${n.toFixed(0)} B` : n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : n < 1e9 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e9).toFixed(1)} GB`;
const perSecond = n => n === null || n === undefined ? '–' : Number(n).toLocaleString('en', {minimumFractionDigits: 1, maximumFractionDigits: 1});
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
  return el('span', {class: kind, text: `${sign}\u00a0${word}`});
}
