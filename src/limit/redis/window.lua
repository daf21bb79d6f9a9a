-- fixed_window: period 6 bytes, index of the window since the epoch 6, used 4.
algorithms[2] = function()
    local kind = {}

    function kind.load(key, at)
        local period
        period, key.count, key.cost, key.tail = struct.unpack('>I6I4I4', key.argument, at)
        key.period = period
        local current = (now - now % period) / period
        local index, used = current, 0
        local value = get(key.name)
        if #value == 16 then
            local old, then_index, then_used = struct.unpack('>I6I6I4', value)
            if old == period then
                if then_index >= index then
                    index, used = then_index, then_used
                end
            elseif is_period(old) and (then_index + 1) * old > now then
                -- Used in a window that is not over: it counts in the current one of the new period, or in the one
                -- in which the old one began, if the clock was set back.
                local begun = then_index * old
                index, used = math.max(index, (begun - begun % period) / period), then_used
                key.changed = true
            end
            if index > current + 1 then
                index = current -- the clock was set back by more than a whole window
                key.changed = true
            end
        end
        key.value, key.index, key.used, key.was = value, index, used, used
    end

    function kind.fits(key)
        return not key.never and key.used + key.cost <= key.count
    end

    function kind.charge(key)
        key.used = key.used + key.cost
        key.changed = true
    end

    function kind.refuse()
        return false
    end

    function kind.spend(key)
        key.used = math.min(key.used + key.cost, 4294967295)
        key.changed = true
    end

    function kind.refund(key)
        if struct.unpack('>I6', key.argument, key.tail) == key.index and key.used > 0 then
            key.used = math.max(0, key.used - key.cost)
            key.changed = true
        end
    end

    function kind.told(key)
        return {key.index, key.was}
    end

    function kind.retold(key)
        return {key.index, key.used}
    end

    function kind.save(key)
        local value = key.used > 0 and struct.pack('>I6I6I4', key.period, key.index, key.used) or ''
        set(key.name, key.value, value, (key.index + 1) * key.period - now)
    end

    return kind
end
