: "${LAB:?names the directory of the laboratory}" "${RUN:?begins the names of its namespaces}"
# The classes go with the namespaces, and the classification by --cleanup.
for pid in "$LAB"/*.pid "$LAB"/h?/edge.pid; do
    if [ -e "$pid" ]; then
        kill "$(cat "$pid")" || true
        timeout 20 tail --pid="$(cat "$pid")" -f /dev/null || true
    fi
done
for host in h1 h2; do
    nsenter --net=/run/netns/$RUN-$host virtco-edge \
        --config-file "$LAB/$host/edge.conf" --cleanup || true
done
for namespace in $RUN-h1 $RUN-h2 $RUN-vm0 $RUN-vm1 $RUN-switch; do
    ip netns delete $namespace || true
done
rm -rf "$LAB"
