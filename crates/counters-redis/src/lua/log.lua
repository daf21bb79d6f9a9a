-- sliding_log. Value: period 6 bytes, 16777215 if more than 1024 words follow and otherwise the first live word 3, number of
-- held places 4, instant before the first live word 7, instant of the last word 7, number of places that were dropped before
-- they expired (1 byte, or 4 if it is above 255); then words of 4 bytes, 2 bits and a number x:
--   00 x microseconds later, one place        10 x microseconds later (only older versions write it)
--   01 x * 2^20 microseconds later            11 x more places at the same instant
--
-- A log is read and written whole: the configuration allows at most 10,000 places.
algorithms[4] = function()
    local kind = {}
    local HEADER, WIDE_HEADER = '>I6I3I4I7I7B', '>I6I3I4I7I7I4'
    local LONG, IS_LONG = 1024, 16777215
    local STEP, PAUSE, MORE, ONE = 1073741824, 2147483648, 3221225472, 1073741823
    local FAR = 1048576

    -- The time of a word after the one before it, and its number of places.
    local function meaning(word)
        if word < STEP then
            return word, 1
        elseif word < PAUSE then
            return (word - STEP) * FAR, 0
        elseif word < MORE then
            return word - PAUSE, 0
        end
        return 0, word - MORE
    end

    -- Continues from `word` at `instant`, after `sum` places, past all words up to the instant `latest`, until `enough`
    -- places are passed. Returns the position, and the end and the instant of the last place that was passed.
    local function walk(log, word, instant, sum, latest, enough)
        local place, place_at = word, instant
        while word < log.stop and sum < enough do
            local n = math.min(128, log.stop - word)
            local words = {struct.unpack('>' .. string.rep('I4', n), log.words, 4 * word + 1)}
            for i = 1, n do
                local later, places = meaning(words[i])
                if instant + later > latest then
                    return word, instant, sum, place, place_at
                end
                word, instant, sum = word + 1, instant + later, sum + places
                if places > 0 then
                    place, place_at = word, instant
                end
                if sum >= enough then
                    return word, instant, sum, place, place_at
                end
            end
        end
        return word, instant, sum, place, place_at
    end

    -- Adds the words for places that are `later` than the last word.
    local function put(words, later, places)
        if later == 0 and #words > 0 then
            words[#words + 1] = MORE + places
            return
        end
        if later >= STEP then
            local far = math.floor(later / FAR)
            words[#words + 1] = STEP + far
            later = later - far * FAR
        end
        words[#words + 1] = later
        if places > 1 then
            words[#words + 1] = MORE + places - 1
        end
    end

    local function packed(words)
        local out = {}
        for i = 1, #words, 128 do
            local last = math.min(i + 127, #words)
            out[#out + 1] = struct.pack('>' .. string.rep('I4', last - i + 1), unpack(words, i, last))
        end
        return table.concat(out)
    end

    local function empty(log)
        log.words, log.stop, log.held = '', 0, 0
        log.base, log.newest, log.dropped = now, now, 0
    end

    -- Removes the words before `word`, which is at `instant`, and their places.
    local function drop(log, word, instant, places)
        if word > 0 then
            log.words, log.stop = string.sub(log.words, 4 * word + 1), log.stop - word
        end
        log.base, log.held = instant, math.max(0, log.held - places)
    end

    -- Adds places at `instant`, which is not before the newest.
    local function append(log, instant, places)
        local words = {}
        if log.stop == 0 then
            log.base, log.newest = instant, instant
            put(words, 0, places)
        elseif instant == log.newest then
            words[1] = MORE + places
        else
            put(words, instant - log.newest, places)
        end
        log.words, log.stop = log.words .. packed(words), log.stop + #words
        log.newest, log.held = instant, log.held + places
    end

    -- Restores up to `places` of the dropped places that have not expired meanwhile.
    local function restore(log, places)
        local dropped = log.base + log.period > math.max(now, log.newest) and log.dropped or 0
        local restored = math.min(places, dropped)
        log.dropped = dropped - restored
        if restored > 0 then
            log.held, log.stop, log.changed = log.held + restored, log.stop + 1, true
            log.words = struct.pack('>I4', MORE + restored) .. log.words
        end
    end

    -- Drops the oldest places if the newer ones alone fill the log: they have no effect.
    local function drop_excess(log)
        local excess = log.held - log.count
        if excess <= 0 then
            return
        end
        local _, decides = walk(log, 0, log.base, 0, math.huge, excess + 1)
        local _, _, sum, word, instant = walk(log, 0, log.base, 0, decides - 1, math.huge)
        if sum > 0 then
            local dropped = log.base + log.period > math.max(now, log.newest) and log.dropped or 0
            drop(log, word, instant, sum)
            log.dropped = math.min(dropped + sum, ONE)
        end
    end

    function kind.load(log, at)
        log.period, log.count, log.cost, log.counts_refused, log.tail = struct.unpack('>I6I4I4B', log.argument, at)
        log.added, log.thresholds = 0, {}
        local value = get(log.name)
        log.value = value
        empty(log)
        local format = #value % 4 == 0 and HEADER or WIDE_HEADER
        local header = struct.size(format)
        if #value <= header or (#value - header) % 4 ~= 0 then
            return
        end
        local period, first
        period, first, log.held, log.base, log.newest, log.dropped = struct.unpack(format, value)
        log.stop = (#value - header) / 4
        -- Older versions kept a long log in another way, and no log is older than this one's period.
        local foreign = log.stop > LONG and first ~= IS_LONG
        first = first == IS_LONG and 0 or first
        if foreign or not is_period(period) or first > log.stop or log.base > log.newest then
            empty(log)
            return
        end
        log.words, log.stop = string.sub(value, header + 4 * first + 1), log.stop - first
        -- Places expire by the newest instant of the log, if that is later than now.
        local latest = math.max(now, log.newest) - math.min(period, log.period)
        log.changed = period ~= log.period
        if log.newest <= latest or log.held == 0 then
            empty(log)
            return
        end
        if log.base <= latest then
            log.dropped = 0
        end
        local word, instant, sum = walk(log, 0, log.base, 0, latest, math.huge)
        -- Refusals do not write the log, so many expired words are removed even if nothing else changes.
        log.changed = log.changed or word > 256
        drop(log, word, instant, sum)
        -- If the log has room for more places now, dropped ones are restored.
        if log.dropped > 0 and log.held < log.count then
            restore(log, log.count - log.held)
        end
        -- The clock was set back by more than a period: the places are held from now on.
        if log.newest > now + log.period then
            local held = log.held
            empty(log)
            if held > 0 then
                append(log, now, math.min(held, ONE))
            end
            log.changed = true
        end
    end

    function kind.fits(log)
        return not log.never and log.held + log.added + log.cost <= log.count
    end

    function kind.charge(log)
        log.added = log.added + log.cost
        log.changed = log.changed or log.cost > 0
    end

    -- Records how many of the oldest places must expire before the cost fits, so that the reply contains the time.
    function kind.refuse(log, banned)
        if log.never then
            return false
        end
        local own = log.counts_refused == 1 and log.cost or 0
        local needed = log.held + log.added + own + log.cost - log.count
        if needed <= log.held and needed ~= log.thresholds[#log.thresholds] then
            log.thresholds[#log.thresholds + 1] = needed
        end
        if own > 0 and not banned then
            log.added, log.full, log.changed = log.added + own, true, true
        end
        return own > 0 and not banned
    end

    -- At most the places of the largest log: more would not fill it for longer.
    function kind.spend(log)
        log.cost = math.min(log.cost, 1000000, 2147483647 - log.held)
        kind.charge(log)
        kind.save(log)
        log.changed = false
    end

    -- Writes the log without the places of the charge.
    function kind.refund(log)
        local charged = struct.unpack('>I7', log.argument, log.tail)
        if log.held == 0 or charged < log.base or charged > log.newest then
            return
        end
        local words, taken = {}, 0
        local instant, newest = log.base, log.base
        for word = 0, log.stop - 1, 128 do
            local n = math.min(128, log.stop - word)
            local read = {struct.unpack('>' .. string.rep('I4', n), log.words, 4 * word + 1)}
            for i = 1, n do
                local later, places = meaning(read[i])
                instant = instant + later
                if instant == charged then
                    local part = math.min(places, log.cost - taken)
                    taken, places = taken + part, places - part
                end
                if places > 0 then
                    put(words, instant - newest, places)
                    newest = instant
                end
            end
        end
        if taken == 0 then
            return
        end
        log.words, log.stop, log.held, log.changed = packed(words), #words, math.max(0, log.held - taken), true
        -- The dropped places had no effect while these were held; now they have.
        restore(log, taken)
        log.newest = newest
    end

    -- Instants and places: the oldest ones up to each threshold, and the rest with the newest instant.
    local function view(log)
        -- The next request may be refused without a call, so the reply contains the time at which it would fit.
        local needed, last = log.held + log.added + log.cost - log.count, log.thresholds[#log.thresholds]
        if not log.never and needed > (last or 0) and needed <= log.held then
            log.thresholds[#log.thresholds + 1] = needed
        end
        local list, sum = {}, 0
        local word, instant = 0, log.base
        for i = 1, #log.thresholds do
            local passed
            word, instant, passed = walk(log, word, instant, sum, math.huge, log.thresholds[i])
            if passed > sum then
                list[#list + 1], list[#list + 2] = instant, passed - sum
                sum = passed
            end
        end
        if log.held > sum then
            list[#list + 1], list[#list + 2] = log.newest, log.held - sum
        end
        return list
    end

    kind.loaded_state, kind.state = view, view

    function kind.save(log)
        if log.added > 0 then
            append(log, math.max(now, log.newest), math.min(log.added, ONE))
            if log.full then
                drop_excess(log)
            end
        end
        if log.held == 0 then
            set(log.name, log.value, '', 0)
            return
        end
        local long = log.stop > LONG and IS_LONG or 0
        local format = log.dropped > 255 and WIDE_HEADER or HEADER
        local header = struct.pack(format, log.period, long, log.held, log.base, log.newest, log.dropped)
        set(log.name, log.value, header .. log.words, log.newest + log.period - now)
    end

    return kind
end
