// Upstreams and their servers, which are drained and put into maintenance here.
const isReady = one => one.state !== 'drain' && one.state !== 'maintenance';
// The word is that of /status. Down are also servers that get requests, because no other is left.
function serverState(server, address) {
  if (!isReady(server)) return state(false, server.state, true);
  if (!address) return state(false, 'unresolved: its name has no address');
  if (address.state === 'up') return state(true, 'up');
  return state(false, address.state + (address.failing_seconds === null ? '' : ` for ${duration(address.failing_seconds)}`) + (server.in_use && server.state !== 'up' ? ', still in use' : ''));
}
function lastCheck(check) {
  if (!check) return null;
  const text = `${check.status === null ? check.error : check.status} in ${millis(check.seconds)}, ${moment(check.at).replace(new Date().toISOString().slice(0, 11), '')}`;
  return check.ok ? text : state(false, text);
}
const QUESTIONS = {
  drain: 'It gets no new requests; those in flight end as usual, and health checks go on.',
  maintenance: 'It gets no new requests and no health checks; requests in flight end as usual.',
};
async function setServer(upstream, server, wanted) {
  const known = status.upstreams.find(one => one.name === upstream);
  const isLast = known && !known.servers.some(other => other.server !== server && isReady(other));
  const title = wanted === 'drain' ? `Drain ${server} of ${upstream}?` : `Put ${server} of ${upstream} into maintenance?`;
  const warning = isLast ? ` No other server of ${upstream} is ready: all its requests will be answered with 503.` : '';
  if (wanted !== 'ready' && !confirm(visible(`${title} ${QUESTIONS[wanted]}${warning}`))) return;
  try {
    const {value} = await ask('PUT', `upstreams/${encodeURIComponent(upstream)}/servers/${encodeURIComponent(server)}/state`, {state: wanted}, {'Content-Type': 'application/json'});
    at('server-said').textContent = visible(`${server} of ${upstream}: ${value.state}` + (wanted === 'ready' ? '' : `, ${counted(value.in_flight, 'request')} in flight`));
    status = await read('status');
    showStatus();
  } catch (error) { at('server-said').textContent = visible(error.message); }
}
function serverButtons(upstream, server) {
  const all = isReady(server) ? ['drain', 'maintenance'] : ['ready', ...['drain', 'maintenance'].filter(word => word !== server.state)];
  return el('span', {class: 'actions'}, ...all.map(word => el('button', {type: 'button', class: 'link', text: word, 'aria-label': `${word}: ${server.server} of ${upstream}`, onclick: () => setServer(upstream, server.server, word)})));
}
function showServers() {
  const outcome = (name, kind) => (outcomes[name] || {})[kind] || 0;
  table('upstream-table', [['upstream'], ['servers up', 'number', 'first'], ['waiting', 'number'], ['answered', 'number', 'second'], ['failed', 'number', 'second'], ['too slow', 'number'], ['busy', 'number'], ['retries', 'number']],
    status.upstreams.map(upstream => {
      const {name, servers} = upstream, up = servers.filter(server => server.state === 'up').length;
      const failed = outcome(name, 'connect_failed') + outcome(name, 'broken') + outcome(name, 'drained');
      return {trouble: up < servers.length, cells: [name, up === servers.length ? number(up) : state(false, `${up} of ${servers.length}`, up > 0), number(upstream.pending), number(outcome(name, 'answered')),
        number(failed), number(outcome(name, 'connect_timeout') + outcome(name, 'response_timeout')), number(outcome(name, 'busy')), number(outcome(name, 'retries'))]};
    }), {empty: 'no upstreams are configured', calm: ['healthy upstream']});
  // An address is shown if there are names.
  const named = status.upstreams.some(({servers}) => servers.some(server => server.addresses.some(one => one.address !== server.server)));
  const rows = status.upstreams.flatMap(({name, servers}) => servers.flatMap(server => (server.addresses.length ? server.addresses : [null]).map((address, index) => ({
    key: `${name} ${server.server} ${address ? address.address : ''}`, trouble: server.state !== 'up' || Boolean(address && (address.state !== 'up' || address.trouble)),
    cells: [server.server, name, ...(named ? [address && address.address] : []), serverState(server, address), number(server.weight),
      ...(address ? [number(address.in_flight), number(address.requests), number(address.failed), lastCheck(address.last_check), address.trouble] : [null, null, null, null, null]), index ? '' : serverButtons(name, server)]}))));
  table('server-table', [['server'], ['upstream', null, 'second'], ...(named ? [['address']] : []), ['state', null, 'first'], ['weight', 'number'], ['in flight', 'number', 'second'], ['requests', 'number', 'second'], ['failed', 'number'], ['last health check'], ['last error'], ['']],
    rows, {empty: 'no servers are configured', calm: ['healthy server']});
}
