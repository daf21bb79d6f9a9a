// Queued requests, and those of them that have failed, which are queued again or dropped here.
async function changeQueue(limit, change, count) {
  const what = change === 'retry' ? 'Queue again' : 'Drop';
  if (!confirm(visible(`${what} ${counted(count, 'failed request')} of ${limit}?`))) return;
  try {
    const {value} = await ask('POST', `queues/${encodeURIComponent(limit)}/${change}`, {all: true}, {'Content-Type': 'application/json'});
    at('queue-said').textContent = visible(`${limit}: ${counted(value.changed, 'request')} ${change === 'retry' ? 'queued again' : 'dropped'}`);
    status = await read('status');
    showStatus();
  } catch (error) { at('queue-said').textContent = visible(error.message); }
}
function queueButtons(queue) {
  if (!queue.dead_letters) return '';
  return el('span', {class: 'actions'}, ...['retry', 'drop'].map(word => el('button', {type: 'button', class: 'link', text: `${word} failed`, 'aria-label': `${word} failed requests of ${queue.limit}`, onclick: () => changeQueue(queue.limit, word, queue.dead_letters)})));
}
function showQueues() {
  at('queues').hidden = !status.queues.length;
  table('queue-table', [['limit'], ['waiting', 'number', 'first'], ['the oldest', 'number', 'second'], ['failed', 'number', 'second'], ['delivered', 'number'], ['refused, full', 'number'], ['errors', 'number'], ['kept in'], ['']],
    status.queues.map(queue => ({trouble: queue.dead_letters > 0 || queue.length + queue.dead_letters >= queue.max_length, cells: [queue.limit, number(queue.length), queue.oldest_seconds === null ? null : duration(queue.oldest_seconds),
      queue.dead_letters ? state(false, number(queue.dead_letters), true) : number(0), number(queue.delivered), number(queue.full), number(queue.errors), queue.place, queueButtons(queue)]})), {calm: ['queue without trouble', 'queues without trouble']});
}
