-- The version of the store, and id and entry of each pattern.
--
-- KEYS: meta, patterns.
return {redis.call('HGET', KEYS[1], 'version') or '0', redis.call('HGETALL', KEYS[2])}
