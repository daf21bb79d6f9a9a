-- sliding_log: period 6 bytes, first live word 3, places held 4, instant before the first live word 7, instant of the
-- last word 7, places that were let go while they were held 1 (255 are that many or more); then words of 4 bytes, 2 bits and a number x:
--   00 x microseconds later, one place        10 x microseconds later, a place that was given back
--   01 x * 2^20 microseconds later            11 x more places at the same instant
--
-- Up to 1024 words a log is read and written whole. A longer one is read where it is needed and changed in place:
-- its words stand in blocks of 1024, and all but the first block begin with a head of 3 words: the places in it 4
-- bytes, the instant before it 7, 1 unused. Whole blocks are passed by their heads, so that no request has to walk
-- over a million places.
algorithms[4] = function()
    local kind = {}
    local HEADER, BLOCK, HEAD = 28, 1024, 3
    local STEP, TOMB, MORE, ONE = 1073741824, 2147483648, 3221225472, 1073741823
    local FAR = 1048576

    local function read(log, word, n)
        if log.large then
            return redis.call('GETRANGE', log.name, HEADER + 4 * word, HEADER + 4 * (word + n) - 1)
        end
        return string.sub(log.words, 4 * word + 1, 4 * (word + n))
    end

    local function write(log, word, bytes)
        if log.large then
            redis.call('SETRANGE', log.name, HEADER + 4 * word, bytes)
        else
            log.words = string.sub(log.words, 1, 4 * word) .. bytes .. string.sub(log.words, 4 * word + #bytes + 1)
        end
    end

    local function block_of(word)
        return word - word % BLOCK
    end

    -- The instant before a block, and the places in it.
    local function head(log, block)
        local places, instant = struct.unpack('>I4I7', read(log, block, HEAD))
        return instant, places
    end

    local function add_places(log, word, places)
        local block = block_of(word)
        if block > 0 then
            local _, there = head(log, block)
            write(log, block, struct.pack('>I4', math.max(0, there + places)))
        end
    end

    -- Goes on from `word` at `instant`, with `sum` places passed: past all words that are not later than `latest`,
    -- until `enough` places are passed. Also where the last place that was passed ends, and its instant.
    local function walk(log, word, instant, sum, latest, enough)
        local place, place_at = word, instant
        while word < log.stop and sum < enough do
            local block = block_of(word)
            local stop = math.min(block + BLOCK, log.stop)
            local whole = false
            if word == block and block > 0 then
                local _, places = head(log, block)
                if stop < log.stop and sum + places < enough then
                    local following = head(log, stop)
                    if following <= latest then
                        whole = true
                        word, instant, sum = stop, following, sum + places
                        place, place_at = word, instant
                    end
                end
                if not whole then
                    word = block + HEAD
                end
            end
            while not whole and word < stop do
                local n = math.min(128, stop - word)
                local words = {struct.unpack('>' .. string.rep('I4', n), read(log, word, n))}
                for i = 1, n do
                    local x = words[i]
                    if x < STEP then
                        if instant + x > latest then
                            return word, instant, sum, place, place_at
                        end
                        instant, sum = instant + x, sum + 1
                        place, place_at = word + 1, instant
                    elseif x < TOMB then
                        if instant + (x - STEP) * FAR > latest then
                            return word, instant, sum, place, place_at
                        end
                        instant = instant + (x - STEP) * FAR
                    elseif x < MORE then
                        if instant + x - TOMB > latest then
                            return word, instant, sum, place, place_at
                        end
                        instant = instant + x - TOMB
                    else
                        if instant > latest then
                            return word, instant, sum, place, place_at
                        end
                        sum = sum + x - MORE
                        place, place_at = word + 1, instant
                    end
                    word = word + 1
                    if sum >= enough then
                        return word, instant, sum, place, place_at
                    end
                end
            end
        end
        return word, instant, sum, place, place_at
    end

    -- The words for so many places, so much later than the last word.
    local function words_for(later, places)
        local words = {}
        if later >= STEP then
            local far = math.floor(later / FAR)
            words[1] = STEP + far
            later = later - far * FAR
        end
        words[#words + 1] = later
        if places > 1 then
            words[#words + 1] = MORE + places - 1
        end
        return words
    end

    local function empty(log)
        log.large, log.words, log.first, log.stop, log.held = false, '', 0, 0, 0
        log.base, log.newest, log.let_go = now, now, 0
    end

    -- Adds places at `instant`, which is not before the newest.
    local function append(log, instant, places)
        if not log.large then
            log.words = string.sub(log.words, 4 * log.first + 1)
            log.first, log.stop = 0, log.stop - log.first
        end
        if log.stop == 0 then
            log.base, log.newest = instant, instant
        end
        local words
        if log.stop > 0 and instant == log.newest then
            words = {MORE + places}
        else
            words = words_for(instant - log.newest, places)
        end
        local at = log.newest
        for i = 1, #words do
            local x = words[i]
            if log.stop % BLOCK == 0 and log.stop > 0 then
                write(log, log.stop, struct.pack('>I4I7B', 0, at, 0))
                log.stop = log.stop + HEAD
            end
            write(log, log.stop, struct.pack('>I4', x))
            if x < STEP then
                at = instant
                add_places(log, log.stop, 1)
            elseif x >= MORE then
                add_places(log, log.stop, x - MORE)
            else
                at = at + (x - STEP) * FAR
            end
            log.stop = log.stop + 1
        end
        log.newest, log.held = instant, log.held + places
    end

    -- Holds up to so many places again that were let go, unless they have become free meanwhile.
    local function hold_again(log, places)
        local hidden = log.base + log.period > math.max(now, log.newest) and log.let_go or 0
        local again = math.min(places, hidden)
        log.let_go = hidden - again
        if again <= 0 then
            return
        end
        log.held = log.held + again
        log.changed = true
        if log.first > 0 then
            log.first = log.first - 1
            if log.first >= BLOCK and log.first % BLOCK < HEAD then
                log.first = block_of(log.first) - 1
            end
            write(log, log.first, struct.pack('>I4', MORE + again))
            add_places(log, log.first, again)
        else
            log.words = struct.pack('>I4', MORE + again) .. log.words
            log.stop = log.stop + 1
        end
    end

    -- Lets go of the oldest while the newer ones fill the log by themselves: it decides nothing any more.
    local function let_go(log)
        local excess = log.held - log.count
        if excess <= 0 then
            return
        end
        local _, decides = walk(log, log.first, log.base, 0, math.huge, excess + 1)
        local _, _, sum, word, instant = walk(log, log.first, log.base, 0, decides - 1, math.huge)
        if sum > 0 then
            if word > 0 and word % BLOCK == 0 then
                word = word + HEAD
            end
            local hidden = log.base + log.period > math.max(now, log.newest) and log.let_go or 0
            log.first, log.base, log.held, log.let_go = word, instant, log.held - sum, math.min(hidden + sum, 255)
        end
    end

    -- Writes the log anew without the places that were given back, as a value of its own.
    local function tidy(log)
        local out, stop, block, places = {}, 0, nil, 0
        local instant, newest, at = log.base, log.base, log.base
        local function close()
            if block then
                out[block + 1] = struct.pack('>I4I7B', places, out[block + 1], 0)
            end
        end
        local function emit(x, n)
            if stop % BLOCK == 0 and stop > 0 then
                close()
                block, places = #out, 0
                out[#out + 1] = at
                stop = stop + HEAD
            end
            out[#out + 1] = struct.pack('>I4', x)
            stop, places = stop + 1, places + n
        end
        local function put(n)
            local words = {MORE + n}
            if instant > newest or #out == 0 then
                words = words_for(instant - newest, n)
            end
            for i = 1, #words do
                local x = words[i]
                emit(x, x < STEP and 1 or x >= MORE and x - MORE or 0)
                if x < STEP then
                    at = instant
                elseif x < MORE then
                    at = at + (x - STEP) * FAR
                end
            end
            newest = instant
        end
        local word = log.first
        while word < log.stop do
            if word % BLOCK == 0 and word > 0 then
                word = word + HEAD
            end
            local n = math.min(128, log.stop - word, block_of(word) + BLOCK - word)
            local words = {struct.unpack('>' .. string.rep('I4', n), read(log, word, n))}
            for i = 1, n do
                local x = words[i]
                if x < STEP then
                    instant = instant + x
                    put(1)
                elseif x < TOMB then
                    instant = instant + (x - STEP) * FAR
                elseif x < MORE then
                    instant = instant + x - TOMB
                elseif x > MORE then
                    put(x - MORE)
                end
            end
            word = word + n
        end
        close()
        log.words, log.large = table.concat(out), false
        log.first, log.stop, log.newest = 0, stop, newest
    end

    function kind.load(log, at)
        log.period, log.count, log.cost, log.counts_refused, log.tail = struct.unpack('>I6I4I4B', log.argument, at)
        log.added, log.thresholds = 0, {}
        local value = read_value('GETRANGE', log.name, 0, HEADER + 4 * BLOCK - 1)
        log.value = value
        empty(log)
        local size = #value
        if size == HEADER + 4 * BLOCK then
            size = redis.call('STRLEN', log.name)
        end
        log.stored = size
        if size <= HEADER or (size - HEADER) % 4 ~= 0 then
            return
        end
        local period
        period, log.first, log.held, log.base, log.newest, log.let_go = struct.unpack('>I6I3I4I7I7B', value)
        log.stop = (size - HEADER) / 4
        log.large = log.stop > BLOCK
        log.words = log.large and '' or string.sub(value, HEADER + 1)
        if not is_period(period) or log.first > log.stop or log.base > log.newest then
            empty(log)
            return
        end
        -- Whether a place is free is judged by the newest instant that the log has seen.
        local latest = math.max(now, log.newest) - math.min(period, log.period)
        log.changed = period ~= log.period
        if log.newest <= latest or log.held == 0 then
            empty(log)
            return
        end
        if log.base <= latest then
            log.let_go = 0
        end
        local word, instant, sum = walk(log, log.first, log.base, 0, latest, math.huge)
        -- Words that are passed again and again by refusals, which write nothing, are passed once for all.
        log.changed = log.changed or word - log.first > 256
        log.first, log.base, log.held = word, instant, math.max(0, log.held - sum)
        -- A log that holds more places now than it did holds those again that were let go.
        if log.let_go > 0 and log.held < log.count then
            hold_again(log, log.count - log.held)
        end
        -- The clock was set back by more than a period: what is held is held from now.
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

    -- Notes how many of the oldest places must be free before the cost fits: the reply tells when that is.
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

    -- No more places than any log has: they fill it for as long as any number of them would.
    function kind.spend(log)
        log.cost = math.min(log.cost, 1000000, 2147483647 - log.held)
        kind.charge(log)
        kind.save(log)
        log.changed = false
    end

    function kind.refund(log)
        local charged = struct.unpack('>I7', log.argument, log.tail)
        local seen = math.max(now, log.newest)
        if log.held == 0 or charged < log.base or charged > log.newest then
            return
        end
        -- The last block that begins before that instant, if it is not the one of the first word.
        local word, instant = log.first, log.base
        local low, high = block_of(log.first) / BLOCK, block_of(log.stop - 1) / BLOCK
        while low < high do
            local middle = math.ceil((low + high) / 2)
            local begins = head(log, middle * BLOCK)
            if begins < charged then
                low, word, instant = middle, middle * BLOCK, begins
            else
                high = middle - 1
            end
        end
        word, instant = walk(log, word, instant, 0, charged - 1, math.huge)
        local taken = 0
        while word < log.stop and taken < log.cost do
            if word % BLOCK == 0 and word > 0 then
                word = word + HEAD
            end
            local x = struct.unpack('>I4', read(log, word, 1))
            local later = x < STEP and x or x < TOMB and (x - STEP) * FAR or x < MORE and x - TOMB or 0
            if instant + later > charged then
                break
            end
            instant = instant + later
            if instant == charged then
                if x < STEP then
                    taken = taken + 1
                    write(log, word, struct.pack('>I4', x + TOMB))
                    add_places(log, word, -1)
                elseif x > MORE then
                    local n = math.min(x - MORE, log.cost - taken)
                    taken = taken + n
                    write(log, word, struct.pack('>I4', x - n))
                    add_places(log, word, -n)
                end
            end
            word = word + 1
        end
        if taken == 0 then
            return
        end
        log.changed = true
        log.held = math.max(0, log.held - taken)
        -- Places that were let go decided nothing as long as these were held; now they do again.
        hold_again(log, taken)
        if log.held > 0 and (not log.large or log.stop - log.first > 3 * log.held + 2048) then
            tidy(log)
        end
    end

    -- Instants and places: the oldest up to each that decides, and the rest as if all were taken at the newest.
    local function view(log)
        -- What is asked next may be refused without another call: when it would fit is told in advance.
        local needed, last = log.held + log.added + log.cost - log.count, log.thresholds[#log.thresholds]
        if not log.never and needed > (last or 0) and needed <= log.held then
            log.thresholds[#log.thresholds + 1] = needed
        end
        local list, sum = {}, 0
        local word, instant = log.first, log.base
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

    kind.told, kind.retold = view, view

    function kind.save(log)
        if log.added > 0 then
            append(log, math.max(now, log.newest), math.min(log.added, ONE))
            if log.full then
                let_go(log)
            end
        end
        if log.held == 0 then
            set(log.name, log.value, '', 0)
            return
        end
        local owes = log.newest + log.period - now
        if log.large and not (log.first >= BLOCK and log.first * 2 > log.stop) then
            local header = struct.pack('>I6I3I4I7I7B', log.period, log.first, log.held, log.base, log.newest, log.let_go)
            redis.call('SETRANGE', log.name, 0, header)
            redis.call('PEXPIRE', log.name, life(owes))
            return
        end
        if log.large then
            -- More than half is over: whole blocks of it go.
            local gone = block_of(log.first)
            log.words = redis.call('GETRANGE', log.name, HEADER + 4 * gone, -1)
            log.first = log.first - gone
        elseif log.stop <= BLOCK then
            log.words = string.sub(log.words, 4 * log.first + 1)
            log.first = 0
        end
        local header = struct.pack('>I6I3I4I7I7B', log.period, log.first, log.held, log.base, log.newest, log.let_go)
        set(log.name, log.value, header .. log.words, owes)
    end

    return kind
end
