: "${LAB:?names the directory of the laboratory}" "${RUN:?begins the names of its namespaces}"
# VM 1 fetches 100 MB from VM 0. Meanwhile the sender's classes are shown.
mkdir -p "$LAB/served"
head -c 100000000 /dev/zero > "$LAB/served/file"
ip netns exec $RUN-vm0 python3 -m http.server --directory "$LAB/served" \
    > "$LAB/server.log" 2>&1 &
echo $! > "$LAB/server.pid"
ip netns exec $RUN-vm1 curl -s -o /dev/null -w '%{time_total} s\n' \
    --retry 5 --retry-connrefused --retry-delay 1 \
    http://192.168.79.100:8000/file > "$LAB/fetched" &
fetch=$!
sleep 5
host=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["host"])' "$LAB/vm0.json")
nsenter --net=/run/netns/$RUN-$host \
    virtco-edge --config-file "$LAB/$host/edge.conf" --show
wait $fetch
cat "$LAB/fetched"
# The measured time is known a moment after the end.
timeout 60 ip netns exec $RUN-switch sh -c \
    'until curl -fs http://192.168.79.1:8791/v1/coflows | grep -q done; do sleep 1; done'
