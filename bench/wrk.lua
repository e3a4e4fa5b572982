-- Posts the lines of the file in $BODIES, one after the other, and prints figures as one line of JSON.
local bodies, number = {}, 0
for line in io.lines(os.getenv("BODIES")) do bodies[#bodies + 1] = line end
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"

function request()
  number = number % #bodies + 1
  return wrk.format(nil, nil, nil, bodies[number])
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "seconds": %.6f, "p50_ms": %.4f, "p90_ms": %.4f, "p99_ms": %.4f, "p999_ms": %.4f, "max_ms": %.4f, "errors": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(90) / 1e3,
    latency:percentile(99) / 1e3, latency:percentile(99.9) / 1e3, latency.max / 1e3,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
