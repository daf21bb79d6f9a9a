-- Where the store stands: epoch, version and mark. A new store gets its epoch here.
--
-- KEYS: meta. ARGV: the epoch if there is none yet.
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'mark')
if not meta[1] then
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
  meta[1] = ARGV[1]
end
return {meta[1], meta[2] or '0', meta[3] or ''}
