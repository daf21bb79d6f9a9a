-- sliding_window. Value: period 6 bytes, number of sub-windows 2 (plus 32768 if the limit is strict, and 16384 if counts are wide),
-- index of the newest one since the epoch 7, and 4 bytes for each count, 6 if they are wide, newest first, without the zeros of
-- the oldest ones. Counts become wide when one of them needs more than 4 bytes, which only late costs do.
algorithms[3] = function()
    local kind = {}
    local STRICT, WIDE = 32768, 16384
    -- The largest narrow count and the largest count, so that the sum of 1,001 is exact.
    local MOST_NARROW, MOST = 4294967295, 4398046511103

    -- The bytes of a count, for counts up to `largest`.
    local function width_of(largest)
        return largest > MOST_NARROW and 6 or 4
    end

    -- The index of the sub-window of `now`, and the position in it, in microseconds times `slices`.
    local function position(period, slices)
        local inside = now % period
        local more, rest = muldiv(inside, slices, period)
        return (now - inside) / period * slices + more, rest
    end

    -- The sum of the counts of all sub-windows but the oldest, and the count of the oldest.
    local function parts(counts, width, slices)
        local n = #counts / width
        local numbers = {struct.unpack('>' .. string.rep('I' .. width, n), counts)}
        local sum = 0
        for i = 1, math.min(n, slices) do
            sum = sum + numbers[i]
        end
        return sum, n > slices and numbers[slices + 1] or 0
    end

    -- Shifts the counts so that sub-window `index` is the newest, unless they are ahead of it.
    local function advance(counts, width, from, index, slices)
        local steps = math.min(index - from, slices + 1)
        return string.sub(string.rep('\0', width * steps) .. counts, 1, width * (slices + 1))
    end

    -- A strict limit counts the oldest sub-window in full.
    local function estimate(counts, width, period, slices, inside, strict)
        local sum, oldest = parts(counts, width, slices)
        return sum + (strict and oldest or (muldiv(period - inside, oldest, period)))
    end

    -- The number of sub-windows, whether the limit is strict, and the bytes of a count.
    local function unpack_slices(number)
        local strict, wide = number >= STRICT, number % STRICT >= WIDE
        return number % WIDE, strict, wide and 6 or 4
    end

    function kind.load(key, at)
        local period, number
        period, number, key.count, key.cost, key.tail = struct.unpack('>I6I2I4I6', key.argument, at)
        local slices, strict = unpack_slices(number)
        key.period, key.slices, key.number = period, slices, number
        local value = get(key.name)
        local index, inside = position(period, slices)
        local current, counts, width = index, '', 4
        if #value >= 19 then
            local old, old_number, newest = struct.unpack('>I6I2I7', value)
            local old_slices, old_strict, old_width = unpack_slices(old_number)
            local n = (#value - 15) / old_width
            if is_period(old) and old_slices >= 1 and old_slices <= 1000 and n % 1 == 0 and n <= old_slices + 1 then
                local old_index, old_inside = position(old, old_slices)
                counts, width = string.sub(value, 16), old_width
                if newest > old_index then
                    old_index, old_inside = newest, 0 -- the clock was set back
                else
                    counts = advance(counts, width, newest, old_index, old_slices)
                end
                local same = old == period and old_slices == slices
                -- The sub-windows have changed, or the clock was set back by more than a period: the estimate counts in
                -- the current sub-window.
                if not same or newest > current + slices then
                    local used = math.min(estimate(counts, width, old, old_slices, old_inside, old_strict), MOST)
                    width = width_of(used)
                    counts = used > 0 and struct.pack('>I' .. width, used) or ''
                    key.changed = used > 0
                else
                    index, inside = old_index, old_inside
                end
            end
        end
        key.ahead = index - current
        key.value, key.index, key.inside, key.was = value, index, inside, counts
        key.width = width
        key.newest = counts ~= '' and struct.unpack('>I' .. width, counts) or 0
        key.used = estimate(counts, width, period, slices, inside, strict)
    end

    function kind.fits(key)
        return not key.never and key.used + key.cost <= key.count
    end

    function kind.charge(key)
        key.used, key.newest = key.used + key.cost, math.min(key.newest + key.cost, MOST)
        key.changed = true
    end

    kind.spend = kind.charge

    -- The counts as they are now, and the bytes of each.
    local function counts(key)
        local width, older = key.width, string.sub(key.was, key.width + 1)
        if width < width_of(key.newest) then
            width, older = 6, string.gsub(older, '....', '\0\0%0')
        end
        return struct.pack('>I' .. width, key.newest) .. older, width
    end

    function kind.refund(key)
        local age = key.index - struct.unpack('>I7', key.argument, key.tail)
        local width = key.width
        local at, format = width * age + 1, '>I' .. width
        if age == 0 then
            key.newest = math.max(0, key.newest - key.cost)
            key.changed = true
        elseif age > 0 and at < #key.was then
            local left = math.max(0, struct.unpack(format, key.was, at) - key.cost)
            key.was = string.sub(key.was, 1, at - 1) .. struct.pack(format, left) .. string.sub(key.was, at + width)
            key.changed = true
        end
    end

    function kind.loaded_state(key)
        return {key.index, key.width, key.was}
    end

    function kind.state(key)
        local now, width = counts(key)
        return {key.index, width, now}
    end

    function kind.save(key)
        local kept, width = counts(key)
        local stop, zero = #kept, string.rep('\0', width)
        while stop > 0 and string.sub(kept, stop - width + 1, stop) == zero do
            stop = stop - width
        end
        if stop == 0 then
            set(key.name, key.value, '', 0)
            return
        end
        local value = struct.pack('>I6I2I7', key.period, key.number + (width == 6 and WIDE or 0), key.index) .. string.sub(kept, 1, stop)
        -- The newest sub-window expires one period after its end.
        local to_end = ((key.ahead + 1) * key.period - key.inside) / key.slices
        set(key.name, key.value, value, math.ceil(to_end) + key.period)
    end

    return kind
end
